package watches

import (
	"os"
	"strings"
	"testing"
)

// osExpand expands a text as ansible-operator does.
func osExpand(raw string, lookup func(string) (string, bool)) string {
	return os.Expand(raw, func(name string) string {
		if value, ok := lookup(name); ok {
			return value
		}
		return "${" + name + "}"
	})
}

// expandCases are texts with references of every form.
func expandCases() []string {
	return []string{
		"", "$", "a$", "$$", "$$$", "$1", "$12", "${1}", "$*", "$#", "$@", "$!", "$?", "$-", "$ x", "$.", "$\n", "$é",
		"$A", "$A$A", "$AB", "${A}", "${A}B", "${AB", "${", "${}", "${}A", "${ A }", "${A:-x}", "${A\nB}", "$UNSET", "${UNSET}", "${$}", "${*", "${1", "x${EMPTY}y",
		"a: $A # ${LINES}\nb: $A", "{{ x }} ${A} }", "$A_b", "$_", "${A}}", "$(A)", "\xff$A\xff",
	}
}

func expandEnv() map[string]string {
	return map[string]string{"A": "value", "EMPTY": "", "LINES": "x\ny: 1\n", "A\nB": "odd", "*": "star"}
}

func TestExpand_IsOsExpand(t *testing.T) {
	env := lookup(expandEnv())
	for _, raw := range expandCases() {
		got, _, ok := expand(raw, env, 1000)
		if want := osExpand(raw, env); got != want || !ok {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, raw := range expandCases() {
		f.Add(raw)
	}
	env := lookup(expandEnv())
	f.Fuzz(func(t *testing.T, raw string) {
		got, made, ok := expand(raw, env, 1<<20)
		if want := osExpand(raw, env); ok && got != want {
			t.Fatalf("%q: got %q, want %q", raw, got, want)
		}
		// The offsets of the expanded text must lead back into the raw text, in order.
		s := newSource(raw, got, made)
		next := 0
		for i := range len(got) {
			at := s.rawOffset(i)
			if at < next || at > len(raw) {
				t.Fatalf("%q: offset %d is at %d after %d", raw, i, at, next)
			}
			next = at
		}
	})
}

// TestLoad_PositionsAreThoseOfTheFile: problems have the line and column that an editor shows, whatever text is before
// them.
func TestLoad_PositionsAreThoseOfTheFile(t *testing.T) {
	env := map[string]string{"LINES": "a: 1\n    b: 2\n    c: 3", "LONG": strings.Repeat("x", 50), "EMPTY": "", "BAD": "nope", "WATCH": watch("  manageStatus: nope")}
	tests := map[string]struct{ text, want string }{
		"behind more lines":       {watch("  vars:", "    ${LINES}", "  manageStatus: nope"), "6:17"},
		"behind a longer value":   {watch("  vars: {a: $LONG, b: .nan}"), "4:23"},
		"behind an empty value":   {watch("  vars: {a: ${EMPTY}, b: .nan}"), "4:26"},
		"the value itself":        {watch("  manageStatus: ${BAD}"), "4:17"},
		"inside the value":        {"\n\n${WATCH}\n", "3:1"},
		"behind wide characters":  {watch("  vars: {ключ: 日本, b: .nan}"), "4:23"},
		"behind a byte order":     {"\ufeff" + "- {version: v1, kind: A, role: memcached, manageStatus: nope}\n", "1:57"},
		"with carriage returns":   {strings.ReplaceAll(watch("  manageStatus: nope"), "\n", "\r\n"), "4:17"},
		"behind a syntax problem": {watch("  vars:", "    ${LINES}", "  kind: }"), "6:3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := loadText(t, project(t), tt.text, Options{LookupEnv: lookup(env)})
			if len(got.problems) != 1 || !strings.HasPrefix(got.problems[0], "watches.yaml:"+tt.want+": ") {
				t.Errorf("want one problem at %s, got %q", tt.want, got.problems)
			}
		})
	}
}
