package runner

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

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
