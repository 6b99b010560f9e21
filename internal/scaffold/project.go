package scaffold

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rolewright/rolewright/internal/chartdir"
)

// Project is the file PROJECT, as operator-sdk writes it. It keeps fields that are
// unknown here.
type Project struct {
	Domain    string     `yaml:"domain,omitempty"`
	Layout    layouts    `yaml:"layout"`
	Name      string     `yaml:"projectName"`
	Resources []Resource `yaml:"resources,omitempty"`
	Version   string     `yaml:"version"`

	// Commands are the files and directories that the commands in watches.yaml consist of,
	// in addition to watches.yaml; empty if roles and playbooks run.
	Commands []string `yaml:"-"`

	Other map[string]any `yaml:",inline"`
}

// layouts are the plugins that have made a project: a list or, in the first versions of operator-sdk, a string.
type layouts []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *layouts) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*l = layouts{node.Value}
		return nil
	}
	return node.Decode((*[]string)(l))
}

// Site returns the domain, or a placeholder if the project has none.
func (p Project) Site() string { return cmp.Or(p.Domain, "example.com") }

// Content returns what the image contains in addition to watches.yaml.
func (p Project) Content() []string {
	if len(p.Commands) > 0 {
		return p.Commands
	}
	if p.Charts() {
		return []string{chartsDir}
	}
	return []string{"playbooks", "roles"}
}

// Resource is a kind of a [Project].
type Resource struct {
	API     API    `yaml:"api"`
	Domain  string `yaml:"domain,omitempty"`
	Group   string `yaml:"group"`
	Kind    string `yaml:"kind"`
	Version string `yaml:"version"`

	Other map[string]any `yaml:",inline"`
}

// API describes the CRD of a kind.
type API struct {
	CRDVersion string `yaml:"crdVersion"`
	Namespaced bool   `yaml:"namespaced,omitempty"`
}

// projectFile is the name of the file with the [Project].
const projectFile = "PROJECT"

// layout is the layout of operator-sdk's Ansible plugin, so that its tools know the
// project.
const layout = "ansible.sdk.operatorframework.io/v1"

// chartLayout is the layout of operator-sdk's Helm plugin.
const chartLayout = "helm.sdk.operatorframework.io/v1"

// ForCharts returns the project as a project of charts: its files contain nothing of Ansible.
func (p Project) ForCharts() Project {
	p.Layout = []string{chartLayout}
	return p
}

// Charts tells whether it is a project of charts.
func (p Project) Charts() bool { return slices.Contains(p.Layout, chartLayout) }

// New returns a project without kinds. The error says what is wrong with the
// domain or the name, and what is wanted.
func New(domain, name string) (Project, error) {
	err := errors.Join(checkDomain(domain), CheckName(name))
	// The name of the Service for metrics begins with it.
	const longest = 63 - len("-controller-manager-metrics-service")
	if err == nil && len(name) > longest {
		err = fmt.Errorf("--name %q: at most %d characters, names of objects begin with it", name, longest)
	}
	return Project{Domain: domain, Layout: []string{layout}, Name: name, Version: "3"}, err
}

func checkDomain(domain string) error {
	if why := validation.IsDNS1123Subdomain(domain); len(why) > 0 {
		return fmt.Errorf("--domain %q: %s; give one of yours, such as example.com", domain, plainly(why, "lower-case letters, digits, - and ."))
	}
	return nil
}

// CheckName says why the name of an operator cannot be the value of a label, and what is expected.
func CheckName(name string) error {
	if why := validation.IsDNS1123Label(name); len(why) > 0 {
		return fmt.Errorf("--name %q: %s", name, plainly(why, "lower-case letters, digits and -, with a letter or digit at both ends"))
	}
	return nil
}

// Read returns the project of a directory. It may have no domain, and a longer name than
// New allows. The error wraps [fs.ErrNotExist] if there is none.
func Read(dir string) (Project, error) {
	var p Project
	path := filepath.Join(dir, projectFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("%s: %w; make a project with \"rolewright init\", or change to its directory", path, fs.ErrNotExist)
	}
	if err != nil {
		return p, fmt.Errorf("read the project: %w", err)
	}
	if err := yaml.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	err = CheckName(p.Name)
	if p.Domain != "" {
		err = errors.Join(checkDomain(p.Domain), err)
	}
	if err != nil {
		return p, fmt.Errorf("%s: domain or projectName: %w", path, err)
	}
	return p, nil
}

// Files returns the files of a project without kinds.
func (p Project) Files() ([]File, error) {
	files, err := render("files/project", p)
	if err != nil {
		return nil, err
	}
	for i, f := range files { // a repository that was created elsewhere may have them
		files[i].Yields = f.Path == "README.md" || f.Path == ".gitignore"
	}
	shards, err := p.part("shards")
	if err != nil {
		return nil, err
	}
	about, err := execute("files/csv.yaml", p)
	if err != nil {
		return nil, err
	}
	own, err := p.file()
	files = append(append(files, shards...), own, File{Path: "config/manifests/bases/" + p.Name + ".clusterserviceversion.yaml", Text: about})
	if p.Charts() {
		files = slices.DeleteFunc(files, func(f File) bool {
			return f.Path == "requirements.yml" || strings.HasPrefix(f.Path, "molecule/")
		})
		return append(files, File{Path: chartsDir + "/.gitkeep"}), err
	}
	return append(files, File{Path: "playbooks/.gitkeep"}, File{Path: "roles/.gitkeep"}), err
}

// file returns the file PROJECT.
func (p Project) file() (File, error) {
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := out.Encode(p); err != nil {
		return File{}, fmt.Errorf("encode the project: %w", err)
	}
	return File{Path: projectFile, Text: text.String()}, nil
}

// Kind is what "create api" adds to a project.
type Kind struct {
	Project Project
	// Group is without the domain; it may be empty.
	Group, Version, Kind string
	Namespaced           bool
	// Role is the name of the role. Playbook is a path that watches.yaml names
	// instead, or empty.
	Role, Playbook string
	// Chart is run instead of both; nil for none.
	Chart *chartdir.Chart
	// Finalizer is true if the content runs for objects that are being deleted.
	Finalizer bool

	plural, file string // of the existing CRD
}

// FullGroup returns the group with the domain.
func (k Kind) FullGroup() string {
	return strings.Trim(k.Group+"."+k.Project.Domain, ".")
}

// Name returns the project's name.
func (k Kind) Name() string { return k.Project.Name }

// Singular returns the kind in lower case.
func (k Kind) Singular() string { return strings.ToLower(k.Kind) }

// Plural returns the name of the resource, by kubebuilder's rules unless a CRD exists.
func (k Kind) Plural() string {
	s := k.Singular()
	switch {
	case k.plural != "":
		return k.plural
	case strings.HasSuffix(s, "s"), strings.HasSuffix(s, "x"), strings.HasSuffix(s, "ch"), strings.HasSuffix(s, "sh"):
		return s + "es"
	case strings.HasSuffix(s, "y") && len(s) > 1 && !strings.ContainsRune("aeiou", rune(s[len(s)-2])):
		return s[:len(s)-1] + "ies"
	}
	return s + "s"
}

// Definition returns the path of the CRD.
func (k Kind) Definition() string {
	if k.file != "" {
		return k.file
	}
	return fmt.Sprintf("config/crd/bases/%s_%s.yaml", k.FullGroup(), k.Plural())
}

// plainly says why a name is refused without the regular expression: by the allowed letters,
// or by its length.
func plainly(why []string, letters string) string {
	if strings.Contains(why[0], "regex") {
		return letters
	}
	return why[0]
}

// Validate says what is wrong with the names, and what is expected.
func (k Kind) Validate() error {
	var errs []error
	check := func(flag, value string, why []string, letters, want string) {
		switch {
		case value == "":
			errs = append(errs, fmt.Errorf("--%s is missing: %s", flag, want))
		case len(why) > 0:
			errs = append(errs, fmt.Errorf("--%s %q: %s; %s", flag, value, plainly(why, letters), want))
		}
	}
	if k.FullGroup() == "" {
		errs = append(errs, errors.New("--group is empty: the project has no domain, so give all of it, such as cache.example.com"))
	} else if k.Group != "" {
		check("group", k.Group, validation.IsDNS1123Subdomain(k.Group), "lower-case letters, digits, - and .", "the domain of the project follows it, so cache is enough")
	}
	if short, ok := strings.CutSuffix("."+k.Group, "."+k.Project.Domain); ok && k.Project.Domain != "" {
		errs = append(errs, fmt.Errorf("--group %q: the domain of the project follows it: give %q", k.Group, strings.TrimPrefix(short, ".")))
	}
	check("version", k.Version, validation.IsDNS1035Label(k.Version), "lower-case letters, digits and -, beginning with a letter", "such as v1alpha1")
	check("kind", k.Kind, validation.IsDNS1035Label(k.Singular()), "letters, digits and -, beginning with a letter", "such as Memcached")
	if k.Kind != "" && (k.Kind[0] < 'A' || k.Kind[0] > 'Z') {
		errs = append(errs, fmt.Errorf("--kind %q: it begins with a capital letter, such as Memcached", k.Kind))
	}
	if k.Chart == nil && k.Kind+k.Role != "" && !rolePattern.MatchString(k.Role) {
		errs = append(errs, fmt.Errorf("--role %q: lower-case letters, digits and _, beginning with a letter", k.Role))
	}
	ending := filepath.Ext(k.Playbook)
	if k.Playbook != "" && (!filepath.IsLocal(k.Playbook) || !strings.Contains(k.Playbook, "/") || ending != ".yml" && ending != ".yaml") {
		errs = append(errs, fmt.Errorf("--playbook %q: a path in a directory below this one, with the ending .yml or .yaml, such as playbooks/%s.yml", k.Playbook, k.Singular()))
	}
	return errors.Join(errs...)
}

// addTo returns the project with the kind.
func (k Kind) addTo(p Project) Project {
	r := Resource{
		API: API{CRDVersion: "v1", Namespaced: k.Namespaced}, Domain: p.Domain, Group: k.Group, Kind: k.Kind, Version: k.Version,
	}
	same := func(o Resource) bool { return o.Group == r.Group && o.Kind == r.Kind && o.Version == r.Version }
	if !slices.ContainsFunc(p.Resources, same) {
		p.Resources = append(slices.Clip(p.Resources), r)
	}
	return p
}
