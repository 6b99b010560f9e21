package admission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// A path leads to the same command on every machine, whatever else is in the file, or to no command. The name is for
// people.
func TestHooks_PathsAreThoseOfCommands(t *testing.T) {
	t.Parallel()
	hooks := func(fields string) (paths, names []string) {
		dir := t.TempDir() // another directory for each call
		for _, name := range []string{"a.sh", "a-sh-2"} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700))
		}
		text := "- {version: v1, kind: Jar, group: g.example.com, command: [./a.sh], " + fields + "}\n"
		must.Do(t, os.WriteFile(filepath.Join(dir, "watches.yaml"), []byte(text), 0o600))
		watched, problems, err := watches.Load("watches.yaml", watches.Options{Dir: dir})
		if err != nil {
			t.Fatalf("%s: %v", fields, problems)
		}
		for _, h := range Hooks(watched) {
			if h.Path != strings.ToLower(h.Path) || validation.IsDNS1123Label(h.name) != nil {
				t.Errorf("%s: path %s, name %s", fields, h.Path, h.name)
			}
			paths, names = append(paths, h.Path), append(names, h.name)
		}
		return paths, names
	}
	a, name := hooks("webhooks: {validate: [{command: [./a.sh]}]}")
	must.Be(t, "name", []string{"a-sh"}, name)
	b, name := hooks("webhooks: {validate: [{command: [./a.sh, B]}]}")
	must.Be(t, "name with another argument", []string{"a-sh"}, name)
	paths, names := hooks("webhooks: {validate: [{rule: 'true'}, {command: [./a.sh, B], timeout: 2s}, {command: [./a.sh], failurePolicy: Ignore}, {command: [./a-sh-2]}]}")
	must.Be(t, "in another order, with other limits", slices.Concat(b, a), paths[:2])
	must.Be(t, "names", []string{"a-sh", "a-sh-2", "a-sh-2-2"}, names)
	twice, _ := hooks("webhooks: {validate: [{command: [./a.sh]}, {command: [./a.sh]}]}")
	must.Be(t, "twice the same", []string{a[0], a[0] + "-2"}, twice)
	mutates, _ := hooks("webhooks: {mutate: [{command: [./a.sh]}]}")
	selects, _ := hooks("webhooks: {validate: [{command: [./a.sh]}]}, selector: {matchLabels: {x: y}}")
	others := slices.Concat(a, b, mutates, selects)
	slices.Sort(others)
	must.Be(t, "different commands", len(others), len(slices.Compact(others)))
}
