package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
)

// plants returns functions that put something in the place of a file, as a playbook can. outside is a file elsewhere with
// the content "precious".
func plants(outside string) map[string]func(name string) error {
	return map[string]func(string) error{
		"link": func(name string) error { return os.Symlink(outside, name) },
		"link within": func(name string) error {
			return errors.Join(os.WriteFile(name+".x", nil, 0o600), os.Symlink(filepath.Base(name)+".x", name))
		},
		"pipe":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"directory": func(name string) error { return os.Mkdir(name, 0o700) },
		"hard link": func(name string) error { return os.Link(outside, name) },
	}
}

// TestPlanted: only regular files are read, and what is planted is replaced, without writing through it.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	must.Do(t, os.WriteFile(outside, []byte("precious"), 0o600))
	for what, plant := range plants(outside) {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "file")
			// The second plant is where Replace writes first.
			must.Do(t, errors.Join(plant(name), plant(filepath.Join(dir, successor("file")))))
			if what != "hard link" {
				if f, err := OpenBelow(dir, "file"); err == nil {
					t.Errorf("OpenBelow: %v, %v", f, err)
				}
				if data, err := Read(name, 100); err == nil {
					t.Errorf("Read: %q", data)
				}
			}
			must.Do(t, Replace(name, []byte("new")))
			if data, err := Read(name, 100); err != nil || string(data) != "new" {
				t.Errorf("after Replace: %q, %v", data, err)
			}
			if data, err := os.ReadFile(outside); err != nil || string(data) != "precious" {
				t.Errorf("outside: %q, %v", data, err)
			}
			if fi, err := os.Lstat(name); err != nil || fi.Mode() != 0o600 {
				t.Errorf("mode %v, %v", fi.Mode(), err)
			}
		})
	}
}

// TestReplace_UsesWhatIsReserved: the reserved file takes the place of the old one, and its own name is gone.
func TestReplace_UsesWhatIsReserved(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	must.Do(t, Reserve(name, 1000))
	reserved, err := os.Lstat(filepath.Join(dir, successor("file")))
	if err != nil || reserved.Size() != 1000 {
		t.Fatalf("reserved: %v, %v", reserved, err)
	}
	must.Do(t, Replace(name, []byte("short")))
	if fi, err := os.Lstat(name); err != nil || !os.SameFile(fi, reserved) || fi.Size() != 5 {
		t.Errorf("another file than the one that was reserved: %v, %v", fi, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, successor("file"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestRead_Bounds(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(name, []byte(strings.Repeat("x", 10)), 0o600))
	if data, err := Read(name, 10); err != nil || len(data) != 10 {
		t.Errorf("of the size that is allowed: %q, %v", data, err)
	}
	if _, err := Read(name, 9); !errors.Is(err, ErrNotPlain) {
		t.Errorf("one byte too many: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(dir, link))
	if _, err := OpenBelow(link, "file"); !errors.Is(err, ErrNotPlain) {
		t.Errorf("below a link: %v", err)
	}
	if _, err := OpenBelow(dir, "../"+filepath.Base(dir)+"/file"); err == nil {
		t.Error("a name leads out of the directory")
	}
}

func TestOpen_WaitsForAFileDescriptor(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	var enough unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &enough))
	restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &enough) }
	defer restore()
	for what, open := range map[string]func() (*os.File, error){
		"Open":      func() (*os.File, error) { return Open(filepath.Join(dir, "file")) },
		"OpenBelow": func() (*os.File, error) { return OpenBelow(dir, "file") },
	} {
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: enough.Max}))
		time.AfterFunc(20*time.Millisecond, restore)
		f, err := open()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must.Do(t, f.Close())
	}
}
