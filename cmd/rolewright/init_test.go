package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A directory with only the files of an example becomes a project: init and generate manifests add the rest, and overwrite
// nothing.
func TestInit_CompletesAProjectWithKinds(t *testing.T) {
	scaffolded(t)
	want := textsIn(t, ".")
	const readme = "README.md"
	want[readme] = "# Mine\n"
	must.Do(t, os.WriteFile(readme, []byte(want[readme]), 0o600))
	delete(want, "roles/.gitkeep") // not needed, because there are roles
	for path := range want {
		if !strings.HasPrefix(path, "roles/") && !strings.HasPrefix(path, "config/samples/apps") && path != readme &&
			path != "PROJECT" && path != "watches.yaml" && path != "config/rbac/role.yaml" {
			must.Do(t, os.Remove(path))
		}
	}
	must.Do(t, errors.Join(os.Remove("playbooks"), os.Remove("roles/.gitkeep")))
	for _, args := range []string{"init", "generate manifests"} {
		if code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 0 {
			t.Fatalf("%s: code %d\n%s", args, code, stderr)
		}
	}
	got := textsIn(t, ".")
	for path := range want {
		if got[path] != want[path] {
			t.Errorf("%s is %q, want %q", path, got[path], want[path])
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d files, want %d", len(got), len(want))
	}
}

// A repository that already has a README.md and a .gitignore becomes a project, and keeps both.
func TestInit_InANewRepository(t *testing.T) {
	own := map[string]string{"README.md": "# Mine\n", ".gitignore": "*.swp\n"}
	writeProject(t, own)
	if code, _, stderr := invoke("rolewright", "init", "--name", "mine"); code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	got := textsIn(t, ".")
	for path, want := range own {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	if got["PROJECT"] == "" {
		t.Error("there is no project")
	}
}

// The image of an operator that only runs commands contains their files, and no roles.
func TestInit_ImageOfCommands(t *testing.T) {
	writeProject(t, map[string]string{
		"PROJECT":        "domain: example.com\nlayout: [ansible.sdk.operatorframework.io/v1]\nprojectName: cups\nversion: \"3\"\nresources: [{kind: Cup, version: v1, domain: example.com}]\n",
		"watches.yaml":   "- {version: v1, group: example.com, kind: Cup, command: [./run.sh, lib/a.tmpl, -v], check: {command: [lib/check]}}\n",
		"run.sh":         "#!/bin/sh\n",
		"lib/a.tmpl":     "",
		"lib/check":      "#!/bin/sh\n",
		"kubeconfig.yml": "",
	})
	must.Do(t, os.Chmod("run.sh", 0o700))
	must.Do(t, os.Chmod("lib/check", 0o700))
	if code, _, stderr := invoke("rolewright", "init"); code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	got := textsIn(t, ".")
	if want := "\n\nCOPY watches.yaml ./\nCOPY lib lib\nCOPY run.sh run.sh\n"; !strings.HasSuffix(got["Dockerfile"], want) || strings.Contains(got["Dockerfile"], "roles") {
		t.Errorf("Dockerfile:\n%s", got["Dockerfile"])
	}
	if want := "*\n!watches.yaml\n!lib\n!run.sh\n"; !strings.HasSuffix(got[".dockerignore"], want) {
		t.Errorf(".dockerignore:\n%s", got[".dockerignore"])
	}
}

// Projects may be in directories whose names are not valid names of objects.
func TestInit_DirectoryWhoseNameIsNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my.app")
	must.Do(t, os.Mkdir(dir, 0o700))
	t.Chdir(dir)
	code, _, stderr := invoke("rolewright", "init", "--domain", "example.com")
	if code != 2 || !strings.Contains(stderr, `the name of this directory, "my.app"`) || !strings.Contains(stderr, "--name") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
