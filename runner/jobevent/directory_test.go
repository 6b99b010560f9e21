package jobevent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
)

// TestFollow_ThingsThatAreNoFiles plants things that would block, have side effects, or lead out of the directory. They
// count as missing events.
func TestFollow_ThingsThatAreNoFiles(t *testing.T) {
	outside := t.TempDir()
	writeEvent(t, outside, 1, "outside")
	target := filepath.Join(outside, "1-outside.json")
	plant := map[string]func(path string) error{
		"a link to an event":  func(path string) error { return os.Symlink(target, path) },
		"a link to a device":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link to itself":    func(path string) error { return os.Symlink(path, path) },
		"a link to nothing":   func(path string) error { return os.Symlink("nothing", path) },
		"a pipe":              func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":         func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket":            func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"an endless device":   func(path string) error { return mknod(path, unix.Mkdev(1, 5)) },
		"a device of nothing": func(path string) error { return mknod(path, unix.Mkdev(1, 3)) },
	}
	for name, put := range plant {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeEvent(t, dir, 1, "a")
			writeEvent(t, dir, 3, "b")
			writeEvent(t, dir, 4, "b")
			for _, name := range []string{"2-x.json", "3-a.json", "4-c.json"} {
				must.Do(t, put(filepath.Join(dir, name)))
			}
			done := closedAfter(t, dir)
			got := log(follow(dir, done, func(f *follower) { f.poll, f.patience = time.Millisecond, time.Millisecond }))
			must.Be(t, "yielded", []string{"1-a", "gap 2-2", "3-b", "4-b", "5-end"}, got)
		})
	}
}

// mknod makes a character device. Only root may do that; for other users, it makes a pipe.
func mknod(path string, device uint64) error {
	err := unix.Mknod(path, unix.S_IFCHR|0o600, int(device))
	if errors.Is(err, unix.EPERM) {
		return unix.Mkfifo(path, 0o600)
	}
	return err
}

// closedAfter returns a channel that is closed after a while, so that the directory is followed meanwhile. It writes one
// more event just before.
func closedAfter(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	time.AfterFunc(30*time.Millisecond, func() {
		writeEvent(t, dir, 5, "end")
		close(done)
	})
	return done
}

// What is not a regular file is no event, whatever its name says: the follower goes on waiting for the events before it.
func TestFollow_WhatIsNoFileMakesNoEventLate(t *testing.T) {
	dir := t.TempDir()
	writeEvent(t, dir, 1, "a")
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "99-x.json"), 0o600))
	done := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		writeEvent(t, dir, 2, "a")
		close(done)
	})
	got := log(follow(dir, done, func(f *follower) { f.poll, f.patience = time.Millisecond, time.Millisecond }))
	must.Be(t, "yielded", []string{"1-a", "2-a", "gap 3-98"}, got)
}

func TestFollow_DirectoryThatIsNone(t *testing.T) {
	genuine := t.TempDir()
	writeEvent(t, genuine, 1, "a")
	dir := filepath.Join(t.TempDir(), "job_events")
	for name, put := range map[string]func() error{
		"a link": func() error { return os.Symlink(genuine, dir) },
		"a file": func() error { return os.WriteFile(dir, nil, 0o600) },
		"a pipe": func() error { return unix.Mkfifo(dir, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			must.Do(t, put())
			defer func() { _ = os.Remove(dir) }()
			must.Be(t, "yielded", []string{"error"}, log(Follow(t.Context(), dir, closed())))
		})
	}
	t.Run("nothing", func(t *testing.T) {
		if got := log(Follow(t.Context(), filepath.Join(dir, "x"), closed())); got != nil {
			t.Errorf("yielded %v", got)
		}
	})
}

// If something takes the directory's place while it is followed, the follower does not read it.
func TestFollow_StaysInItsDirectory(t *testing.T) {
	parent := t.TempDir()
	dir, moved, other := filepath.Join(parent, "job_events"), filepath.Join(parent, "moved"), t.TempDir()
	mkdir(t, dir)
	writeEvent(t, dir, 1, "a")
	writeEvent(t, other, 2, "other")
	done := make(chan struct{})
	got := script(t, follow(dir, done, func(f *follower) { f.poll = time.Millisecond }), map[string]func(){
		"1-a": func() {
			must.Do(t, errors.Join(os.Rename(dir, moved), os.Symlink(other, dir)))
			writeEvent(t, moved, 2, "a")
		},
		"2-a": func() { close(done) },
	})
	must.Be(t, "yielded", []string{"1-a", "2-a"}, got)
}
