package watches

import (
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A watch can name Go code instead of content. Its finalizer can name the same code, or other code.
func TestHandler(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ fields, want, problem string }{
		"alone":              {"handler: cups", "cups", ""},
		"finalizer alone":    {"handler: cups\n  finalizer: {name: example.com/f}", "cups; cups", ""},
		"finalizer":          {"handler: cups\n  timeout: 1m\n  finalizer: {name: example.com/f, handler: shards}", "cups; shards", ""},
		"no name":            {"handler: ''", "", "4:12: error: [0].handler: the handler has no name; write the name under which the Go program registers it"},
		"with a role":        {"handler: cups\n  role: memcached", "", `5:9: error: [0].role: "role" is for watches with a role or playbook; remove it`},
		"with variables":     {"handler: cups\n  vars: {a: b}", "", `5:9: error: [0].vars: "vars" is for watches with a role or playbook`},
		"finalizer's role":   {"handler: cups\n  finalizer: {name: example.com/f, role: r}", "", `"role" is for watches with a role or playbook`},
		"finalizer's only":   {"command: [true]\n  finalizer: {name: example.com/f, handler: cups}", "", "5:45: error: [0].finalizer.handler: the finalizer has a handler, but the watch does not"},
		"a list of handlers": {"handler: [cups]", "", "4:12: error: [0].handler: a list is not a string"},
	} {
		text := "- version: v1\n  kind: A\n  group: g.example.com\n  " + tt.fields + "\n"
		got := loadText(t, t.TempDir(), text, Options{LookupEnv: lookup(map[string]string{"PATH": "/bin:/usr/bin"})})
		if tt.problem != "" {
			if got.err == nil || !strings.Contains(strings.Join(got.problems, "\n"), tt.problem) {
				t.Errorf("%s: %v, %q; want %q", name, got.err, got.problems, tt.problem)
			}
			continue
		}
		must.Do(t, got.err)
		handlers := []string{got.watches[0].Content.Handler}
		if f := got.watches[0].Finalizer; f != nil {
			handlers = append(handlers, f.Content.Handler)
		}
		must.Be(t, name, tt.want, strings.Join(handlers, "; "))
	}
}
