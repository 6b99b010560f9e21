package extravars

import (
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"
)

// Source is another object whose keys become variables, such as a Secret. Its values are
// always marked [Unsafe], since they are never meant as templates.
type Source struct {
	// Name is the object's name in messages.
	Name string `json:"name"`
	// Prefix is put in front of each key.
	Prefix string            `json:"prefix,omitempty"`
	Data   map[string]string `json:"data"`
	// Secret is true if the values must not be shown.
	Secret bool `json:"secret,omitempty"`
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// sourceVars returns the variables of opts.From. If several have the same name, the last one counts.
func sourceVars(opts Options, notices *noticeList) map[string]any {
	vars := map[string]any{}
	c := newConverter(opts, notices)
	for _, source := range opts.From {
		c.path = []string{source.Name}
		for _, key := range slices.Sorted(maps.Keys(source.Data)) {
			name, value := source.Prefix+key, source.Data[key]
			_, taken := vars[name]
			switch {
			case !variableName.MatchString(name):
				notices.add(SourceKey, "the key %q of %s is not a variable, since %q is not a valid variable name", key, source.Name, name)
				continue
			case Reserved(name):
				notices.add(ReservedVariable, "the key %q of %s is not a variable, since Ansible reserves the name %q", key, source.Name, name)
				continue
			case !utf8.ValidString(value):
				notices.add(SourceKey, "the key %q of %s is not a variable, since its value is not UTF-8 text", key, source.Name)
				continue
			case taken:
				notices.add(KeyCollision, "the variable %q of an earlier varsFrom is replaced by that of %s", name, source.Name)
			}
			vars[name] = Unsafe(c.text(value))
		}
	}
	return vars
}

// lay copies vars into over, and adds a notice for each variable of sources that this replaces. where says where vars
// come from.
func lay(over, vars map[string]any, sources map[string]any, where string, notices *noticeList) {
	for _, name := range sortedKeys(vars) {
		if _, replaced := sources[name]; replaced {
			notices.add(KeyCollision, "the variable %q of varsFrom is replaced by that of %s", name, where)
		}
		over[name] = vars[name]
	}
}
