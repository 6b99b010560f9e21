package scaffold

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/test/must"
)

// specOf returns the schema of a spec for the values and the JSON schema of a chart.
func specOf(t *testing.T, values, schema string) *yaml.Node {
	t.Helper()
	read := reader(func(name string) ([]byte, error) { return []byte(name), nil })
	return ofValues(must.Get(read.yaml("", values))(t), must.Get(read.yaml("", schema))(t))
}

// Values have the types of values.yaml, if it has them. The chart's schema adds to this. Where it says more than a CRD can
// say, values that Helm accepts are still accepted.
func TestOfValues(t *testing.T) {
	t.Parallel()
	const free = "x-kubernetes-preserve-unknown-fields: true"
	for _, tt := range []struct{ name, values, schema, want string }{
		{"none", "", "", "{type: object, " + free + "}"},
		{"scalars", "a: 1\nb: yes\nc: 0.5\nd: x\n", "", "{type: object, " + free + ", properties: {a: {description: 'Default: 1, from the chart.', type: integer, format: int64}, b: {description: 'Default: yes, from the chart.', type: boolean}, c: {description: 'Default: 0.5, from the chart.', type: number}, d: {description: 'Default: x, from the chart.', type: string}}}"},
		{"what may be anything", "a:\nb: ''\nc: {}\nd: []\n", "", "{type: object, " + free + ", properties: {a: {" + free + "}, b: {" + free + "}, c: {" + free + "}, d: {" + free + "}}}"},
		{"lists", "a: [x]\nb: [{c: 1}]\n", "", "{type: object, " + free + ", properties: {a: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}, b: {type: array, items: {" + free + "}, x-kubernetes-list-type: atomic}}}"},
		{"comments", "# About something else.\n\n# -- The number.\na:\n## @param b.c [string] The name\n## @section Others\nb:\n  c: ''\n", "", "{type: object, " + free + ", properties: {a: {description: The number., " + free + "}, b: {type: object, " + free + ", properties: {c: {" + free + "}}}}}"},
		{"what the chart has no value for is required", "a: 1\n", `{"type": "object", "additionalProperties": false, "required": ["a", "b"], "properties": {"a": {"type": "integer", "minimum": 1, "default": 3}, "b": {"type": "string", "minLength": 1, "format": "uri"}}}`,
			"{type: object, properties: {a: {description: 'Default: 1, from the chart.', type: integer, minimum: 1}, b: {type: string, minLength: 1}}, required: [b]}"},
		{"references and several types", "", `{"$defs": {"port": {"type": ["integer", "string"]}}, "properties": {"a": {"$ref": "#/$defs/port"}, "b": {"type": ["string", "null"], "enum": ["x"]}, "c": {"type": ["object", "string"]}, "d": {"$ref": "other.json"}, "e": {"anyOf": [{"type": "string"}]}, "f": {"type": "string", "pattern": "(?=x)"}}}`,
			"{type: object, " + free + ", properties: {a: {x-kubernetes-int-or-string: true}, b: {type: string, enum: ['x'], nullable: true}, c: {" + free + "}, d: {" + free + "}, e: {" + free + "}, f: {type: string}}}"},
		{"a map", "", `{"properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}`,
			"{type: object, " + free + ", properties: {a: {type: object, additionalProperties: {type: string}}}}"},
		{"references without end", "", `{"type": "object", "$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}`,
			"{type: object, " + free + ", properties: {a: {" + free + "}}}"},
	} {
		got := must.Get(encode(specOf(t, tt.values, tt.schema)))(t)
		if got, want := compact(t, strings.ReplaceAll(got, "\"", "'")), compact(t, tt.want); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, want)
		}
	}
}

// A schema that refers to itself, or values that grow with each level, come to an end.
func TestOfValues_IsBounded(t *testing.T) {
	t.Parallel()
	schema := `{"type": "object", "properties": {` + strings.TrimSuffix(strings.Repeat(`"X": {"$ref": "#"},`, 10), ",") + `}}`
	for i := range 10 {
		schema = strings.Replace(schema, `"X"`, `"`+string(rune('a'+i))+`"`, 1)
	}
	values := "a0: &a0 {x: 1}\n"
	for i := 1; i < 15; i++ {
		before := "*a" + string(rune('a'+i-2))
		if i == 1 {
			before = "*a0"
		}
		values += "a" + string(rune('a'+i-1)) + ": &a" + string(rune('a'+i-1)) + " {x: " + before + ", y: " + before + ", z: " + before + "}\n"
	}
	for _, node := range []*yaml.Node{specOf(t, "", schema), specOf(t, values, "")} {
		if n := count(node); n < most || n > 20*most {
			t.Errorf("the schema has %d nodes", n)
		}
	}
}

func count(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += count(c)
	}
	return all
}

// A new version of a chart that accepts fewer values breaks objects; one that accepts more does not.
func TestOfValues_Breaks(t *testing.T) {
	t.Parallel()
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	for _, tt := range []struct{ was, is, breaks string }{
		{`{"type": "integer"}`, `{"type": "integer", "minimum": 1}`, "it gets the minimum 1"},
		{`{"type": "integer", "minimum": 1}`, `{"type": "integer", "minimum": 2}`, "it gets the minimum 2"},
		{`{"type": "integer", "minimum": 10, "maximum": 20}`, `{"type": "integer", "minimum": 9, "maximum": 100}`, ""},
		{`{"type": "number", "maximum": 10}`, `{"type": "number", "maximum": 9.5}`, "it gets the maximum 9.5"},
		{`{"type": "integer", "multipleOf": 2}`, `{"type": "integer", "multipleOf": 3}`, "it gets the multipleOf 3"},
		{`{"type": "integer", "multipleOf": 4}`, `{"type": "integer", "multipleOf": 2}`, ""},
		{`{"type": "string", "pattern": "^a"}`, `{"type": "string", "pattern": "^b"}`, "it gets the pattern ^b"},
		{`{"type": "string"}`, `{"type": "string", "minLength": 1}`, "it gets the minLength 1"},
		{`{"type": "array"}`, `{"type": "array", "minItems": 1}`, "it gets the minItems 1"},
		{`{"type": "object"}`, `{"type": "object", "minProperties": 1, "maxProperties": 9}`, "it gets the minProperties 1, it gets the maxProperties 9"},
		{`{"type": "object", "properties": {"b": {}}}`, `{"type": "object", "additionalProperties": {"type": "string"}}`,
			"it kept fields that the schema does not name, and no longer does, its properties are replaced by additionalProperties"},
		{`{"type": "object", "additionalProperties": {"type": "string"}}`, `{"type": "object", "properties": {"b": {}}}`,
			"its additionalProperties are replaced by properties"},
		{`{"type": "object", "additionalProperties": {"type": "string"}}`, `{"type": "object", "additionalProperties": {"type": "integer"}}`,
			"its type changes from string to integer"},
		{`{"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {}, "c": {}}}}`,
			`{"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {}}}}`, "it is no longer declared"},
	} {
		text := ""
		var breaks []string
		for _, property := range []string{tt.was, tt.is} {
			var err error
			s := &schema{spec: specOf(t, "", `{"properties": {"a": `+property+`}}`)}
			if text, breaks, _, err = k.definitionText(text, s); err != nil {
				t.Fatal(err)
			}
		}
		for i := range breaks {
			_, breaks[i], _ = strings.Cut(breaks[i], ": ")
		}
		must.Be(t, tt.is, tt.breaks, strings.Join(breaks, ", "))
		a := at(at(k.specIn(text), "properties"), "a")
		if at(a, "properties") != nil && at(a, "additionalProperties") != nil {
			t.Errorf("%s: the API server refuses\n%s", tt.is, text)
		}
	}
}
