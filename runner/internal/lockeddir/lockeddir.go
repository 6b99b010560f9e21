// Package lockeddir makes directories that show whether the process that made them still
// exists. They are below a directory that other users may share, such as /tmp.
package lockeddir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is a directory of this process, closed to others. It is locked until it is
// removed or this process ends.
type Dir struct{ *os.File }

// Make makes a directory below parent whose name begins with prefix. First it removes
// such directories of processes that no longer exist.
func Make(parent, prefix string) (Dir, error) {
	sweep(parent, prefix)
	const tries = 10 // sweep of another process may remove the directory before it is locked
	for range tries {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return Dir{}, fmt.Errorf("%w; set TMPDIR to a directory that can be written", err)
		}
		d, err := lock(path)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return Dir{}, errors.Join(fmt.Errorf("lock %s: %w", path, err), os.Remove(path))
		}
	}
	return Dir{}, fmt.Errorf("another process removes what is made in %s", parent)
}

// lock opens and locks an existing directory.
func lock(path string) (_ Dir, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Dir{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return Dir{}, err
	}
	mine, err := file.Stat()
	if err != nil {
		return Dir{}, err
	}
	now, err := os.Lstat(path)
	if err == nil && !os.SameFile(mine, now) {
		err = os.ErrNotExist
	}
	return Dir{file}, err
}

// Ensure makes the directory again if it is gone. It is an error if something of the same
// name exists that is not a directory of this user, closed to others.
func (d Dir) Ensure() error {
	info, err := os.Lstat(d.Name())
	if errors.Is(err, os.ErrNotExist) {
		return os.Mkdir(d.Name(), 0o700)
	}
	if err == nil && !own(info) {
		err = fmt.Errorf("%s is another user's, or open to others: remove it", d.Name())
	}
	return err
}

// own tells whether info describes a directory of this user, closed to others.
func own(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode() == os.ModeDir|0o700 && ok && int(owner.Uid) == os.Geteuid()
}

// Remove removes the directory with its contents. It tries again if the directory is not
// empty: a process that is about to end may still write or rename a file there.
func (d Dir) Remove() error {
	err := os.RemoveAll(d.Name())
	for tries := 2; errors.Is(err, unix.ENOTEMPTY) && tries > 0; tries-- {
		err = os.RemoveAll(d.Name())
	}
	return errors.Join(err, d.Close())
}

// sweep removes the directories below parent that processes have left behind:
// directories of this user, closed to others, that no process has locked. Directories
// that cannot be removed stay: another process may be removing them.
func sweep(parent, prefix string) {
	found, _ := filepath.Glob(filepath.Join(parent, prefix+"*")) // the pattern is valid
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !own(info) {
			continue
		}
		if d, err := lock(path); err == nil {
			_ = d.Remove()
		}
	}
}
