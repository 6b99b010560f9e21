package scaffold

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// sampleText returns an object of the kind with the defaults of the options, and
// valid values where one is required.
func (k Kind) sampleText(s *schema, options []option) (string, error) {
	spec := mapping()
	for _, o := range options {
		field, ok := s.field(o)
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
			set(spec, field, s.example(o))
		}
	}
	return encode(mapping(
		"apiVersion", scalar(k.FullGroup()+"/"+k.Version), "kind", scalar(k.Kind),
		"metadata", mapping("name", scalar(k.Singular()+"-sample")), "spec", spec,
	))
}

// example returns a value that an option allows.
func (s *schema) example(o option) *yaml.Node {
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
		return s.exampleDict(o)
	}
	return scalar("example")
}

// exampleDict returns a dict with the options that are required, also by its rules.
func (s *schema) exampleDict(o option) *yaml.Node {
	has := map[string]bool{}
	for _, inner := range o.Options {
		has[inner.Name] = inner.Required
	}
	all := func(names []string) {
		for _, n := range names {
			has[n] = true
		}
	}
	some := func(names []string) bool { return slices.ContainsFunc(names, func(n string) bool { return has[n] }) }
	for range o.Options { // one may lead to another
		for _, group := range o.RequiredOneOf {
			if len(group) > 0 && !some(group) {
				all(group[:1])
			}
		}
		for _, group := range o.RequiredTogether {
			if some(group) {
				all(group)
			}
		}
		for name, needs := range o.RequiredBy {
			if has[name] {
				all(needs)
			}
		}
		for _, r := range o.RequiredIf {
			if has[r.key] && s.isExample(o, r) && (!r.any || !some(r.names)) {
				all(r.names)
			}
		}
	}
	dict := mapping()
	for _, inner := range o.Options {
		if field, ok := s.field(inner); ok && has[inner.Name] {
			set(dict, field, s.example(inner))
		}
	}
	return dict
}

// isExample tells whether the example of an option is the value that a rule is about.
func (s *schema) isExample(o option, r requiredIf) bool {
	i := slices.IndexFunc(o.Options, func(inner option) bool { return inner.Name == r.key })
	if i < 0 {
		return false
	}
	value := valueOf(o.Options[i].Type, r.value)
	return value != nil && value.Value == s.example(o.Options[i]).Value
}
