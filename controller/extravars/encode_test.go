package extravars

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/tree"
)

func TestBuild_MarksInJSON(t *testing.T) {
	got, notices, err := Build(object(t, `{"metadata": {"name": "n"}, "spec": {"aBc": "{{ x }}", "n": 1, "f": 1.0e30, "l": [true, null, "y"]}}`),
		Options{Kind: "K", SnakeCase: true, MarkUnsafe: true, Vars: map[string]any{"v": "{{ y }}"}})
	if err != nil || len(notices) > 0 {
		t.Fatal(err, notices)
	}
	want := `{"__k": {"metadata": {"name": {"__ansible_unsafe": "n"}}, "spec": {"aBc": {"__ansible_unsafe": "{{ x }}"}, "f": 1e+30, "l": [true, null, {"__ansible_unsafe": "y"}], "n": 1}},
"__k_spec": {"aBc": {"__ansible_unsafe": "{{ x }}"}, "f": 1e+30, "l": [true, null, {"__ansible_unsafe": "y"}], "n": 1},
"a_bc": {"__ansible_unsafe": "{{ x }}"},
"ansible_operator_meta": {"name": "n", "namespace": ""},
"f": 1e+30,
"l": [true, null, {"__ansible_unsafe": "y"}],
"n": 1,
"v": "{{ y }}"}
`
	must.Be(t, "content", want, string(got))
}

// TestBuild_MarkersOfTheObjectForceYAML: in JSON, Ansible would replace these maps, and decrypt some. In YAML, they are
// ordinary maps.
func TestBuild_MarkersOfTheObjectForceYAML(t *testing.T) {
	got, notices, err := Build(object(t, `{"spec": {"n": 1e30, "s": "{{ x }}", "m": {"{{ k }}": {"__ansible_vault": "$ANSIBLE_VAULT"}}, "one": "1"}}`),
		Options{Kind: "K", MarkUnsafe: true, Vars: map[string]any{
			"secret": map[string]any{"__ansible_vault": "$AUTHORS"},
			"text":   map[string]any{"__ansible_unsafe": []any{"{{ z }}", map[string]any{"k": "v"}}},
			"plain":  "{{ y }}",
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`? "m" : {? !unsafe "{{ k }}" : {? !unsafe "__ansible_vault" : !unsafe "$ANSIBLE_VAULT"}}`,
		`? "n" : 1.0e+30`, `? "s" : !unsafe "{{ x }}"`,
		// Ansible 2.19 would read a tagged number as a number.
		`? "one" : "1"`,
		// The author's markers have their normal meaning.
		`? "secret" : !vault "$AUTHORS"`, `? "text" : [!unsafe "{{ z }}", {? "k" : !unsafe "v"}]`, `? "plain" : "{{ y }}"`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("content lacks %s:\n%s", want, got)
		}
	}
	want := []Notice{{Kind: MarkerEncoded, Detail: notices[0].Detail}}
	must.Be(t, "notices", want, notices)
}

// What a hook returns may come from the object: it is neither a template nor decrypted, even where the object's own
// strings are not marked. Variables of the finalizer replace it and are the author's.
func TestBuild_VariablesOfHooksAreData(t *testing.T) {
	marker := func(text string) map[string]any { return map[string]any{"__ansible_vault": text} }
	opts := Options{Kind: "K", HookVars: map[string]any{"a": "{{ 1 }}"}, Vars: map[string]any{"a": "{{ 2 }}", "b": marker("$AUTHORS")}}
	got, _, err := Build(object(t, `{"spec": {"a": 1}}`), opts)
	must.Do(t, err)
	if want := `"a": {"__ansible_unsafe": "{{ 1 }}"},`; !strings.Contains(string(got), want) {
		t.Errorf("content lacks %s:\n%s", want, got)
	}
	opts.HookVars["b"], opts.HookVars["c"] = marker("$OBJECTS"), marker("$OBJECTS")
	opts.FinalizerVars = map[string]any{"c": marker("$AUTHORS")}
	got, _, err = Build(object(t, `{"spec": {}}`), opts)
	must.Do(t, err)
	for _, want := range []string{`? "a" : !unsafe "{{ 1 }}"`, `? "b" : {? "__ansible_vault" : !unsafe "$OBJECTS"}`, `? "c" : !vault "$AUTHORS"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("content lacks %s:\n%s", want, got)
		}
	}
}

func TestBuild_MarkerKeysAreFoundWhereverTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		opts   Options
		yaml   bool
	}{
		"none":                         {object: `{"spec": {"ansible_vault": {"_ansible_vault": 1}}}`},
		"deep in a list":               {object: `{"spec": {"a": [1, [{"b": {"__ansible_unsafe": "x"}}]]}}`, yaml: true},
		"in the status":                {object: `{"status": {"__ansible_vault": "x"}}`, yaml: true},
		"in labels":                    {object: `{"metadata": {"labels": {"__ansible_vault": "x"}}}`, yaml: true},
		"of a kind not known today":    {object: `{"spec": {"a": {"__ansible_type": "x"}}}`, yaml: true},
		"only after conversion":        {object: `{"spec": {"a": {"__ansibleVault": "x"}}}`, opts: Options{SnakeCase: true}, yaml: true},
		"without conversion no marker": {object: `{"spec": {"a": {"__ansibleVault": "x"}}}`},
		"in the author's variables":    {object: `{}`, opts: Options{Vars: map[string]any{"a": map[string]any{"__ansible_vault": "x"}}}},
		"a key like a template":        {object: `{"spec": {"a": {"{{ x }}": 1}}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"half a template":              {object: `{"spec": {"a": {"x{": 1}}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"a key like an expression":     {object: `{"status": {"a": [{"lookup('pipe', 'id')": 1}]}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"an ordinary key":              {object: `{"spec": {"a": {"app.example.com/x-y": 1, "a.b": 2, "#c": 3, "u@h:1": 4, "é": 5}}}`, opts: Options{MarkUnsafe: true}},
		"a key like a test":            {object: `{"spec": {"a": {"'/etc/passwd'is\tfile": 1}}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"a key that joins":             {object: `{"spec": {"a": {"big~big": 1}}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"a template in managed fields": {object: `{"metadata": {"managedFields": [{"fieldsV1": {"k:{\"name\":\"{{ x }}\"}": {}}}]}}`, opts: Options{MarkUnsafe: true}, yaml: true},
		"the same without marking":     {object: `{"spec": {"a": {"{{ x }}": 1}}}`},
		"managed fields":               {object: `{"metadata": {"managedFields": [{"fieldsV1": {"k:{\"name\":\"x\"}": {}, "v:\"example.com/x\"": {}, "f:a": {}}}]}}`, opts: Options{MarkUnsafe: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := Build(object(t, tc.object), tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			if isYAML := !json.Valid(got); isYAML != tc.yaml {
				t.Errorf("YAML: %v, want %v:\n%s", isYAML, tc.yaml, got)
			}
		})
	}
}

// TestBuild_OrdinaryKeysAreNoNews: a key that is marked because of a character of an expression arrives unchanged, and
// causes no warning.
func TestBuild_OrdinaryKeysAreNoNews(t *testing.T) {
	got, notices, err := Build(object(t, `{"spec": {"hosts": {"*.example.com": 1}}}`), Options{Kind: "K", MarkUnsafe: true})
	if err != nil || len(notices) > 0 || !strings.Contains(string(got), `!unsafe "*.example.com"`) {
		t.Errorf("%s, %v, %v", got, notices, err)
	}
}

func TestBuild_AuthorsValuesOfOtherTypes(t *testing.T) {
	vars := map[string]any{
		"time": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "strings": []string{"a"}, "map": map[string]string{"k": "v"},
		"nan": math.NaN(), "inf": math.Inf(1), "ninf": math.Inf(-1), "zero": math.Copysign(0, -1),
		"big": uint64(math.MaxUint64), "int": 7, "int32": int32(8), "small": 1e-7,
	}
	for mode, tc := range map[string]struct{ object, want string }{
		"JSON": {`{}`, `"big": 18446744073709551615,"inf": Infinity,"int": 7,"int32": 8,"map": {"k": "v"},"nan": NaN,"ninf": -Infinity,` +
			`"small": 1e-07,"strings": ["a"],"time": "2026-01-02T03:04:05Z","zero": -0.0}`},
		"YAML": {`{"status": {"__ansible_x": 1}}`, `? "big" : 18446744073709551615,? "inf" : .inf,? "int" : 7,? "int32" : 8,? "map" : {? "k" : "v"},? "nan" : .nan,? "ninf" : -.inf,` +
			`? "small" : 1.0e-07,? "strings" : ["a"],? "time" : "2026-01-02T03:04:05Z",? "zero" : -0.0}`},
	} {
		got, _, err := Build(object(t, tc.object), Options{Vars: vars})
		if err != nil {
			t.Fatal(err)
		}
		if flat := strings.ReplaceAll(string(got), "\n", ""); !strings.HasSuffix(flat, tc.want) {
			t.Errorf("%s: %s\nlacks %s", mode, flat, tc.want)
		}
	}
}

// FuzzBuild: for any object, Build does not panic and gives the same result twice, and what it wrote decodes to the
// result of Vars.
func FuzzBuild(f *testing.F) {
	for i, s := range []string{
		`{"spec": {"aB": "{{ x }}", "n": 1e30, "l": [1.5, -0.0, null]}}`,
		`{"spec": {"a": {"__ansible_vault": "x", "": {}}}, "status": "yes"}`,
		`{"spec": {"fooBar": 1, "foo-bar": 2, "\u0000": "\u2028\ufeff\ud83d\ude00\u0085\u007f\ufffe"}}`,
		`{"metadata": {"name": "{{ n }}"}, "spec": {"{% k %}": "1", "<<": "=", "~": "~", "2020-01-01": "2020-01-01"}}`,
	} {
		f.Add([]byte(s), byte(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, flags byte) {
		var in map[string]any
		if json.Unmarshal(data, &in) != nil {
			t.Skip("no object")
		}
		opts := Options{
			Group: "g", Kind: "K", SnakeCase: flags&1 > 0, MarkUnsafe: flags&2 > 0,
			AllowReserved: flags&4 > 0,
		}
		got, _, err := Build(in, opts)
		if err != nil {
			return
		}
		again, _, _ := Build(in, opts)
		if !bytes.Equal(got, again) {
			t.Fatalf("differs between two calls:\n%s\n%s", got, again)
		}
		vars, _ := Vars(in, opts)
		want := plainValue(vars)
		if json.Valid(got) {
			var decoded any
			must.Do(t, json.Unmarshal(got, &decoded))
			if diff := cmp.Diff(want, unmarked(decoded)); diff != "" {
				t.Fatalf("JSON decodes to something else (-want +got):\n%s", diff)
			}
			return
		}
		var node yaml.Node
		if err := yaml.Unmarshal(got, &node); err != nil {
			t.Fatalf("%v in:\n%s", err, got)
		}
		if diff := cmp.Diff(want, fromNode(t, node.Content[0])); diff != "" {
			t.Fatalf("YAML decodes to something else (-want +got):\n%s", diff)
		}
	})
}

// plainValue removes the marks.
func plainValue(value any) any {
	return tree.Map(value, nil, func(leaf any) any {
		if text, marked := leaf.(Unsafe); marked {
			return string(text)
		}
		return leaf
	})
}

// unmarked does what Ansible's reader of JSON does to markers.
func unmarked(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if text, ok := v[markerUnsafe]; ok {
			return text
		}
		for key, item := range v {
			v[key] = unmarked(item)
		}
	case []any:
		for i, item := range v {
			v[i] = unmarked(item)
		}
	}
	return value
}

func fromNode(t *testing.T, n *yaml.Node) any {
	t.Helper()
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			out[n.Content[i].Value] = fromNode(t, n.Content[i+1])
		}
		if len(out) != len(n.Content)/2 {
			t.Fatalf("a key occurs twice in line %d", n.Line)
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			out[i] = fromNode(t, item)
		}
		return out
	}
	if n.Style&yaml.DoubleQuotedStyle > 0 {
		return n.Value
	}
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	}
	var f float64
	if _, err := fmt.Sscan(n.Value, &f); err != nil {
		t.Fatalf("%q: %v", n.Value, err)
	}
	return f
}
