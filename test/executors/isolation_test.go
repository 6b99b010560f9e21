package executors

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/runner"
)

// nowhere is a web server that nobody asks.
const nowhere = "http://nowhere.invalid"

// project writes files below a directory of their own and returns it.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// collected is a collection's module with its utilities, and a role's filter,
// that tell which project they are of.
func collected(name string) map[string]string {
	const collection = "collections/ansible_collections/acme/own/plugins/"
	return map[string]string{
		collection + "module_utils/which.py": fmt.Sprintf("WHICH = %q\n", name),
		collection + "modules/tell.py": "#!/usr/bin/python\nfrom ansible.module_utils.basic import AnsibleModule\n" +
			"from ansible_collections.acme.own.plugins.module_utils.which import WHICH\n" +
			"from ansible.module_utils.helper import HELP\n" +
			"AnsibleModule(argument_spec={}).exit_json(which=WHICH + HELP)\n",
		"module_utils/helper.py":      fmt.Sprintf("HELP = %q\n", " helped by "+name),
		"roles/r/filter_plugins/f.py": fmt.Sprintf("class FilterModule:\n    def filters(self):\n        return {'which': lambda x: %q}\n", name),
		"roles/r/tasks/main.yml":      "- acme.own.tell:\n  register: told\n- debug: {msg: \"{{ told.which }}, {{ 1 | which }}\"}\n",
		"play.yml": "- hosts: localhost\n  gather_facts: false\n  roles: [r]\n  tasks:\n" +
			"  - debug: {msg: \"{{ lookup('env', 'TOKEN') }} {{ lookup('env', 'K8S_AUTH_API_KEY') }}\"}\n",
	}
}

// What is named alike in two projects is each project's own, in whichever order
// they are run, and what one run was given no other has.
func TestRun_HasItsOwnProject(t *testing.T) {
	w := bothWays(t)
	projects := map[string]string{"first": project(t, collected("first")), "second": project(t, collected("second"))}
	for _, name := range []string{"first", "second", "first"} {
		s := sample{name: name, content: runner.Content{Playbook: filepath.Join(projects[name], "play.yml")}}
		if name == "first" {
			s.options.Env = map[string]string{"TOKEN": "given to the first", "K8S_AUTH_API_KEY": "key of the first"}
		}
		seen := s.observe(t, w.forked, nowhere)
		text := strings.Join(seen.Output, "\n")
		if !seen.Verdict.Success || !strings.Contains(text, name+" helped by "+name+", "+name) {
			t.Errorf("the run of %s: %+v\n%s", name, seen.Verdict, text)
		}
		if given := strings.Contains(text, "given to the first key of the first"); given != (name == "first") {
			t.Errorf("the run of %s has what the first was given: %v\n%s", name, given, text)
		}
	}
	if n := strings.Count(w.traced(t), "playbook forked"); n != 3 {
		t.Errorf("%d playbooks were forked, not 3", n)
	}
}

// A run leaves nothing where others look: no temporary file, and no process.
func TestRun_LeavesNoTemporaryFiles(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	w := bothWays(t)
	before := names(t, temp)
	dir := project(t, map[string]string{"play.yml": "- hosts: localhost\n  tasks:\n  - ping:\n" +
		"  - copy: {content: x, dest: \"{{ out }}/x\", mode: \"0600\"}\n" +
		"  - template: {src: t.j2, dest: \"{{ out }}/t\", mode: \"0600\"}\n  - shell: sleep 77777 &\n", "templates/t.j2": "x"})
	s := sample{name: "temporary", content: runner.Content{Playbook: filepath.Join(dir, "play.yml")}}
	for _, r := range []*runner.Runner{w.executed, w.forked} {
		if seen := s.observe(t, r, nowhere); !seen.Verdict.Success {
			t.Fatalf("%+v\n%s", seen.Verdict, strings.Join(seen.Output, "\n"))
		}
		if diff := gocmp.Diff(before, names(t, temp)); diff != "" {
			t.Errorf("left in the directory for temporary files:\n%s", diff)
		}
	}
}

// names are those of the files in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	// Tests of this process that run meanwhile have theirs there, too.
	return slices.DeleteFunc(found, func(name string) bool { return strings.HasPrefix(name, "Test") })
}
