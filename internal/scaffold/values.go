package scaffold

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// Anything deeper than this, or after so many fields, is not described further: references and aliases may repeat without
// end.
const (
	deepest = 20
	most    = 10_000
)

// valuesReader makes a schema of the values of a chart.
type valuesReader struct {
	root   *yaml.Node // the root of values.schema.json
	fields int        // how many it has read
}

// ofValues returns the schema of a spec whose fields are the values of a chart: made from values.schema.json, or else from
// the types in values.yaml. It allows what values.schema.json does not refuse, and sets no defaults, so that the defaults
// of a new version of the chart apply to existing objects.
func ofValues(values, jsonSchema *yaml.Node) *yaml.Node {
	r := valuesReader{root: jsonSchema}
	node := r.convert(jsonSchema, values, deepest)
	if text(at(node, "type")) != "object" {
		return r.guess(values, "", deepest)
	}
	remove(node, "description")
	return node
}

func yes() *yaml.Node { return literal("!!bool", "true") }

func freeObject() *yaml.Node {
	return mapping("type", scalar("object"), "x-kubernetes-preserve-unknown-fields", yes())
}

// guess returns the schema of values that may replace a value. An empty value says nothing about others.
func (r *valuesReader) guess(value *yaml.Node, path string, depth int) *yaml.Node {
	if value != nil && value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	r.fields++
	switch {
	case path == "" && (value == nil || value.Kind != yaml.MappingNode):
		return freeObject()
	case path != "" && isEmpty(value):
		return anything()
	case value.Kind == yaml.SequenceNode:
		items := anything()
		if kind := elementsOf(value); slices.Contains([]string{"str", "int", "float", "bool"}, kind) {
			items = r.guess(value.Content[0], path+"[]", depth)
		}
		return mapping("type", scalar("array"), "items", items, "x-kubernetes-list-type", scalar("atomic"))
	case value.Kind == yaml.MappingNode:
		node := freeObject()
		if len(value.Content) == 0 || depth == 0 || r.fields > most {
			return node
		}
		properties := mapping()
		for key, inner := range content.Pairs(value) {
			if key.Tag == "!!merge" {
				continue
			}
			field := strings.TrimPrefix(path+"."+key.Value, ".")
			set(properties, key.Value, described(r.guess(inner, field, depth-1), valueComment(key.HeadComment, field), inner))
		}
		set(node, "properties", properties)
		return node
	}
	switch typeOf(value) {
	case "bool":
		return mapping("type", scalar("boolean"))
	case "int":
		return mapping("type", scalar("integer"), "format", scalar("int64"))
	case "float":
		return mapping("type", scalar("number"))
	}
	return mapping("type", scalar("string"))
}

// isEmpty tells whether a value says nothing about other values that may replace it.
func isEmpty(value *yaml.Node) bool {
	return value == nil || value.Tag == "!!null" || value.Value == "" && len(value.Content) == 0
}

// described puts the description first, with the default if that is short.
func described(node *yaml.Node, about string, value *yaml.Node) *yaml.Node {
	const long = 80
	if value != nil && value.Kind == yaml.ScalarNode && value.Tag != "!!null" && value.Value != "" && len(value.Value) <= long && !strings.Contains(value.Value, "\n") {
		about = strings.TrimSpace(about + " Default: " + value.Value + ", from the chart.")
	}
	if about != "" {
		node.Content = append([]*yaml.Node{scalar("description"), scalar(about)}, node.Content...)
	}
	return node
}

// param matches the comment lines from which many charts generate their README.
var param = regexp.MustCompile(`^#*\s*@(?:param\s+(\S+)(?:\s+\[[^\]]*\])?\s+(.*)|\w+.*)$`)

// valueComment returns what a comment says about the field; empty if it is too long to be about it.
func valueComment(text, field string) string {
	if at := strings.LastIndex(text, "\n\n"); at >= 0 && !strings.Contains(text, "@param") {
		text = text[at+2:] // what is above an empty line is about something else
	}
	var words []string
	for line := range strings.Lines(text) {
		m := param.FindStringSubmatch(strings.TrimSpace(line))
		switch {
		case m == nil:
			words = append(words, comment(line))
		case m[1] == field:
			return strings.TrimSpace(m[2])
		}
	}
	about := strings.TrimSpace(strings.TrimPrefix(strings.Join(strings.Fields(strings.Join(words, " ")), " "), "-- "))
	const long = 300
	if len(about) > long {
		return ""
	}
	return about
}

// copied returns the keys of a JSON schema of a type that mean the same in a CRD.
func copied(kind string) []string {
	switch kind {
	case "string":
		return []string{"enum", "minLength", "maxLength", "pattern"}
	case "integer", "number":
		return []string{"enum", "minimum", "maximum", "multipleOf"}
	case "boolean":
		return []string{"enum"}
	case "array":
		return []string{"minItems", "maxItems"}
	case "object":
		return []string{"minProperties", "maxProperties"}
	}
	return nil
}

// convert returns the structural schema of a JSON schema. What a CRD cannot express is left to Helm, which
// checks the values again: anyOf, if, patternProperties and the like. value is the default in values.yaml.
func (r *valuesReader) convert(from, value *yaml.Node, depth int) *yaml.Node {
	for ref := at(from, "$ref"); ref != nil; ref = at(from, "$ref") {
		if from = r.find(ref.Value); from == nil || depth == 0 {
			return anything()
		}
		depth--
	}
	r.fields++
	if depth <= 0 || r.fields > most {
		return anything()
	}
	kind, nullable := typesOf(at(from, "type"))
	if kind == "" && at(from, "properties") != nil {
		kind = "object"
	}
	var node *yaml.Node
	switch {
	case kind == "":
		node = anything()
	case kind == "integer or string":
		node = mapping("x-kubernetes-int-or-string", yes())
	default:
		node = mapping("type", scalar(kind))
		for _, key := range copied(kind) {
			if n := at(from, key); n != nil && means(key, n, kind) {
				set(node, key, n)
			}
		}
	}
	switch kind {
	case "object":
		r.object(node, from, value, depth)
	case "array":
		items := anything()
		if n := at(from, "items"); n != nil && n.Kind == yaml.MappingNode && len(n.Content) > 0 {
			items = r.convert(n, nil, depth-1)
		}
		set(node, "items", items)
		set(node, "x-kubernetes-list-type", scalar("atomic"))
	}
	if nullable {
		set(node, "nullable", yes())
	}
	about := text(at(from, "description"))
	if about == "" {
		about = text(at(from, "title"))
	}
	return described(node, strings.Join(strings.Fields(about), " "), value)
}

// object adds the fields of an object. A field is required only if the chart has no value for it.
func (r *valuesReader) object(node, from, value *yaml.Node, depth int) {
	properties, required := mapping(), sequence()
	for name, p := range content.Pairs(at(from, "properties")) {
		set(properties, name.Value, r.convert(p, at(value, name.Value), depth-1))
	}
	for _, name := range values(at(from, "required")) {
		if at(value, name) == nil && at(properties, name) != nil {
			required.Content = append(required.Content, scalar(name))
		}
	}
	more := at(from, "additionalProperties")
	switch {
	case len(properties.Content) == 0 && more != nil && more.Kind == yaml.MappingNode && len(more.Content) > 0:
		set(node, "additionalProperties", r.convert(more, nil, depth-1))
		return
	case more == nil, more.Value != "false", at(from, "patternProperties") != nil:
		set(node, "x-kubernetes-preserve-unknown-fields", yes())
	}
	if len(properties.Content) > 0 {
		set(node, "properties", properties)
	}
	if len(required.Content) > 0 {
		set(node, "required", required)
	}
}

// find returns the target of a reference within the file; nil for other references.
func (r *valuesReader) find(ref string) *yaml.Node {
	if ref == "#" {
		return r.root
	}
	way, here := strings.CutPrefix(ref, "#/")
	if !here {
		return nil
	}
	node := r.root
	for name := range strings.SplitSeq(way, "/") {
		node = at(node, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
	}
	return node
}

// typesOf returns the type; empty for any type, and for several that a CRD cannot express.
func typesOf(node *yaml.Node) (kind string, nullable bool) {
	if node == nil {
		return "", false
	}
	all := []string{node.Value}
	if node.Kind == yaml.SequenceNode {
		all = values(node)
	}
	nullable = slices.Contains(all, "null")
	all = slices.DeleteFunc(slices.Sorted(slices.Values(all)), func(s string) bool { return s == "null" })
	switch {
	case slices.Equal(all, []string{"integer", "string"}):
		return "integer or string", nullable
	case slices.Equal(all, []string{"integer", "number"}):
		return "number", nullable
	case len(all) != 1 || !slices.Contains([]string{"object", "array", "string", "integer", "number", "boolean"}, all[0]):
		return "", false
	}
	return all[0], nullable
}

// means tells whether the API server accepts a limit.
func means(key string, n *yaml.Node, kind string) bool {
	switch key {
	case "pattern":
		_, err := regexp.Compile(n.Value)
		return err == nil
	case "enum":
		tags := map[string][]string{"string": {"!!str"}, "integer": {"!!int"}, "number": {"!!int", "!!float"}, "boolean": {"!!bool"}}
		return n.Kind == yaml.SequenceNode && len(n.Content) > 0 && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool {
			return !slices.Contains(tags[kind], c.Tag)
		})
	}
	return n.Tag == "!!int" || n.Tag == "!!float"
}
