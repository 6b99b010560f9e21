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

// roleCase is one object, and how the roles get at the map whose keys are data.
type roleCase struct {
	name, variable string
	// texts are the payloads by name: keys of the map, ends of the names of
	// variables, and values.
	texts map[string]string
	// value is that of each key.
	value any
}

// The map that the roles use: with its keys as they are, with converted ones,
// and one that is made of strings of the object.
const (
	asTheyAre = objectVariable + "_spec.features"
	converted = "features"
	ofValues  = "(dict(texts | zip(range(99))))"
)

// expression tells of its evaluation by a file that names the payload and the
// role. Without blanks, capitals and hyphens it survives the conversion of keys.
func expression(payload string) string {
	return `lookup('pipe',` + command(payload) + `)`
}

func command(payload string) string {
	return `'touch	'~probe_bait~'.` + payload + `.in.'~(role|default('no_role'))`
}

// roleTexts are payloads, in groups of those that do not keep each other from
// being evaluated where a role joins them.
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
		// Without a whole template: a role adds the other brace, or has a condition of it.
		{"onebrace": `{` + expression("onebrace") + `}`, "bare": expression("bare"), "bareglobal": popen("bareglobal")},
		{"half1": `{`, "half2": `{` + expression("half2") + `}`, "half3": `}`}, // whole only when they are joined
		{"header": "#jinja2:variable_start_string:'[%',variable_end_string:'%]'\n[%" + expression("header") + "%]{#"},
	}
}

// roleCases are all payloads with all values that bear no mark or one; where
// every is not set, many share an object.
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

// spec is that of the object. With a marked text anywhere in it, Ansible 2.14
// takes all that is made of it for marked.
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

// play makes the run of a case: that nothing was executed is checked there.
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

// TestRoles_TemplateAgain makes runs in which everything that an object holds
// is made into texts, lists and facts, which are templates to Ansible where
// they are used. A file in the sandbox tells which payload was executed where.
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
