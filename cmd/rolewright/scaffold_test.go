package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// treeText is what there is in a directory: each file with its name above its text.
func treeText(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			fmt.Fprintf(&all, "-- %s -> %s --\n", rel, target)
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "-- %s --\n%s", rel, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// The files of a project with a kind of each sort are those of the golden file, and the
// commands change nothing when they are called again after all others.
func TestScaffold_Golden(t *testing.T) {
	golden, err := filepath.Abs("testdata/scaffold.golden")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for path, text := range map[string]string{
		"roles/cache/tasks/main.yml":    "---\n- name: Nothing\n  ansible.builtin.debug:\n",
		"roles/cache/defaults/main.yml": "---\n# How many.\nsize: 3\nmodes: [a]\nanything:\n_own: 1\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := []string{
		"init --domain example.com --name web-operator",
		"create api --group web --version v1 --kind Site --finalizer",
		"create api --group web --version v1 --kind Page --playbook playbooks/page.yml",
		"create api --group web --version v1alpha1 --kind Zone --cluster-scoped --role zones",
		"create api --version v1 --kind Any --crd-from none",
		"create api --group web --version v1 --kind Cache --role cache --crd-from defaults",
	}
	run := func(command string) (said string) {
		t.Helper()
		code, stdout, stderr := invoke(append([]string{programName}, strings.Fields(command)...)...)
		if code != 0 {
			t.Fatalf("rolewright %s: code %d\n%s", command, code, stderr)
		}
		return stdout + stderr
	}
	for _, c := range commands {
		run(c)
	}
	got := treeText(t, ".")
	for _, c := range commands {
		if said := run(c); !strings.Contains(said, "nothing to do") {
			t.Errorf("rolewright %s, again:\n%s", c, said)
		}
	}
	if diff := cmp.Diff(got, treeText(t, ".")); diff != "" {
		t.Errorf("called again, the commands change (-before +after):\n%s", diff)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the project is another one; write the golden file with -update (-golden +got):\n%s", diff)
	}
}
