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

// A path leads to the same command on each machine and whatever else is in the file, or to none.
func TestHooks_PathsAreThoseOfCommands(t *testing.T) {
	t.Parallel()
	paths := func(fields string) []string {
		dir := t.TempDir() // another one each time
		must.Do(t, os.WriteFile(filepath.Join(dir, "a.sh"), []byte("#!/bin/sh\n"), 0o700))
		text := "- {version: v1, kind: Jar, group: g.example.com, command: [./a.sh], " + fields + "}\n"
		must.Do(t, os.WriteFile(filepath.Join(dir, "watches.yaml"), []byte(text), 0o600))
		watched, problems, err := watches.Load("watches.yaml", watches.Options{Dir: dir})
		if err != nil {
			t.Fatalf("%s: %v", fields, problems)
		}
		var paths []string
		for _, h := range Hooks(watched) {
			paths = append(paths, h.Path)
			if h.Path != strings.ToLower(h.Path) || h.id != filepath.Base(h.Path) || !strings.HasPrefix(h.id, "a-sh-") || validation.IsDNS1123Label(h.id) != nil {
				t.Errorf("%s: path %s, name %s", fields, h.Path, h.id)
			}
		}
		return paths
	}
	a := paths("webhooks: {validate: [{command: [./a.sh]}]}")
	b := paths("webhooks: {validate: [{command: [./a.sh, B]}]}")
	must.Be(t, "in another order, with other limits", slices.Concat(b, a),
		paths("webhooks: {validate: [{rule: 'true'}, {command: [./a.sh, B], timeout: 2s}, {command: [./a.sh], failurePolicy: Ignore}]}"))
	must.Be(t, "twice the same", []string{a[0], a[0] + "-2"}, paths("webhooks: {validate: [{command: [./a.sh]}, {command: [./a.sh]}]}"))
	others := slices.Concat(a, b, paths("webhooks: {mutate: [{command: [./a.sh]}]}"),
		paths("webhooks: {validate: [{command: [./a.sh]}]}, selector: {matchLabels: {x: y}}"))
	slices.Sort(others)
	must.Be(t, "different commands", len(others), len(slices.Compact(others)))
}
