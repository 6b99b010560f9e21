package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// What an example consists of is enough: init and generate manifests write the rest, and no file that is there.
func TestInit_CompletesAProjectWithKinds(t *testing.T) {
	scaffolded(t)
	want := textsIn(t, ".")
	const readme = "README.md"
	want[readme] = "# Mine\n"
	must.Do(t, os.WriteFile(readme, []byte(want[readme]), 0o600))
	maps.DeleteFunc(want, func(path, _ string) bool { return filepath.Base(path) == ".gitkeep" })
	for path := range want {
		if !strings.HasPrefix(path, "roles/") && !strings.HasPrefix(path, "config/samples/apps") && path != readme &&
			path != "PROJECT" && path != "watches.yaml" && path != "config/rbac/role.yaml" {
			must.Do(t, os.Remove(path))
		}
	}
	for _, args := range []string{"init", "generate manifests"} {
		if code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 0 {
			t.Fatalf("%s: code %d\n%s", args, code, stderr)
		}
	}
	got := textsIn(t, ".")
	maps.DeleteFunc(got, func(path, _ string) bool { return filepath.Base(path) == ".gitkeep" })
	for path := range want {
		if got[path] != want[path] {
			t.Errorf("%s is %q, want %q", path, got[path], want[path])
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d files, want %d", len(got), len(want))
	}
}
