package runner

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
)

func TestTail(t *testing.T) {
	tests := []struct {
		name    string
		content string
		limit   int64
		want    string
	}{
		{"empty", "", 10, ""},
		{"whole", "one\ntwo\n", 100, "one\ntwo\n"},
		{"from the beginning of a line", "one\ntwo\nthree\n", 10, "three\n"},
		{"within the only line", "0123456789", 4, "6789"},
		{"only the end of a line left", "0123456789\n", 4, "789\n"},
		{"colours", "\x1b[0;31mERROR! no\x1b[0m\r\n", 100, "ERROR! no\n"},
		{"title and cursor", "\x1b]0;title\x07a\x1b[2Kb\x1bMc", 100, "abc"},
		{"control characters", "a\x00b\x07c\td\x7fe\u0085f", 100, "abc\tdef"},
		{"invalid UTF-8", "a\xff\xfeb", 100, "a�b"},
		{"cut character", "x\u00e9\u00e9", 3, "�é"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := write(t, filepath.Join(t.TempDir(), "stdout"), tt.content, 0o600)
			got := must.Get(Tail(name, tt.limit))(t)
			must.Be(t, "tail", tt.want, got)
		})
	}
}

func TestTail_ReadsTheEndOfAHugeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdout")
	f := must.Get(os.Create(name))(t)
	defer f.Close()
	if _, err := f.WriteAt([]byte("\nthe end\n"), 1<<34); err != nil { // sparse
		t.Fatal(err)
	}
	got := must.Get(Tail(name, 1024))(t)
	if got != "the end\n" {
		t.Errorf("tail = %q", got)
	}
}

func TestTail_RefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	target := write(t, filepath.Join(dir, "target"), "secret", 0o600)
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	must.Do(t, os.Symlink(target, link))
	must.Do(t, syscall.Mkfifo(fifo, 0o600))
	for _, name := range []string{link, fifo, dir, filepath.Join(dir, "missing")} {
		if got, err := Tail(name, 100); err == nil {
			t.Errorf("Tail(%s) = %q", name, got)
		}
	}
}

// makeRun creates what a finished run leaves behind.
func makeRun(t *testing.T, objectDir, id string, finished time.Time) {
	t.Helper()
	write(t, filepath.Join(objectDir, id, "env/extravars"), "{}", 0o600)
	write(t, filepath.Join(objectDir, id, "artifacts", id, "status"), "successful", 0o600)
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
		write(t, filepath.Join(objectDir, name), "", 0o600)
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
	write(t, filepath.Join(parent, ".half.removing", "artifacts", "x"), "", 0o600)
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
	write(t, filepath.Join(parent, "object", "precious"), "", 0o600)
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

// asNobody runs f on a thread whose file accesses are those of a user without
// privileges, anyone who runs the tests.
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

// A playbook may close its directories; they go all the same.
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
