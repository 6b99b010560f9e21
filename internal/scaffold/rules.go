package scaffold

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// validations is the key of the rules of a schema. ofSpec is the comment on each rule that was
// made from an argument spec: rules without it are people's own.
const (
	validations = "x-kubernetes-validations"
	ofSpec      = "# Of the argument spec."
	// mostLists is how many lists of 100 elements each can be nested so that any rule inside is still cheap enough for the
	// API server.
	mostLists = 2
)

// ruling makes the CEL rules of one dict.
type ruling struct {
	*schema
	of option
	// fields are the field names by option name, properties the fields' schemas.
	fields     map[string]string
	properties *yaml.Node
	path       string
	all        *yaml.Node
}

// rules returns the rules of an argument spec about several options together. Ansible itself
// only enforces them in nested options. A rule about an option that CEL cannot see is
// left to Ansible, and so are all rules inside more than mostLists lists, which are too expensive for the API server.
func (s *schema) rules(o option, fields map[string]string, properties *yaml.Node, path string) *yaml.Node {
	if strings.Count(path, "[]") > mostLists {
		if len(o.MutuallyExclusive)+len(o.RequiredTogether)+len(o.RequiredOneOf)+len(o.RequiredBy)+len(o.RequiredIf) > 0 {
			s.note("%s: its rules are left to Ansible, since it is in more than %d lists", strings.TrimSuffix(path, "."), mostLists)
		}
		return sequence()
	}
	r := &ruling{schema: s, of: o, fields: fields, properties: properties, path: path, all: sequence()}
	for _, names := range o.MutuallyExclusive {
		if terms, ok := r.has("mutually_exclusive", names); ok {
			r.add("["+strings.Join(terms, ", ")+"].filter(set, set).size() <= 1", "at most one of "+r.list(names))
		}
	}
	for _, names := range o.RequiredTogether {
		terms, _ := r.has("required_together", names)
		for i := 1; i < len(terms); i++ {
			r.add(terms[0]+" == "+terms[i], fields[names[0]]+" and "+fields[names[i]]+" go together")
		}
	}
	for _, names := range o.RequiredOneOf {
		if terms, ok := r.has("required_one_of", names); ok {
			r.add(strings.Join(terms, " || "), "one of "+r.list(names)+" is required")
		}
	}
	for _, name := range sortedKeys(o.RequiredBy) {
		if terms, ok := r.has("required_by", append([]string{name}, o.RequiredBy[name]...)); ok && len(terms) > 1 {
			r.add("!"+terms[0]+" || "+strings.Join(terms[1:], " && "), fields[name]+" requires "+r.list(o.RequiredBy[name]))
		}
	}
	for _, condition := range o.RequiredIf {
		r.requiredIf(condition)
	}
	return r.all
}

func (r *ruling) requiredIf(condition requiredIf) {
	terms, ok := r.has("required_if", append([]string{condition.key}, condition.names...))
	if !ok || len(terms) < 2 {
		return
	}
	value, ok := r.literal(condition.key, condition.value)
	if !ok {
		r.leave("required_if", condition.key, "cannot be compared with "+condition.value.Value)
		return
	}
	and, with := " && ", ", "
	if condition.any {
		and, with = " || ", " or "
	}
	var known []string
	for _, n := range condition.names {
		known = append(known, r.fields[n])
	}
	r.add(fmt.Sprintf("!%s || %s != %s || (%s)", terms[0], r.self(condition.key), value, strings.Join(terms[1:], and)),
		fmt.Sprintf("%s is required where %s is %s", strings.Join(known, with), r.fields[condition.key], condition.value.Value))
}

func (r *ruling) add(rule, message string) {
	one := mapping("rule", scalar(rule), "message", scalar(message))
	one.HeadComment = ofSpec
	r.all.Content = append(r.all.Content, one)
}

func (r *ruling) leave(rule, name, why string) {
	r.note("%s%s: %s is left to Ansible: the option %s", r.path, name, rule, why)
}

func (r *ruling) list(names []string) string {
	var known []string
	for _, n := range names {
		known = append(known, r.fields[n])
	}
	return strings.Join(known, ", ")
}

// has returns terms that tell whether the options have a value. It returns false, with
// a note, if CEL cannot tell that for one of them.
func (r *ruling) has(rule string, names []string) ([]string, bool) {
	var terms []string
	for _, n := range names {
		field, ok := r.fields[n]
		p := at(r.properties, field)
		switch {
		case !ok || p == nil:
			r.leave(rule, n, "is not a field")
			return nil, false
		case at(p, "type") == nil && at(p, "x-kubernetes-int-or-string") == nil:
			r.leave(rule, n, "may be anything")
			return nil, false
		case !identifier.MatchString(field) || strings.Contains(field, "__"):
			r.leave(rule, n, "has no name that a rule can have")
			return nil, false
		}
		terms = append(terms, "has("+r.self(n)+")")
	}
	return terms, len(terms) > 0
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// self returns the expression for a field. CEL's reserved words are escaped, see
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-expression
func (r *ruling) self(name string) string {
	field := r.fields[name]
	if slices.Contains([]string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
		"package", "namespace", "return", "var", "void", "while",
	}, field) {
		field = "__" + field + "__"
	}
	return "self." + field
}

// literal returns a value of an option's type in CEL; false if it is not one.
func (r *ruling) literal(name string, value *yaml.Node) (string, bool) {
	i := slices.IndexFunc(r.of.Options, func(o option) bool { return o.Name == name })
	if i < 0 || value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		return "", false
	}
	v := valueOf(r.of.Options[i].Type, value)
	if v == nil {
		return "", false
	}
	if v.Tag == "!!str" {
		return strconv.Quote(v.Value), true
	}
	return v.Value, true
}

// valueOf returns a scalar as a value of an option's type, or nil if it is not one: Ansible
// accepts "3" for an integer and yes for a boolean; the API server does not.
func valueOf(kind string, value *yaml.Node) *yaml.Node {
	if value.Kind != yaml.ScalarNode || value.Tag == "!!null" || strings.Contains(value.Value, "{{") {
		return nil
	}
	switch kind {
	case "int":
		if n, err := strconv.ParseInt(value.Value, 0, 64); err == nil {
			return literal("!!int", strconv.FormatInt(n, 10))
		}
		return nil
	case "float":
		if f, err := strconv.ParseFloat(value.Value, 64); err == nil {
			text := strconv.FormatFloat(f, 'f', -1, 64)
			if !strings.Contains(text, ".") {
				text += ".0"
			}
			return literal("!!float", text)
		}
		return nil
	case "bool":
		switch strings.ToLower(value.Value) {
		case "yes", "on", "true", "1":
			return literal("!!bool", "true")
		case "no", "off", "false", "0":
			return literal("!!bool", "false")
		}
		return nil
	case "str", "path":
		return scalar(value.Value)
	case "list", "dict":
		return nil
	}
	return literal(value.Tag, value.Value)
}
