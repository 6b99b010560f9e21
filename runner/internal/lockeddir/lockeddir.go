// Package lockeddir makes directories that show whether the process that made them still
// exists. They are below a directory that other users may share, such as /tmp.
package lockeddir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is a directory of this process, closed to others. It is locked until it is
// removed or this process ends. It is safe for concurrent use.
type Dir struct {
	path string

	mu   sync.Mutex
	file *os.File // has the lock
}

// Name returns the path of the directory.
func (d *Dir) Name() string { return d.path }

// Make makes a directory below parent whose name begins with prefix. First it removes
// such directories of processes that no longer exist.
func Make(parent, prefix string) (*Dir, error) {
	sweep(parent, prefix)
	const tries = 10 // sweep of another process may remove the directory before it is locked
	for range tries {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, fmt.Errorf("%w; set TMPDIR to a directory that can be written", err)
		}
		file, err := lock(path)
		if err == nil {
			return &Dir{path: path, file: file}, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), os.Remove(path))
		}
	}
	return nil, fmt.Errorf("another process removes what is made in %s", parent)
}

// lock opens and locks an existing directory.
func lock(path string) (_ *os.File, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, err
	}
	mine, err := file.Stat()
	if err != nil {
		return nil, err
	}
	now, err := os.Lstat(path)
	if err == nil && !os.SameFile(mine, now) {
		err = os.ErrNotExist
	}
	return file, err
}

// Ensure makes the directory again, and locks it, if it is gone. It is an error if something of
// the same name exists that is not a directory of this user, closed to others.
func (d *Dir) Ensure() error {
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(d.path)
	if err == nil && !own(info) {
		err = fmt.Errorf("%s is another user's, or open to others: remove it", d.path)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if mine, err := d.file.Stat(); err == nil && os.SameFile(mine, info) {
		return nil
	}
	file, err := lock(d.path)
	if err != nil {
		return fmt.Errorf("lock %s: %w", d.path, err)
	}
	_ = d.file.Close() // what it has locked is gone
	d.file = file
	return nil
}

// own tells whether info describes a directory of this user, closed to others.
func own(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode() &^ os.ModeSetgid // as directories have it in a volume of a Pod with fsGroup
	return mode == os.ModeDir|0o700 && ok && int(owner.Uid) == os.Geteuid()
}

// Remove removes the directory with its contents. It tries again if the directory is not
// empty: a process that is about to end may still write or rename a file there.
func (d *Dir) Remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return remove(d.path, d.file)
}

// remove removes a directory, and ends its lock.
func remove(path string, locked *os.File) error {
	err := os.RemoveAll(path)
	for tries := 2; errors.Is(err, unix.ENOTEMPTY) && tries > 0; tries-- {
		err = os.RemoveAll(path)
	}
	return errors.Join(err, locked.Close())
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
		if file, err := lock(path); err == nil {
			_ = remove(path, file)
		}
	}
}
