package scaffold

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// markup matches the markup of Ansible's documentation: O(name), C(code) and so on.
var markup = regexp.MustCompile(`\b[A-Z]\(([^)]*)\)`)

// schema is the schema of the options, and what people should know about it.
type schema struct {
	// spec is the schema of the object's spec.
	spec *yaml.Node
	// about describes the kind; it may be empty.
	about string
	// notes say what the schema cannot express, and what people should change.
	notes []string

	variable Variable
}

// Variable returns the variable that a field of a spec becomes.
type Variable func(field string) string

// newSchema returns the schema of a spec with the options, leaving out those named in fixed,
// which watches.yaml sets. Fields get the names that variable turns into the options' names; the
// options' own names if variable is nil.
func newSchema(options []option, fixed map[string]any, variable Variable) *schema {
	s := &schema{variable: variable}
	var free []option
	for _, o := range options {
		if _, set := fixed[o.Name]; set {
			s.note("%s is set in watches.yaml, and is not a field", o.Name)
			continue
		}
		free = append(free, o)
	}
	s.spec = s.object(option{Options: free}, "", false)
	return s
}

func (s *schema) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// object returns the schema of a dict with options.
func (s *schema) object(o option, path string, listed bool) *yaml.Node {
	properties, required := mapping(), sequence()
	fields := map[string]string{}
	for _, inner := range o.Options {
		field, ok := s.field(inner)
		if !ok {
			s.note("%s%s: no field of an object becomes this variable; give it another name", path, inner.Name)
			continue
		}
		fields[inner.Name] = field
		set(properties, field, s.property(inner, path+inner.Name, listed))
		if inner.Required {
			required.Content = append(required.Content, scalar(field))
		}
		if len(inner.Aliases) > 0 {
			s.note("%s%s: an alias is not a field of an object, write %s in place of %s", path, inner.Name, field, strings.Join(inner.Aliases, ", "))
		}
	}
	node := mapping("type", scalar("object"), "properties", properties)
	if len(required.Content) > 0 {
		set(node, "required", required)
	}
	if rules := s.rules(o, fields, properties, path); len(rules.Content) > 0 {
		set(node, validations, rules)
	}
	return node
}

// field returns the name of the field that becomes an option: the one in an existing CRD, or
// else the one that variable implies.
func (s *schema) field(o option) (string, bool) {
	if o.field != "" {
		return o.field, true
	}
	return s.variable.field(o.Name)
}

// takeFields makes options keep the field names that a schema has for them.
func (v Variable) takeFields(options []option, old *yaml.Node) {
	if v == nil { // each option has only one
		return
	}
	properties := at(old, "properties")
	for i := range options {
		o := &options[i]
		field, ok := v.field(o.Name)
		if !ok {
			continue
		}
		for name := range content.Pairs(properties) {
			if at(properties, field) == nil && v(name.Value) == o.Name {
				o.field, field = name.Value, name.Value
			}
		}
		inner := at(properties, field)
		if items := at(inner, "items"); items != nil {
			inner = items
		}
		v.takeFields(o.Options, inner)
	}
}

// field returns the name of the field that becomes a variable: in camelCase or unchanged. It
// returns false if there is none.
func (v Variable) field(name string) (string, bool) {
	if v == nil {
		return name, true
	}
	words := strings.Split(name, "_")
	camel := words[0]
	for _, w := range words[1:] {
		if w != "" {
			camel += strings.ToUpper(w[:1]) + w[1:]
		}
	}
	for _, field := range []string{camel, name} {
		if v(field) == name {
			return field, true
		}
	}
	return "", false
}

// property returns the schema of one option.
func (s *schema) property(o option, path string, listed bool) *yaml.Node {
	node := s.typed(o, path, listed)
	text := o.Description
	if o.Default != nil && o.Default.Kind == yaml.ScalarNode && o.Default.Value != "" && !strings.Contains(o.Default.Value, "{{") {
		text = strings.TrimSpace(text + " Default: " + o.Default.Value + ", from the role.")
	}
	if o.NoLog {
		s.note("%s is a secret (no_log): a field that names a Secret is safer than the value itself", path)
		if at(node, "type") != nil && at(node, "type").Value == "string" {
			set(node, "format", scalar("password"))
		}
	}
	if text != "" {
		node.Content = append([]*yaml.Node{scalar("description"), scalar(text)}, node.Content...)
	}
	return node
}

// anything returns a schema that allows any value.
func anything() *yaml.Node {
	return mapping("x-kubernetes-preserve-unknown-fields", literal("!!bool", "true"))
}

const size = `^[0-9]+(\.[0-9]+)?\s*[KMGTPEZYkmgtpezy]?([Bb](it)?)?$`

func (s *schema) typed(o option, path string, listed bool) *yaml.Node {
	var node *yaml.Node
	switch o.Type {
	case "bool":
		node = mapping("type", scalar("boolean"))
	case "int":
		node = mapping("type", scalar("integer"), "format", scalar("int64"))
	case "float":
		node = mapping("type", scalar("number"))
	case "bytes", "bits":
		return mapping("x-kubernetes-int-or-string", literal("!!bool", "true"), "pattern", scalar(size))
	case "raw", "json", "jsonarg":
		return anything()
	case "list":
		return s.list(o, path)
	case "dict":
		if len(o.Options) > 0 {
			return s.object(o, path+".", listed)
		}
		return mapping("type", scalar("object"), "x-kubernetes-preserve-unknown-fields", literal("!!bool", "true"))
	default:
		node = mapping("type", scalar("string"))
		if listed {
			set(node, "maxLength", literal("!!int", "1024"))
		}
	}
	if choices := s.choices(o, path); choices != nil {
		set(node, "enum", choices)
	}
	return node
}

// list returns the schema of a list. If rules apply to its elements, or to what they contain,
// its length is limited, so that the API server can compute the cost of the rules.
func (s *schema) list(o option, path string) *yaml.Node {
	element := option{Name: o.Name, Type: o.Elements, Options: o.Options, Choices: o.Choices,
		MutuallyExclusive: o.MutuallyExclusive, RequiredTogether: o.RequiredTogether, RequiredOneOf: o.RequiredOneOf,
		RequiredIf: o.RequiredIf, RequiredBy: o.RequiredBy}
	if o.Elements == "" {
		element.Type = "raw"
		if len(o.Options) > 0 {
			element.Type = "dict"
		}
		if element.Type == "raw" {
			s.note("%s is a list of anything: say what its elements are (elements)", path)
		}
	}
	items := s.typed(element, path+"[]", true)
	node := mapping("type", scalar("array"), "items", items, "x-kubernetes-list-type", scalar("atomic"))
	if hasRules(items) {
		set(node, "maxItems", literal("!!int", "100"))
	}
	return node
}

// hasRules tells whether a schema has rules at any depth.
func hasRules(node *yaml.Node) bool {
	return at(node, validations) != nil || slices.ContainsFunc(node.Content, hasRules)
}

// choices returns the values of an enum, quoted if the type is string.
func (s *schema) choices(o option, path string) *yaml.Node {
	if len(o.Choices) == 0 {
		return nil
	}
	enum := sequence()
	for _, c := range o.Choices {
		switch {
		case c.Tag == "!!null":
		case o.Type == "int", o.Type == "float", o.Type == "bool":
			value := valueOf(o.Type, c)
			if value == nil {
				s.note("%s: the choice %s is not a valid %s", path, c.Value, o.Type)
				return nil
			}
			enum.Content = append(enum.Content, value)
		default:
			if c.Tag != "!!str" {
				s.note("%s: the choice %s is not a string to YAML; quote it", path, c.Value)
			}
			enum.Content = append(enum.Content, scalar(c.Value))
		}
	}
	return enum
}
