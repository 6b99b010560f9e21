package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// ErrNoDefaults is wrapped by the error of [ArgumentSpec] about a role without defaults.
var ErrNoDefaults = errors.New("there are no variables in defaults/main.yml")

// ArgumentSpec returns the argument spec of a role, made from its defaults: types come
// from the values, descriptions from the comments above them. role is the
// directory of the role, relative to dir. The error wraps [os.ErrExist] if the
// role already has an argument spec.
func ArgumentSpec(dir, role string) (File, error) {
	read := reader(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, role, name)) })
	if there, err := read.options(role, FromArgspec); err == nil {
		return File{}, fmt.Errorf("%s: %w: it has an argument spec with %d options; edit it, or remove it", role, os.ErrExist, len(there))
	}
	options, err := read.options(role, FromDefaults)
	if err != nil {
		return File{}, err
	}
	if len(options) == 0 {
		return File{}, fmt.Errorf("%s: %w", role, ErrNoDefaults)
	}
	specs := mapping()
	for _, o := range options {
		spec := mapping("type", scalar(o.Type))
		if elements := elementsOf(o.Default); elements != "" {
			set(spec, "elements", scalar(elements))
		}
		if o.Type != "raw" && o.Default.Kind == yaml.ScalarNode {
			set(spec, "default", &yaml.Node{Kind: yaml.ScalarNode, Tag: o.Default.Tag, Value: o.Default.Value, Style: o.Default.Style})
		}
		set(spec, "description", scalar(cmp.Or(o.Description, "The variable "+o.Name+".")))
		set(specs, o.Name, spec)
	}
	root := mapping("argument_specs", mapping("main", mapping(
		"short_description", scalar("The variables of the role "+path.Base(role)), "options", specs)))
	var text strings.Builder
	text.WriteString("---\n# Made of defaults/main.yml: look at the types, and say which options are required.\n")
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := errors.Join(out.Encode(root), out.Close()); err != nil {
		return File{}, fmt.Errorf("encode the argument spec: %w", err)
	}
	return File{Path: path.Join(filepath.ToSlash(role), "meta/argument_specs.yml"), Text: text.String()}, nil
}

// elementsOf returns the type of all elements of a list; empty if they do not
// have the same type.
func elementsOf(list *yaml.Node) string {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return ""
	}
	first := typeOf(list.Content[0])
	if first == "raw" || slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return typeOf(n) != first }) {
		return ""
	}
	return first
}

// comment returns the text of a comment in one line.
func comment(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		words = append(words, strings.Fields(strings.TrimLeft(strings.TrimSpace(line), "#"))...)
	}
	return strings.Join(words, " ")
}
