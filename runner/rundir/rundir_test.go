package rundir

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
)

// write writes a file, and creates its directory.
func write(t *testing.T, name, content string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(t, os.WriteFile(name, []byte(content), 0o600))
}

// makeRun creates what a finished run leaves behind.
func makeRun(t *testing.T, objectDir, id string, finished time.Time) {
	t.Helper()
	write(t, filepath.Join(objectDir, id, "env/extravars"), "{}")
	write(t, filepath.Join(objectDir, id, "artifacts", id, "status"), "successful")
	must.Do(t, os.Symlink(id, filepath.Join(objectDir, id, "artifacts", "latest")))
	must.Do(t, os.Chtimes(filepath.Join(objectDir, id, "artifacts", id), finished, finished))
}

// list returns the names in a directory.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestRuns_ListsPrivateDirectoriesAndRemainsOnly(t *testing.T) {
	objectDir, outside := t.TempDir(), t.TempDir()
	makeRun(t, outside, "victim", time.Unix(1, 0))
	makeRun(t, objectDir, "past", time.Unix(1000, 0))
	for _, name := range []string{
		"file", "directory/file", "artifacts/latest", "foreign directory/artifacts/x", ".hidden/artifacts/x", "closed/artifacts",
		".dead.building/env/extravars", ".half.removing/artifacts/half/stdout", ".foreign name.removing/x",
	} {
		write(t, filepath.Join(objectDir, name), "")
	}
	for name, target := range map[string]string{"latest": "past/artifacts/past", "link-to-run": filepath.Join(outside, "victim")} {
		must.Do(t, os.Symlink(target, filepath.Join(objectDir, name)))
	}
	runs, remains, err := Runs(objectDir)
	if err != nil {
		t.Fatal(err)
	}
	must.Be(t, "runs", []Past{{"past", time.Unix(1000, 0)}}, runs)
	must.Be(t, "remains", map[string]string{".dead.building": "dead", ".half.removing": "half"}, remains)
	if runs, _, err := Runs(filepath.Join(objectDir, "missing")); err != nil || len(runs) > 0 {
		t.Errorf("a missing directory: %v, %v", runs, err)
	}
	if runs, _, err := Runs(filepath.Join(objectDir, "latest")); err == nil {
		t.Errorf("a link is followed: %v", runs)
	}
}

func TestRemove(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	makeRun(t, outside, "victim", time.Unix(1, 0))
	makeRun(t, filepath.Join(parent, "object"), "run", time.Unix(1, 0))
	must.Do(t, os.Symlink(outside, filepath.Join(parent, "object", "link")))
	must.Do(t, os.Symlink(outside, filepath.Join(parent, "linked")))
	write(t, filepath.Join(parent, ".half.removing", "artifacts", "x"), "")
	for _, name := range []string{"object", "linked", "missing", ".half.removing", "missing/missing"} {
		if err := Remove(filepath.Join(parent, name)); err != nil {
			t.Error(err)
		}
	}
	if left := list(t, parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	must.Be(t, "outside", []string{"victim"}, list(t, outside))
}

func TestRemove_RefusesWhatIsNoRun(t *testing.T) {
	parent := t.TempDir()
	write(t, filepath.Join(parent, "object", "precious"), "")
	for _, dir := range []string{
		filepath.Join(parent, "object") + "/..", parent + "/.", parent + "/object/run/../..", parent + "/a b", parent + "/.git", parent + "/.object", "..", ".", "/",
	} {
		if err := Remove(dir); err == nil {
			t.Errorf("%s is removed", dir)
		}
		if err := Strip(dir, "precious"); err == nil {
			t.Errorf("%s is stripped", dir)
		}
	}
	if diff := cmp.Diff([]string{"object"}, list(t, parent)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// asNobody runs f on a thread that accesses files as a user without privileges, even if root runs the tests.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			const nobody = 65534
			for _, set := range []func(int) (int, error){unix.SetfsgidRetGid, unix.SetfsuidRetUid} {
				if _, err := set(nobody); err != nil {
					t.Error(err)
				}
			}
		}
		f()
	}()
	<-done
}

// A playbook may take away permissions from its directories; they are removed all the same.
func TestRemove_OpensWhatWasClosed(t *testing.T) {
	parent := t.TempDir()
	must.Do(t, os.Chmod(parent, 0o777))
	must.Do(t, os.Chmod(filepath.Dir(parent), 0o755))
	asNobody(t, func() {
		for _, dir := range []string{"run/artifacts/run/none", "run/artifacts/run/read"} {
			if err := os.MkdirAll(filepath.Join(parent, dir), 0o700); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(parent, dir, "file"), nil, 0); err != nil {
				t.Error(err)
			}
		}
		for _, closed := range []struct {
			dir  string
			mode os.FileMode
		}{{"run/artifacts/run/read", 0o500}, {"run/artifacts/run/none", 0}, {"run/artifacts", 0}, {"run", 0o100}} {
			if err := os.Chmod(filepath.Join(parent, closed.dir), closed.mode); err != nil {
				t.Error(err)
			}
		}
		if err := Remove(filepath.Join(parent, "run")); err != nil {
			t.Error(err)
		}
	})
	if left := list(t, parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
