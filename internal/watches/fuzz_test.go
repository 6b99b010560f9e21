package watches

import (
	"os"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// FuzzLoad: for any file, Load returns. All problems are in the file, and Load fails exactly if one of them is an error.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"suite", "console", "wrong"} {
		text := must.Get(os.ReadFile("testdata/" + name + ".yaml"))(f)
		f.Add(string(text))
	}
	for _, s := range scalars() {
		f.Add(watch("  reconcilePeriod: "+s, "  maxRunnerArtifacts: "+s, "  vars: {"+s+": "+s+"}"))
		f.Add(watch("  schedule: {cron: "+s+", timeZone: "+s+", windows: [{start: "+s+"}]}", "  enabledIf: {apis: ["+s+"]}"))
		f.Add(watch("  adopt: "+s, "  pruneOnDelete: "+s, "  secretVars: ["+s+"]"))
	}
	f.Add(watch("  schedule: {cron: 0-5/2 3,4 1 JAN MON, timeZone: Europe/Berlin}"))
	f.Add("- &a {<<: *a, x: [*a]}\n---\n}")
	f.Add("- $A: ${LINES}\r\n  b: $$ ${\n")
	env := lookup(expandEnv())
	dir := project(f)
	f.Fuzz(func(t *testing.T, text string) {
		got := loadText(t, dir, text, Options{LookupEnv: env})
		lines := strings.Split(text, "\n")
		for _, p := range got.raw {
			if p.Pos.Line < 1 || p.Pos.Line > len(lines) || p.Pos.Column < 1 || p.Pos.Column > len([]rune(lines[p.Pos.Line-1]))+1 {
				t.Errorf("%q: outside the file: %s", text, p)
			}
			if p.Message == "" || strings.ContainsAny(p.Text, "\n\x00") {
				t.Errorf("%q: not to be shown: %+v", text, p)
			}
		}
		if n, _ := Count(got.raw); (n > 0) != (got.err != nil) {
			t.Errorf("%q: %d errors, but Load says %v", text, n, got.err)
		}
		for _, w := range got.watches {
			if w.GVK.Kind == "" || w.GVK.Version == "" || w.Content.IsZero() {
				t.Errorf("%q: incomplete watch %+v", text, w)
			}
			if w.Adopt != AdoptNever && w.Adopt != AdoptIfUnowned {
				t.Errorf("%q: unknown policy %q", text, w.Adopt)
			}
		}
	})
}
