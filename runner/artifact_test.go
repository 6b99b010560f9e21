package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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
			got, err := Tail(name, tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tail (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTail_ReadsTheEndOfAHugeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdout")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("\nthe end\n"), 1<<34); err != nil { // sparse
		t.Fatal(err)
	}
	got, err := Tail(name, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if got != "the end\n" {
		t.Errorf("tail = %q", got)
	}
}

func TestTail_RefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	target := write(t, filepath.Join(dir, "target"), "secret", 0o600)
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, fifo, dir, filepath.Join(dir, "missing")} {
		if got, err := Tail(name, 100); err == nil {
			t.Errorf("Tail(%s) = %q", name, got)
		}
	}
}

func TestClip(t *testing.T) {
	for limit := range 20 {
		for _, text := range []string{"", "short", strings.Repeat("é", 30), strings.Repeat("😀", 30)} {
			got := clip(text, limit)
			if limit >= len("…") && len(got) > limit || !utf8.ValidString(got) {
				t.Errorf("clip(%q, %d) = %q", text, limit, got)
			}
		}
	}
}

// makeRun creates what a finished run leaves behind.
func makeRun(t *testing.T, objectDir, id string, finished time.Time) {
	t.Helper()
	write(t, filepath.Join(objectDir, id, "env/extravars"), "{}", 0o600)
	write(t, filepath.Join(objectDir, id, "artifacts", id, "status"), "successful", 0o600)
	if err := os.Symlink(id, filepath.Join(objectDir, id, "artifacts", "latest")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(objectDir, id, "artifacts", id), finished, finished); err != nil {
		t.Fatal(err)
	}
}

// list returns the names in a directory.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestPrune(t *testing.T) {
	tests := []struct {
		name string
		keep int
		live []string
		want []string // of the runs
	}{
		{"all", -1, nil, []string{"a1", "b2", "c3", "d4"}},
		{"very negative", -5, nil, []string{"a1", "b2", "c3", "d4"}},
		{"none", 0, nil, nil},
		{"the newest", 1, nil, []string{"b2"}},
		{"the two newest", 2, nil, []string{"b2", "d4"}},
		{"more than there are", 20, nil, []string{"a1", "b2", "c3", "d4"}},
		{"none but the live", 0, []string{"a1"}, []string{"a1"}},
		{"the live is not counted", 1, []string{"b2", "elsewhere"}, []string{"b2", "d4"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objectDir := t.TempDir()
			// Names and times are in different orders.
			for i, id := range []string{"c3", "a1", "d4", "b2"} {
				makeRun(t, objectDir, id, time.Unix(int64(1000*i), 0))
			}
			if err := Prune(objectDir, tt.keep, tt.live...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, list(t, objectDir)); diff != "" {
				t.Errorf("runs left (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrune_LeavesAloneWhatIsNoRun(t *testing.T) {
	objectDir, outside := t.TempDir(), t.TempDir()
	makeRun(t, outside, "victim", time.Unix(1, 0))
	makeRun(t, objectDir, "past", time.Unix(1, 0))
	foreign := []string{"file", "latest", "foreign directory", "directory", "artifacts", ".hidden", "link-to-run"}
	write(t, filepath.Join(objectDir, "file"), "", 0o600)
	write(t, filepath.Join(objectDir, "directory", "file"), "", 0o600)
	write(t, filepath.Join(objectDir, "artifacts", "latest"), "", 0o600)
	write(t, filepath.Join(objectDir, "foreign directory", "artifacts", "x"), "", 0o600)
	write(t, filepath.Join(objectDir, ".hidden", "artifacts", "x"), "", 0o600)
	// A run may have planted a link in its own directory, too.
	if err := os.Symlink(outside, filepath.Join(objectDir, "past", "artifacts", "planted")); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"latest": "past/artifacts/past", "link-to-run": filepath.Join(outside, "victim")} {
		if err := os.Symlink(target, filepath.Join(objectDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Remains of a run that was never started, and one that is being built.
	write(t, filepath.Join(objectDir, ".dead.building", "env", "extravars"), "", 0o600)
	write(t, filepath.Join(objectDir, ".live.building", "env", "extravars"), "", 0o600)

	if err := Prune(objectDir, 0, "live"); err != nil {
		t.Fatal(err)
	}
	want := append(foreign, ".live.building")
	slices.Sort(want)
	if diff := cmp.Diff(want, list(t, objectDir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"victim"}, list(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
}

func TestPrune_MissingDirectory(t *testing.T) {
	if err := Prune(filepath.Join(t.TempDir(), "missing"), 1); err != nil {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	makeRun(t, outside, "victim", time.Unix(1, 0))
	makeRun(t, filepath.Join(parent, "object"), "run", time.Unix(1, 0))
	if err := os.Symlink(outside, filepath.Join(parent, "object", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(parent, "linked")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"object", "linked", "missing"} {
		if err := Remove(filepath.Join(parent, name)); err != nil {
			t.Error(err)
		}
	}
	if left := list(t, parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if diff := cmp.Diff([]string{"victim"}, list(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
}
