package contentcopy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// lockSuffix ends the name of a copy's lock file. A process locks it as long as it uses the copy. It is a regular file,
// because NFS makes locks known to other nodes only for files that are open for writing.
const lockSuffix = ".lock"

// newRoot makes the directory of a copy in parent, and its locked lock file.
func newRoot(parent string) (root string, lock *os.File, err error) {
	const tries = 10 // another process may lock and remove the new file first
	for range tries {
		root = filepath.Join(parent, uuid.NewString())
		if lock, err = os.OpenFile(root+lockSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return "", nil, err
		}
		if err = lockIn(lock, root); err == nil {
			return root, lock, os.Mkdir(root, 0o700)
		}
		_ = lock.Close()
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			_ = os.Remove(root + lockSuffix)
			break
		}
	}
	return "", nil, err
}

// lockIn locks the open lock file of a copy. The error is [fs.ErrNotExist] if the file has been removed.
func lockIn(lock *os.File, root string) error {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	mine, err := lock.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(root + lockSuffix)
	if err == nil && !os.SameFile(mine, now) {
		err = fs.ErrNotExist
	}
	return err
}

// removeRoot removes a copy and then its lock file, so that what cannot be removed is tried again.
func removeRoot(root string) {
	if os.RemoveAll(root) == nil {
		_ = os.Remove(root + lockSuffix)
	}
}

// removeLeft removes the copies of processes that have ended.
func removeLeft(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		root, isLock := strings.CutSuffix(filepath.Join(parent, e.Name()), lockSuffix)
		if !isLock {
			continue
		}
		lock, err := os.OpenFile(root+lockSuffix, os.O_RDWR, 0)
		if err == nil && lockIn(lock, root) == nil {
			removeRoot(root)
		}
		_ = lock.Close() // of a nil file, an error
	}
}
