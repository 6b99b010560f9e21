package contentcopy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), 0o640))
}

func copyOf(t *testing.T, p Place, parent string) *Copy {
	t.Helper()
	state := must.Get(p.State(t.Context()))(t)
	c := must.Get(New(t.Context(), p, state, parent))(t)
	t.Cleanup(c.Close)
	return c
}

func TestOf_TakesTheProjectAndWhatWatchesNameElsewhere(t *testing.T) {
	role := func(path string) watches.Watch { return watches.Watch{Content: watches.Content{Role: path}} }
	for name, c := range map[string]struct {
		dir  string
		all  []watches.Watch
		want []string
	}{
		"in the project":       {"/opt/ansible", []watches.Watch{role("roles/a"), role("/opt/ansible/roles/b"), {Content: watches.Content{Playbook: "/opt/ansible/p.yml"}}}, []string{"/opt/ansible"}},
		"elsewhere":            {"/opt/ansible", []watches.Watch{role("/mnt/roles/a"), role("/srv/c"), {Content: watches.Content{Playbook: "/mnt/p/p.yml"}}}, []string{"/mnt/roles", "/srv/c", "/mnt/p"}},
		"a finalizer's":        {"/opt/ansible", []watches.Watch{{Content: watches.Content{Role: "/a/b"}, Finalizer: &watches.Finalizer{Content: watches.Content{Role: "/c/roles/d"}}}}, []string{"/a/b", "/c/roles"}},
		"of a collection":      {"/opt/ansible", []watches.Watch{role("/opt/ansible/.ansible/collections/ansible_collections/a/b/roles/c"), role("/usr/share/ansible/collections/ansible_collections/a/b/roles/c")}, nil},
		"below each other":     {"/opt/ansible", []watches.Watch{role("/mnt/a/b"), {Content: watches.Content{Playbook: "/mnt/p.yml"}}}, []string{"/mnt"}},
		"the root is no place": {"/", []watches.Watch{role("/roles/a"), {Content: watches.Content{Playbook: "/p.yml"}}}, []string{"/roles", "/p.yml"}},
	} {
		must.Be(t, name, c.want, Of(c.dir, "/watches.yaml", c.all).Dirs)
	}
}

// The target of a link is copied under the name of the link, as Ansible would reach it. Links that lead back to a parent
// are not followed without end.
func TestNew_CopiesWhatAnsibleReaches(t *testing.T) {
	dir, parent := t.TempDir(), filepath.Join(t.TempDir(), "copies")
	p := Place{Dirs: []string{dir}, Except: filepath.Join(dir, "runner")}
	write(t, dir+"/roles/a/..v1/main.yml", "from a ConfigMap")
	write(t, dir+"/roles/a/files/.profile", "hidden")
	write(t, dir+"/.git/config", "left out")
	write(t, dir+"/lost+found/x", "of a volume's file system")
	write(t, dir+"/runner/.runs/x", "left out")
	for link, to := range map[string]string{"roles/a/..data": "..v1", "roles/a/tasks": "..data", "roles/a/up": "..", "roles/a/nowhere": "missing", "roles/a/itself": "itself"} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	must.Do(t, os.Chmod(dir+"/roles/a/files/.profile", 0o755))
	c := copyOf(t, p, parent)
	got := map[string]string{}
	err := filepath.WalkDir(c.Path(dir), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		info, statErr := d.Info()
		got[strings.TrimPrefix(c.Original(path), dir+"/")] = string(data) + " " + info.Mode().String()
		return errors.Join(err, statErr)
	})
	want := map[string]string{"roles/a/tasks/main.yml": "from a ConfigMap -rw-r-----", "roles/a/files/.profile": "hidden -rwxr-xr-x"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; copied (-want +got):\n%s", err, diff)
	}
	for _, path := range []string{dir + "/.git/config", dir + "x", "/etc"} {
		if got := c.Path(path); got != path {
			t.Errorf("%s is looked for at %s", path, got)
		}
	}
}

// Ansible looks for collections beside the playbook first.
func TestNew_LeadsToCollectionsBesideThePlaybook(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/project/playbook.yml", "[]")
	write(t, dir+"/project/collections/ansible_collections/my/own/plugins/modules/hello.py", "one")
	c := copyOf(t, Place{Dirs: []string{dir}}, t.TempDir())
	path := filepath.Join(filepath.Dir(c.Path(dir+"/project/playbook.yml")), "collections/ansible_collections/my/own/plugins/modules/hello.py")
	if text, err := os.ReadFile(path); err != nil || string(text) != "one" {
		t.Errorf("%q, %v", text, err)
	}
}

// Of a playbook directly in the root directory, only the file is copied.
func TestNew_CopiesAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/p.yml", "[]")
	write(t, dir+"/other.yml", "[]")
	c := copyOf(t, Place{Dirs: []string{dir + "/p.yml"}}, t.TempDir())
	if text, err := os.ReadFile(c.Path(dir + "/p.yml")); err != nil || string(text) != "[]" || !strings.HasPrefix(c.Path(dir+"/p.yml"), c.root) {
		t.Errorf("%q, %v", text, err)
	}
	must.Do(t, c.Check(t.Context()))
	must.Be(t, "another file", dir+"/other.yml", c.Path(dir+"/other.yml"))
}

// A copy has the content of one moment, or there is no copy.
func TestNew_RefusesAPlaceThatChanges(t *testing.T) {
	dir, parent := t.TempDir(), t.TempDir()
	p := Place{Dirs: []string{dir}, Watches: filepath.Join(dir, "watches.yaml")}
	write(t, dir+"/roles/a/tasks/main.yml", "- name: one")
	before := must.Get(p.State(t.Context()))(t)
	for _, path := range []string{"roles/a/tasks/main.yml", "watches.yaml", "roles/b/tasks/main.yml"} {
		write(t, filepath.Join(dir, path), "- name: "+path)
		if c, err := New(t.Context(), p, before, parent); c != nil || !errors.Is(err, ErrChanging) {
			t.Errorf("%s was changed: %v", path, err)
		}
		before = must.Get(p.State(t.Context()))(t)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%v; left: %v", err, left)
	}
}

// The files of a run stay until the run ends. The files of a process that was killed do not.
func TestCopy_IsKeptWhileItIsHeld(t *testing.T) {
	dir, parent := t.TempDir(), t.TempDir()
	write(t, dir+"/a.yml", "a: [\n")
	p := Place{Dirs: []string{dir}}
	write(t, parent+"/killed/opt/a.yml", "")
	write(t, parent+"/killed.lock", "")
	write(t, parent+"/killed early.lock", "")
	first := copyOf(t, p, parent)
	second := copyOf(t, p, parent) // removes only copies that no process uses
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 4 {
		t.Errorf("%v; two copies with locks: %v", err, entries)
	}
	if !first.Same(second) {
		t.Error("the copies of one state are not the same")
	}
	write(t, dir+"/a.yml", "b: [\n")
	if first.Same(copyOf(t, p, t.TempDir())) {
		t.Error("the copies of two texts are the same")
	}
	if err := second.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), dir+"/a.yml:") {
		t.Errorf("what is not YAML: %v", err)
	}
	if !first.Hold() {
		t.Fatal("it cannot be held")
	}
	first.Close()
	if _, err := os.Stat(first.Path(dir + "/a.yml")); err != nil {
		t.Errorf("while it is held: %v", err)
	}
	first.Release()
	if _, err := os.Stat(first.Path(dir)); !os.IsNotExist(err) {
		t.Errorf("after that: %v", err)
	}
	if first.Hold() {
		t.Error("it can be held again")
	}
}

// With two links to the next directory in each of 30 directories, a thousand million paths lead to the last one.
func TestState_HasABoundForLinks(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		write(t, fmt.Sprintf("%s/other/%d/main.yml", dir, i), "")
		for _, link := range []string{"a", "b"} {
			must.Do(t, os.Symlink(fmt.Sprintf("../%d", i+1), fmt.Sprintf("%s/other/%d/%s", dir, i, link)))
		}
	}
	if _, err := (Place{Dirs: []string{dir}}).State(t.Context()); err == nil || !strings.Contains(err.Error(), "files and directories") {
		t.Errorf("no bound: %v", err)
	}
}

// Tools change their hidden directories in the working directory all the time, so these are not copied, but used where
// they are. Roles in hidden directories are copied.
func TestOf_LeavesHiddenDirectoriesOfTheWorkingDirectoryOut(t *testing.T) {
	dir := t.TempDir()
	p := Of(dir, "", []watches.Watch{{Content: watches.Content{Role: ".roles/a"}}, {Content: watches.Content{Playbook: dir + "/p.yml"}}})
	for _, name := range []string{"p.yml", ".roles/a/tasks/main.yml", ".kube/cache/x", ".vault-pass", "roles/.b/x"} {
		write(t, filepath.Join(dir, name), name)
	}
	before := must.Get(p.State(t.Context()))(t)
	write(t, dir+"/.kube/cache/x", "and another text")
	if now, err := p.State(t.Context()); err != nil || now != before {
		t.Errorf("a cache counts as content: %v", err)
	}
	c := copyOf(t, p, t.TempDir())
	for name, want := range map[string]bool{"p.yml": true, ".roles/a/tasks/main.yml": true, ".kube/cache/x": false, ".kube": false, ".vault-pass": true, "roles/.b/x": true} {
		if got := c.Path(dir+"/"+name) != dir+"/"+name; got != want {
			t.Errorf("%s is copied: %v", name, got)
		}
		if _, err := os.Stat(c.root + dir + "/" + name); err != nil {
			t.Errorf("from a file of the copy: %v", err)
		}
	}
}
