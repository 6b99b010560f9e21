package warm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// The server compiles the templates of the content when it starts, wherever they are. Templates that have changed since
// then, and templates with a filter of the project, still have the right result.
func TestServer_CompilesTheTemplatesOfTheContent(t *testing.T) {
	t.Parallel()
	o, content := options(t), t.TempDir()
	for _, dir := range []string{"templates", "filter_plugins"} {
		must.Do(t, os.Mkdir(filepath.Join(content, dir), 0o700))
	}
	playbook, template := filepath.Join(content, "playbook.yml"), filepath.Join(content, "templates", "file.j2")
	write(t, filepath.Join(content, "filter_plugins", "known.py"), `
import jinja2

def known(what):
    return any("of-a-" + what in key[-1] for key in jinja2.Environment.compile.__globals__["translated"].TRANSLATED)

@jinja2.pass_context
def upper(context, word):
    return "another " + word

class FilterModule:
    def filters(self):
        return {"known": known, "upper": upper}
`)
	write(t, template, "{# of-a-file #}{{ word }}\n")
	write(t, playbook, `
- hosts: localhost
  gather_facts: false
  vars: {word: a word, value: "{{ word }} of-a-value", shout: "{{ word | upper }} of-a-filter"}
  tasks:
  - assert:
      that:
      - "'file' | known"
      - "'value' | known"
      - "'condition' | known"
      - "'filter' | known"
      - "not ('secret' | known)"
      - value == "a word of-a-value"
      - shout == "another a word of-a-filter"
      - lookup('template', 'file.j2') == expected
  - ping:
    when: word != 'of-a-condition'
`)
	write(t, filepath.Join(content, ".hidden.yml"), "a: '{{ word }} of-a-secret'\n")
	// Only runs import what is not part of Ansible itself.
	collections, imported := t.TempDir(), filepath.Join(t.TempDir(), "imported")
	// Ansible redirects some names without dots to this collection.
	filters := filepath.Join(collections, "ansible_collections", "community", "general", "plugins", "filter")
	must.Do(t, os.MkdirAll(filters, 0o700))
	write(t, filepath.Join(filters, "json_query.py"), fmt.Sprintf(
		"open(%q, 'a')\nclass FilterModule:\n    def filters(self):\n        return {'json_query': str}\n", imported))
	write(t, filepath.Join(content, "vars.yml"), "a: '{{ word | json_query }}'\nb: '{{ word | community.general.json_query }}'\n")
	o.Environ = append(o.Environ, "ANSIBLE_COLLECTIONS_PATH="+collections, "ANSIBLE_COLLECTIONS_PATHS="+collections)
	o.Content = []string{content}
	r, _ := start(t, o)
	if _, err := os.Stat(imported); err == nil {
		t.Error("a filter of a collection was imported without a run")
	}
	for _, each := range []struct{ vars, text string }{
		{`{"expected": "a word\n"}`, "{# of-a-file #}{{ word }}\n"},
		{`{"expected": "now a word\n"}`, "{# changed #}now {{ word }}\n"},
	} {
		write(t, template, each.text)
		id := uuid.NewString()
		res := must.Get(r.Run(t.Context(), runner.Request{
			ID: id, Dir: filepath.Join(t.TempDir(), id), Content: runner.Content{Playbook: playbook}, ExtraVars: []byte(each.vars),
		}))(t)
		if v := res.Verdict(); !v.Success {
			t.Errorf("%s: verdict %+v\n%s", each.vars, v, res.Tail)
		}
	}
}
