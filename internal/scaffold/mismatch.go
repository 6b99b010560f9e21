package scaffold

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// Mismatch is a place where the defaults of a role differ from its argument spec.
type Mismatch struct {
	File string
	Line int
	// Undocumented is true for a variable that the argument spec does not contain.
	Undocumented bool
	Message      string
}

// Mismatches compares the defaults of a role with its argument spec. If the role lacks one
// of them, there are no mismatches.
func Mismatches(role string) ([]Mismatch, error) {
	read := reader(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(role, name)) })
	options, err := read.options(shown(".", role), "")
	if err != nil {
		return nil, err
	}
	if _, err := read.options(role, FromArgspec); err != nil {
		return nil, nil //nolint:nilerr // the options are those of the defaults
	}
	var all []Mismatch
	for _, name := range []string{"defaults/main.yml", "defaults/main.yaml"} {
		root, err := read.yaml(shown(".", role), name)
		if err != nil {
			return nil, err
		}
		for key, value := range content.Pairs(root) {
			m := Mismatch{File: filepath.Join(role, name), Line: key.Line}
			at := slices.IndexFunc(options, func(o option) bool { return o.Name == key.Value })
			if at >= 0 {
				m.Message = options[at].contradicts(value)
			} else if m.Undocumented = !strings.HasPrefix(key.Value, "_"); m.Undocumented {
				m.Message = key.Value + " is not an option of the argument spec"
			}
			if m.Message != "" {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// contradicts says how a default contradicts the option; empty if it does not.
func (o option) contradicts(value *yaml.Node) string {
	if typeOf(value) == "raw" || value.Tag == "!!null" { // an expression, or nothing
		return ""
	}
	if why := o.refuses(value); why != "" {
		return fmt.Sprintf("the default of %s %s", o.Name, why)
	}
	if o.Required {
		return fmt.Sprintf("%s is required, and has a default: it is never missing", o.Name)
	}
	if o.Default != nil && o.Default.Tag != "!!null" && typeOf(o.Default) != "raw" && !same(o.Default, value) {
		return fmt.Sprintf("the default of %s is not the one that the argument spec names, %s", o.Name, short(o.Default))
	}
	return ""
}

// refuses says why Ansible would refuse a default for the option; empty if it may accept it.
func (o option) refuses(value *yaml.Node) string {
	is := typeOf(value)
	switch {
	case is == "raw" || value.Tag == "!!null": // an expression, or nothing
		return ""
	case !o.takes(is, value.Value):
		return fmt.Sprintf("is of type %s, and the option is of type %s", is, o.Type)
	case o.Type != "list" && len(o.Choices) > 0 && value.Kind == yaml.ScalarNode &&
		!slices.ContainsFunc(o.Choices, func(c *yaml.Node) bool { return c.Value == value.Value }):
		return fmt.Sprintf("is %s, which is none of the choices", short(value))
	}
	return ""
}

// takes tells whether Ansible converts a value of type is to the option's type. See
// AnsibleModule's check_type functions.
func (o option) takes(is, text string) bool {
	var err error
	switch o.Type {
	case "int":
		_, err = strconv.ParseInt(text, 0, 64)
		return is == "int" || is == "str" && err == nil
	case "float":
		_, err = strconv.ParseFloat(text, 64)
		return is == "float" || is == "int" || is == "str" && err == nil
	case "bool":
		return is == "bool" || slices.Contains([]string{"yes", "no", "y", "n", "on", "off", "true", "false", "t", "f", "1", "0"}, strings.ToLower(text))
	case "dict":
		return is == "dict" || is == "str"
	case "str", "path":
		return is != "list" && is != "dict"
	}
	return true // one value becomes a list
}

// same tells whether two nodes have the same value, in whatever style.
func same(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) || a.Kind == yaml.ScalarNode && a.Value != b.Value {
		return false
	}
	for i := range a.Content {
		if !same(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// short returns a value in one line.
func short(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode {
		return node.Value
	}
	return fmt.Sprintf("in line %d", node.Line)
}
