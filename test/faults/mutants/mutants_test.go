package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"
)

// A mutant that does not fit the code any more says so here, and not in a
// campaign of an hour.
func TestMutants_FitTheCode(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.Name] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(m.Name) || m.Origin == "" || len(m.Plans) == 0 {
			t.Errorf("mutant %q: its name is not unique words with hyphens, or it has no origin, or no plans", m.Name)
		}
		names[m.Name] = true
		changed, err := m.apply(root)
		if err != nil {
			t.Error(err)
		}
		for file, text := range changed {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("mutant %s: %v", m.Name, err)
			}
		}
	}
	if len(names) < 40 {
		t.Errorf("%d mutants, want at least 40 (G6)", len(names))
	}
}

func TestMutant_AnEditFitsExactlyOnce(t *testing.T) {
	for _, find := range []string{"nowhere to be found", "package main"} {
		m := mutant{Name: "x", Edits: []edit{{"mutant.go", find, ""}, {"mutant.go", find, ""}}}
		if _, err := m.apply("."); err == nil {
			t.Errorf("%q was replaced twice", find)
		}
	}
}
