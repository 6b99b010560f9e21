package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

// moleculeFile contains what the scenarios use of molecule.yml. Anything else, such as a driver that is a plugin, is an
// error.
type moleculeFile struct {
	Dependency struct {
		Name    string            `json:"name"`
		Options map[string]string `json:"options"`
	} `json:"dependency"`
	Platforms []struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups"`
	} `json:"platforms"`
	Provisioner struct {
		Name      string            `json:"name"`
		Playbooks map[string]string `json:"playbooks"`
		Env       map[string]string `json:"env"`
	} `json:"provisioner"`
	Verifier struct {
		Name string `json:"name"`
	} `json:"verifier"`
	Scenario struct {
		TestSequence []string `json:"test_sequence"`
	} `json:"scenario"`
}

// scenario is executed as molecule does it: with its variables, inventory and configuration, in its order, from the
// directory of the scenario.
type scenario struct {
	t         *testing.T
	name      string
	project   string
	ephemeral string
	config    moleculeFile
	env       []string
}

// newScenario reads a scenario of a project. env is the environment in which a person calls molecule.
func newScenario(t *testing.T, project, name string, env []string) *scenario {
	t.Helper()
	needAnsible(t)
	s := &scenario{t: t, name: name, project: project, ephemeral: t.TempDir()}
	file := filepath.Join(s.dir(), "molecule.yml")
	data := must.Get(os.ReadFile(file))(t)
	path := os.Getenv("PATH")
	for _, entry := range env {
		if value, found := strings.CutPrefix(entry, "PATH="); found {
			path = value
		}
	}
	s.env = append(slices.Clone(env),
		"PATH="+path,
		"MOLECULE_DEBUG=False",
		"MOLECULE_DEPENDENCY_NAME=galaxy",
		"MOLECULE_DRIVER_NAME=default",
		"MOLECULE_EPHEMERAL_DIRECTORY="+s.ephemeral,
		"MOLECULE_FILE="+filepath.Join(s.ephemeral, "molecule.yml"),
		"MOLECULE_INSTANCE_CONFIG="+filepath.Join(s.ephemeral, "instance_config.yml"),
		"MOLECULE_INVENTORY_FILE="+filepath.Join(s.ephemeral, "inventory", "ansible_inventory.yml"),
		"MOLECULE_PROJECT_DIRECTORY="+project,
		"MOLECULE_PROVISIONER_NAME=ansible",
		"MOLECULE_SCENARIO_DIRECTORY="+s.dir(),
		"MOLECULE_SCENARIO_NAME="+name,
		"MOLECULE_STATE_FILE="+filepath.Join(s.ephemeral, "state.yml"),
		"MOLECULE_VERIFIER_NAME=ansible",
		"MOLECULE_VERIFIER_TEST_DIRECTORY="+filepath.Join(s.dir(), "tests"))
	interpolated := s.interpolate(string(data))
	if err := yaml.UnmarshalStrict([]byte(interpolated), &s.config); err != nil {
		t.Fatalf("%s: plain molecule may not know it: %v", file, err)
	}
	if c := s.config; c.Dependency.Name != "galaxy" || c.Provisioner.Name != "ansible" || c.Verifier.Name != "ansible" {
		t.Fatalf("%s needs a plugin of molecule's", file)
	}
	for key, value := range s.config.Provisioner.Env {
		s.env = append(s.env, key+"="+value)
	}
	s.write("molecule.yml", interpolated)
	s.configure()
	return s
}

func (s *scenario) dir() string { return filepath.Join(s.project, "molecule", s.name) }

func (s *scenario) write(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.ephemeral, name)
	must.Do(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(s.t, os.WriteFile(path, []byte(content), 0o600))
}

// interpolation matches ${NAME} and ${NAME:-default}.
var interpolation = regexp.MustCompile(`\$\{(\w+)(?::-([^}]*))?\}`)

// interpolate replaces the environment's variables in molecule.yml, even in comments.
func (s *scenario) interpolate(text string) string {
	return interpolation.ReplaceAllStringFunc(text, func(found string) string {
		m := interpolation.FindStringSubmatch(found)
		for _, entry := range slices.Backward(s.env) {
			if value, is := strings.CutPrefix(entry, m[1]+"="); is && value != "" {
				return value
			}
		}
		return m[2]
	})
}

// configure writes the inventory and the Ansible configuration that molecule writes.
func (s *scenario) configure() {
	s.t.Helper()
	variables := map[string]string{
		"molecule_file":                "{{ lookup('env', 'MOLECULE_FILE') }}",
		"molecule_ephemeral_directory": "{{ lookup('env', 'MOLECULE_EPHEMERAL_DIRECTORY') }}",
		"molecule_scenario_directory":  "{{ lookup('env', 'MOLECULE_SCENARIO_DIRECTORY') }}",
	}
	type group struct {
		Hosts map[string]map[string]string `json:"hosts,omitempty"`
		Vars  map[string]string            `json:"vars"`
	}
	hosts := map[string]map[string]string{}
	inventory := map[string]group{"all": {hosts, variables}, "ungrouped": {Vars: map[string]string{}}}
	for _, platform := range s.config.Platforms {
		hosts[platform.Name] = map[string]string{}
		for _, name := range platform.Groups {
			inventory[name] = group{map[string]map[string]string{platform.Name: {}}, variables}
		}
	}
	data := must.Get(json.Marshal(inventory))(s.t)
	s.write("inventory/ansible_inventory.yml", string(data))
	s.write("ansible.cfg", "[defaults]\ndisplay_failed_stderr = True\nforks = 50\nretry_files_enabled = False\n"+
		"host_key_checking = False\nnocows = 1\ninterpreter_python = auto_silent\n")
	home := must.Get(os.UserHomeDir())(s.t)
	shared := func(kind string) string {
		return filepath.Join(home, ".ansible", kind) + ":" + filepath.Join("/usr/share/ansible", kind)
	}
	s.env = append(s.env,
		"ANSIBLE_CONFIG="+filepath.Join(s.ephemeral, "ansible.cfg"),
		"ANSIBLE_ROLES_PATH="+filepath.Join(s.ephemeral, "roles")+":"+filepath.Dir(s.project)+":"+shared("roles"),
		"ANSIBLE_COLLECTIONS_PATH="+filepath.Join(s.ephemeral, "collections")+":"+shared("collections"),
		"ANSIBLE_LIBRARY="+filepath.Join(s.ephemeral, "modules")+":"+filepath.Join(s.project, "library")+":"+shared("plugins/modules"),
		"ANSIBLE_FILTER_PLUGINS="+filepath.Join(s.ephemeral, "plugins/filter")+":"+shared("plugins/filter"))
}

// test executes the scenario's sequence. after is called after each step with its name.
func (s *scenario) test(after func(step string)) {
	s.t.Helper()
	for _, step := range s.config.Scenario.TestSequence {
		began := time.Now()
		s.step(step)
		s.t.Logf("%s: %s: %s", s.name, step, time.Since(began).Round(100*time.Millisecond))
		after(step)
	}
}

// notIdempotent is how molecule recognises that a second converge has changed something.
var notIdempotent = regexp.MustCompile(`changed=[1-9][0-9]*`)

func (s *scenario) step(name string) {
	s.t.Helper()
	switch name {
	case "dependency":
		s.dependency()
	case "syntax":
		s.play("converge", "--syntax-check")
	case "idempotence":
		if out := s.play("converge", "--skip-tags=molecule-notest,notest,molecule-idempotence-notest"); notIdempotent.MatchString(out) {
			s.t.Errorf("%s: a second converge changes something:\n%s", s.name, out)
		}
	case "create", "prepare", "converge", "verify", "destroy":
		s.play(name, "--skip-tags=molecule-notest,notest")
	default:
		s.t.Fatalf("%s: the sequence has a step %q that this test does not know", s.name, name)
	}
}

// play runs the playbook of a step and returns its output.
func (s *scenario) play(step string, args ...string) string {
	s.t.Helper()
	playbook := s.config.Provisioner.Playbooks[step]
	if playbook == "" {
		playbook = step + ".yml"
	}
	args = append([]string{"--inventory", filepath.Join(s.ephemeral, "inventory")}, args...)
	cmd := process(s.t, "ansible-playbook", append(args, filepath.Join(s.dir(), playbook))...)
	cmd.Dir, cmd.Env = s.dir(), s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %s: %v\n%s", s.name, step, err, out)
	}
	return string(out)
}

// dependency replaces ansible-galaxy, which needs the network: what the requirements name must be installed.
func (s *scenario) dependency() {
	s.t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(s.project, s.config.Dependency.Options["requirements-file"])))(s.t)
	var requirements struct {
		Collections []struct{ Name, Version string }
	}
	if err := yaml.UnmarshalStrict(data, &requirements); err != nil || len(requirements.Collections) == 0 {
		s.t.Fatalf("requirements: %d collections, %v", len(requirements.Collections), err)
	}
	for _, collection := range requirements.Collections {
		list := process(s.t, "ansible-galaxy", "collection", "list", collection.Name)
		list.Env = s.env
		if out, err := list.CombinedOutput(); err != nil || !strings.Contains(string(out), collection.Name) {
			s.t.Fatalf("%s is not installed: %v\n%s", collection.Name, err, out)
		}
	}
}
