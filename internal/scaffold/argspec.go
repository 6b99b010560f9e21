package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// option is a variable of a role, from its argument spec or its defaults.
type option struct {
	Name string
	// field is the CRD's field that becomes the option; empty for the field that the name implies.
	field string
	// file and line say where the option is in an argument spec.
	file string
	line int

	Type, Elements                                     string
	Required, NoLog                                    bool
	Default                                            *yaml.Node // nil if there is none
	Choices                                            []*yaml.Node
	Description                                        string
	Aliases                                            []string
	Options                                            []option
	MutuallyExclusive, RequiredTogether, RequiredOneOf [][]string
	RequiredIf                                         []requiredIf
	RequiredBy                                         map[string]names
}

// names are the options that required_by lists for an option: a list or a single name.
type names []string

// UnmarshalYAML reads either form.
func (n *names) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*n = names{node.Value}
		return nil
	}
	return node.Decode((*[]string)(n))
}

// requiredIf is an entry of required_if: if key has the value, all of names are
// required, or any one of them.
type requiredIf struct {
	key   string
	value *yaml.Node
	names []string
	any   bool
}

// The sources of options.
const (
	FromArgspec  = "argspec"
	FromDefaults = "defaults"
	FromNone     = "none"
)

// reader returns the content of a file of a role, such as meta/main.yml.
type reader func(name string) ([]byte, error)

// options returns the options of a role, in order, from the argument spec of
// its entry point main or from its defaults. An empty source means the argument spec,
// or the defaults if there is none. role is the path of the role in errors.
func (read reader) options(role, source string) ([]option, error) {
	if source == FromNone {
		return nil, nil
	}
	if source != FromDefaults {
		for _, name := range specFiles() {
			name = "meta/" + name
			root, err := read.mapping(role, name)
			if err != nil {
				return nil, err
			}
			if spec := at(at(at(root, "argument_specs"), "main"), "options"); spec != nil {
				return readOptions(path.Join(role, name), spec)
			}
		}
		if source == FromArgspec {
			return nil, fmt.Errorf("%s: the role has no meta/argument_specs.yml with options of main: write one, or have the defaults read", role)
		}
	}
	for _, name := range []string{"defaults/main.yml", "defaults/main.yaml"} {
		root, err := read.mapping(role, name)
		if err != nil {
			return nil, err
		}
		if root != nil {
			return defaultsOf(root), nil
		}
	}
	return nil, nil
}

// about returns the short description in the role's argument spec; empty if it has none.
func (read reader) about() string {
	for _, name := range specFiles() {
		if root, err := read.yaml("", "meta/"+name); err == nil && at(root, "argument_specs") != nil {
			return describe(at(at(at(root, "argument_specs"), "main"), "short_description"))
		}
	}
	return ""
}

// specFiles returns the files below meta in which Ansible looks for an argument spec, in Ansible's order.
func specFiles() []string {
	return []string{"argument_specs", "argument_specs.yml", "argument_specs.yaml", "argument_specs.json", "main.yml", "main.yaml"}
}

// yaml returns the content of a file, nil if it does not exist or is empty. dir is
// where the file is, for errors.
func (read reader) yaml(dir, name string) (*yaml.Node, error) {
	data, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(dir, name), err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

// mapping returns the content of a file of a role, which has to be a mapping: nil if
// it does not exist or is empty.
func (read reader) mapping(role, name string) (*yaml.Node, error) {
	root, err := read.yaml(role, name)
	if err == nil && root != nil && root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: a mapping is expected", path.Join(role, name), root.Line)
	}
	return root, err
}

// at returns the value of a key; nil if there is none.
func at(node *yaml.Node, key string) *yaml.Node {
	for k, value := range content.Pairs(node) {
		if k.Value == key {
			return value
		}
	}
	return nil
}

// types returns the types of an argument spec.
func types() []string {
	return []string{"str", "list", "dict", "bool", "int", "float", "path", "raw", "jsonarg", "json", "bytes", "bits"}
}

func readOptions(file string, spec *yaml.Node) ([]option, error) {
	if spec.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: options: a mapping of names is expected", file, spec.Line)
	}
	var all []option
	var errs []error
	for name, value := range content.Pairs(spec) {
		o, err := readOption(file, name.Value, value)
		o.file, o.line = file, name.Line
		all, errs = append(all, o), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func readOption(file, name string, node *yaml.Node) (option, error) {
	o := option{Name: name, Default: at(node, "default"), Type: "str"}
	var errs []error
	wrong := func(key string, n *yaml.Node, want string) {
		errs = append(errs, fmt.Errorf("%s:%d: option %s: %s: %s expected", file, n.Line, name, key, want))
	}
	read := func(key string, into any, want string) {
		if n := at(node, key); n != nil && n.Decode(into) != nil {
			wrong(key, n, want)
		}
	}
	read("type", &o.Type, "a string")
	read("elements", &o.Elements, "a string")
	read("required", &o.Required, "true or false")
	read("no_log", &o.NoLog, "true or false")
	read("mutually_exclusive", &o.MutuallyExclusive, "a list of lists of names")
	read("required_together", &o.RequiredTogether, "a list of lists of names")
	read("required_one_of", &o.RequiredOneOf, "a list of lists of names")
	read("required_by", &o.RequiredBy, "a mapping of names to lists of names")
	read("aliases", &o.Aliases, "a list of names")
	for key, value := range map[string]string{"type": o.Type, "elements": o.Elements} {
		if n := at(node, key); n != nil && !slices.Contains(types(), value) {
			wrong(key, n, "one of "+strings.Join(types(), ", "))
		}
	}
	if n := at(node, "choices"); n != nil {
		if n.Kind != yaml.SequenceNode {
			wrong("choices", n, "a list")
		}
		o.Choices = n.Content
	}
	if n := at(node, "required_if"); n != nil {
		for _, entry := range n.Content {
			r, ok := readRequiredIf(entry)
			if !ok {
				wrong("required_if", entry, "lists of a name, a value and a list of names")
				continue
			}
			o.RequiredIf = append(o.RequiredIf, r)
		}
	}
	o.Description = describe(at(node, "description"))
	if n := at(node, "removed_in_version"); n != nil {
		o.Description = strings.TrimSpace(o.Description + " Deprecated: removed in version " + n.Value + " of the role.")
	}
	if o.Required && o.Default != nil {
		errs = append(errs, fmt.Errorf("%s:%d: option %s: it is required and has a default, which Ansible refuses: remove one of them", file, node.Line, name))
	}
	if n := o.Default; n != nil && len(errs) == 0 {
		if why := o.refuses(n); why != "" {
			errs = append(errs, fmt.Errorf("%s:%d: option %s: the default %s: change one of them", file, n.Line, name, why))
		}
	}
	if n := at(node, "options"); n != nil {
		var err error
		o.Options, err = readOptions(file, n)
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

func readRequiredIf(entry *yaml.Node) (r requiredIf, ok bool) {
	if entry.Kind != yaml.SequenceNode || len(entry.Content) < 3 || entry.Content[2].Decode(&r.names) != nil {
		return r, false
	}
	r.key, r.value = entry.Content[0].Value, entry.Content[1]
	r.any = len(entry.Content) > 3 && entry.Content[3].Value == "true"
	return r, true
}

// describe returns a description, given as a string or a list of strings, without Ansible's markup.
func describe(node *yaml.Node) string {
	if node == nil {
		return ""
	}
	parts := []string{node.Value}
	if node.Kind == yaml.SequenceNode {
		parts = nil
		for _, n := range node.Content {
			parts = append(parts, n.Value)
		}
	}
	return markup.ReplaceAllString(strings.TrimSpace(strings.Join(parts, " ")), "$1")
}

// defaultsOf returns options of which only the default, and the comment above it, is known. Names that begin with _
// are private to the role.
func defaultsOf(root *yaml.Node) []option {
	var all []option
	for name, value := range content.Pairs(root) {
		if !strings.HasPrefix(name.Value, "_") {
			all = append(all, option{Name: name.Value, Default: value, Type: typeOf(value), Description: comment(name.HeadComment)})
		}
	}
	return all
}

// typeOf returns the type that a value has in argument specs; raw if it may have another type.
func typeOf(value *yaml.Node) string {
	switch {
	case value.Kind == yaml.SequenceNode:
		return "list"
	case value.Kind == yaml.MappingNode:
		return "dict"
	case strings.Contains(value.Value, "{{"):
		return "raw"
	case value.Tag == "!!str" && value.Style == 0 && slices.Contains([]string{"yes", "no", "on", "off"}, strings.ToLower(value.Value)):
		return "bool" // for Ansible, which reads YAML 1.1
	}
	types := map[string]string{"!!bool": "bool", "!!int": "int", "!!float": "float", "!!str": "str"}
	if name, ok := types[value.Tag]; ok {
		return name
	}
	return "raw"
}
