package hostile

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/test/must"
)

// roleCase is one object, and how the roles access the map whose keys are data.
type roleCase struct {
	name, variable string
	// texts are the payloads by name. They are keys of the map, ends of variable names, and values.
	texts map[string]string
	// value is the value of each key.
	value any
}

// The map that the roles use: with unchanged keys, with converted keys, and one that is built from strings of the object.
const (
	asTheyAre = objectVariable + "_spec.features"
	converted = "features"
	ofValues  = "(dict(texts | zip(range(99))))"
)

// expression records its evaluation in a file whose name has the payload and the role. It has no blanks, capitals or
// hyphens, so it survives the conversion of keys.
func expression(payload string) string {
	return `lookup('pipe',` + command(payload) + `)`
}

func command(payload string) string {
	return `'touch	'~probe_bait~'.` + payload + `.in.'~(role|default('no_role'))`
}

// roleTexts returns the payloads in groups. Payloads of a group do not prevent each other's evaluation if a role joins
// them.
func roleTexts() []map[string]string {
	popen := func(payload string) string {
		return `cycler.__init__.__globals__.os.popen(` + command(payload) + `).read()`
	}
	return []map[string]string{
		{
			"expression": `{{` + expression("expression") + `}}`,
			"statement":  `{%if(` + expression("statement") + `)%}{%endif%}`,
			"assignment": `{%set	x=` + expression("assignment") + `%}`,
			"comment":    `{#c#}{{` + expression("comment") + `}}`,
			"global":     `{{` + popen("global") + `}}`,
			"nested":     `{{'{{'}}` + expression("nested") + `{{'}}'}}`,
		},
		// None of these is a complete template: a role adds the other brace, or uses it as a condition.
		{"onebrace": `{` + expression("onebrace") + `}`, "bare": expression("bare"), "bareglobal": popen("bareglobal")},
		{"half1": `{`, "half2": `{` + expression("half2") + `}`, "half3": `}`}, // complete only when joined
		{"header": "#jinja2:variable_start_string:'[%',variable_end_string:'%]'\n[%" + expression("header") + "%]{#"},
	}
}

// roleCases returns all payloads with all values, with and without a mark. Unless every is set, many share an object.
func roleCases(every bool) []roleCase {
	groups := roleTexts()
	if !every {
		return []roleCase{
			{"keys", asTheyAre, groups[0], true}, {"converted keys", converted, groups[1], nil}, {"values", ofValues, groups[0], int64(1)},
			{"halves", asTheyAre, groups[2], true}, {"header", ofValues, groups[3], map[string]any{}},
		}
	}
	var cases []roleCase
	for i, group := range groups {
		alone := []map[string]string{group}
		for _, name := range slices.Sorted(maps.Keys(group)) {
			if len(group) > 1 && !strings.HasPrefix(name, "half") {
				alone = append(alone, map[string]string{name: group[name]})
			}
		}
		for _, texts := range alone {
			name := fmt.Sprintf("%d %s", i, strings.Join(slices.Sorted(maps.Keys(texts)), " "))
			for what, value := range map[string]any{"a boolean": true, "a number": int64(1), "null": nil, "a map": map[string]any{}, "an unmarked text": "true", "a text": "t"} {
				cases = append(cases, roleCase{name + " with " + what, asTheyAre, texts, value})
			}
			cases = append(cases, roleCase{name + " converted", converted, texts, true}, roleCase{name + " as values", ofValues, texts, true})
		}
	}
	return cases
}

// spec returns the spec of the object. If it contains a marked text anywhere, Ansible 2.14 treats everything that is made
// from it as marked.
func (c roleCase) spec() map[string]any {
	features, texts := map[string]any{}, []any{}
	for _, name := range slices.Sorted(maps.Keys(c.texts)) {
		features[c.texts[name]] = c.value
		texts = append(texts, c.texts[name])
	}
	spec := map[string]any{"features": features}
	if c.variable == ofValues {
		spec["texts"], spec["text"] = texts, texts[0]
	}
	for name, text := range c.texts {
		spec[text], spec["db_"+text], spec[name+"."+text] = int64(1), int64(1), int64(1)
	}
	return spec
}

// roles writes the playbook of a case: a block for each role of the corpus.
func (c roleCase) roles(t *testing.T, dir string, hostile bool) (playbook string, count int) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/roles.yml"))(t)
	var roles map[string][]any
	must.Do(t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "MAP", c.variable)), &roles))
	var blocks []any
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		blocks = append(blocks, map[string]any{"block": roles[name], "vars": map[string]any{"role": name}, "ignore_errors": hostile})
	}
	content := must.Get(yaml.Marshal([]any{map[string]any{"hosts": "localhost", "gather_facts": false, "tasks": blocks}}))(t)
	for name, content := range map[string]string{
		"roles.yml":  string(content),
		"passed.yml": `[{debug: {msg: "{{ passed }}"}}, {set_fact: {fact: "{{ passed | trim }}"}}, {debug: {msg: "{{ fact }}"}}]`,
		"map.j2":     "{% for key in map %}\n--{{ key }}\n{% endfor %}\n",
		"macro.j2":   "{% macro keys() %}{{ " + c.variable + " | join(' ') }}{% endmacro %}{% macro changed() %}{{ " + c.variable + " | map('regex_replace', '^', '--') | join(' ') }}{% endmacro %}",
	} {
		write(t, filepath.Join(dir, name), content, 0o600)
	}
	return filepath.Join(dir, "roles.yml"), len(blocks)
}

// play makes the run of a case. It checks that nothing was executed.
func (c roleCase) play(t *testing.T, hostile bool) {
	t.Helper()
	s := newSandbox(t)
	s.untraced = true
	var count int
	s.req.Content.Playbook, count = c.roles(t, s.root, hostile)
	if count < 60 {
		t.Errorf("%d roles", count)
	}
	b := newBatch(c.name, true)
	b.parts["spec"] = c.spec()
	opts := b.options()
	opts.Vars = map[string]any{"probe_bait": s.bait() + ".ran", "alpha": true, "beta": true}
	content, _, err := extravars.Build(b.object(), opts)
	if err != nil {
		t.Fatal(err)
	}
	s.req.ExtraVars = content
	if v := s.run(); !v.Verdict().Success {
		t.Errorf("verdict = %+v\n%s", v.Verdict(), v.Tail)
	}
}

// TestRoles_TemplateAgain makes runs that turn everything in an object into texts, lists and facts, which Ansible
// evaluates as templates where they are used. A file in the sandbox says which payload was executed where.
func TestRoles_TemplateAgain(t *testing.T) {
	for _, c := range roleCases(everyCase()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t, true)
		})
	}
	if !everyCase() {
		return
	}
	// The roles are roles: with names as keys, none of their tasks fails.
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		roleCase{"names", ofValues, map[string]string{"alpha": "alpha", "beta": "beta"}, true}.play(t, false)
	})
}
