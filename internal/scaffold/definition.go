package scaffold

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// definitionText returns the text of the kind's CRD with the schema of its spec.
// old is the text that there is, or empty: what the options say nothing of is kept in
// it, such as limits, columns, other versions and comments. breaks lists what
// objects that are stored may violate, and kept the fields of which no option is
// left.
func (k Kind) definitionText(old string, s *schema) (text string, breaks, kept []string, err error) {
	root, err := k.skeleton(old)
	if err != nil {
		return "", nil, nil, err
	}
	version, err := k.version(root)
	if err != nil {
		return "", nil, nil, err
	}
	openAPI := at(at(version, "schema"), "openAPIV3Schema")
	if openAPI == nil || openAPI.Kind != yaml.MappingNode {
		return "", nil, nil, fmt.Errorf("%s: version %s has no schema.openAPIV3Schema", k.Definition(), k.Version)
	}
	properties := at(openAPI, "properties")
	if properties == nil {
		properties = mapping()
		set(openAPI, "properties", properties)
	}
	m := merging{}
	if spec := at(properties, "spec"); spec != nil {
		m.merge(spec, s.spec, "spec")
	} else {
		// Before the status, as people expect it.
		properties.Content = slices.Insert(properties.Content, indexOf(properties, "status"), scalar("spec"), s.spec)
	}
	text, err = encode(root)
	return text, m.breaks, m.kept, err
}

// skeleton is the CRD that there is, or a new one.
func (k Kind) skeleton(old string) (*yaml.Node, error) {
	if old == "" {
		text, err := execute("files/definition.yaml", k)
		if err != nil {
			return nil, err
		}
		old = text
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(old), &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Definition(), err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: it is empty: remove it, so that it is written", k.Definition())
	}
	return doc.Content[0], nil
}

func (k Kind) version(root *yaml.Node) (*yaml.Node, error) {
	versions := at(at(root, "spec"), "versions")
	if versions == nil || versions.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s: spec.versions: a list expected", k.Definition())
	}
	for _, v := range versions.Content {
		if name := at(v, "name"); name != nil && name.Value == k.Version {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%s: it has no version %s: add it to spec.versions", k.Definition(), k.Version)
}

// merging brings a schema up to date.
type merging struct{ breaks, kept []string }

// owned are the keys of a schema that the options decide alone.
func owned() []string {
	return []string{"type", "format", "enum", "required", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"}
}

// merge changes old to what the options say, and keeps what they say nothing of.
func (m *merging) merge(old, next *yaml.Node, path string) {
	m.compare(old, next, path)
	// A comment and a rule of people's own are kept with the rest.
	for _, key := range owned() {
		if at(next, key) == nil {
			remove(old, key)
		}
	}
	for i := 0; i+1 < len(next.Content); i += 2 {
		key, value := next.Content[i].Value, next.Content[i+1]
		before := at(old, key)
		switch {
		case key == "properties" && before != nil:
			m.mergeProperties(before, value, path)
		case key == "items" && before != nil:
			m.merge(before, value, path+"[]")
		default:
			set(old, key, value)
		}
	}
}

func (m *merging) mergeProperties(old, next *yaml.Node, path string) {
	for i := 0; i+1 < len(old.Content); i += 2 {
		if name := old.Content[i].Value; at(next, name) == nil {
			m.kept = append(m.kept, path+"."+name)
		}
	}
	for i := 0; i+1 < len(next.Content); i += 2 {
		name, value := next.Content[i].Value, next.Content[i+1]
		if before := at(old, name); before != nil {
			m.merge(before, value, path+"."+name)
		} else {
			set(old, name, value)
		}
	}
}

// compare notes what objects may violate that were valid.
func (m *merging) compare(old, next *yaml.Node, path string) {
	was, is := text(at(old, "type")), text(at(next, "type"))
	if was != is && is != "" {
		m.breaks = append(m.breaks, fmt.Sprintf("%s: it was of type %s, and is of type %s", path, orAny(was), is))
	}
	const keep = "x-kubernetes-preserve-unknown-fields"
	if text(at(old, keep)) == "true" && text(at(next, keep)) != "true" {
		m.breaks = append(m.breaks, path+": it kept all fields, and only those of the schema stay in objects")
	}
	for _, name := range values(at(next, "required")) {
		if !slices.Contains(values(at(old, "required")), name) {
			m.breaks = append(m.breaks, fmt.Sprintf("%s.%s: it is required, and was not", path, name))
		}
	}
	if enum := at(next, "enum"); enum != nil {
		if at(old, "enum") == nil {
			m.breaks = append(m.breaks, fmt.Sprintf("%s: it has choices, and had none: %s", path, strings.Join(values(enum), ", ")))
		}
		for _, v := range values(at(old, "enum")) {
			if !slices.Contains(values(enum), v) {
				m.breaks = append(m.breaks, fmt.Sprintf("%s: %s is no choice any more", path, v))
			}
		}
	}
}

func orAny(kind string) string {
	if kind == "" {
		return "any"
	}
	return kind
}

func text(node *yaml.Node) string {
	if node == nil {
		return ""
	}
	return node.Value
}

func values(node *yaml.Node) []string {
	var all []string
	if node != nil {
		for _, n := range node.Content {
			all = append(all, n.Value)
		}
	}
	return all
}

// indexOf is where a key is in the content of a mapping, or its end.
func indexOf(node *yaml.Node, key string) int {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return len(node.Content)
}

func remove(node *yaml.Node, key string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = slices.Delete(node.Content, i, i+2)
			return
		}
	}
}

// sampleText is an object of the kind with the defaults of the options, and
// values that are valid where one is required.
func (k Kind) sampleText(s *schema, options []option) (string, error) {
	spec := mapping()
	for _, o := range options {
		field, ok := s.field(o.Name)
		if !ok || at(at(s.spec, "properties"), field) == nil {
			continue
		}
		if o.Default != nil && o.Default.Value != "" {
			if value := valueOf(o.Type, o.Default); value != nil {
				set(spec, field, value)
				continue
			}
		}
		if o.Required {
			set(spec, field, example(o, s))
		}
	}
	return encode(mapping(
		"apiVersion", scalar(k.FullGroup()+"/"+k.Version), "kind", scalar(k.Kind),
		"metadata", mapping("name", scalar(k.Singular()+"-sample")), "spec", spec,
	))
}

// example is a value that an option allows.
func example(o option, s *schema) *yaml.Node {
	for _, c := range o.Choices {
		if value := valueOf(o.Type, c); value != nil {
			return value
		}
	}
	switch o.Type {
	case "bool":
		return literal("!!bool", "true")
	case "int":
		return literal("!!int", "1")
	case "float":
		return literal("!!float", "1.5")
	case "bytes", "bits":
		return scalar("1M")
	case "list":
		return sequence()
	case "dict":
		inner := mapping()
		for _, o := range o.Options {
			if field, ok := s.field(o.Name); ok && o.Required {
				set(inner, field, example(o, s))
			}
		}
		return inner
	}
	return scalar("example")
}
