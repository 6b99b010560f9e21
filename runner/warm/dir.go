package warm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// dirPrefix begins the names of the directories of pools.
const dirPrefix = "rolewright-warm-"

// longestDir is the most bytes that the path of a pool's directory may have:
// that of a socket below it, /12345/socket, has at most 107.
const longestDir = 94

// poolDir is the directory in which the servers of a pool have theirs. It is
// locked as long as this process lives, so that others see whether it does.
type poolDir struct{ *os.File }

// makeDir makes a directory below one that may be everybody's, as /tmp is.
func makeDir(parent string) (poolDir, error) {
	const tries = 10 // somebody who sweeps may be faster
	for range tries {
		path, err := os.MkdirTemp(parent, dirPrefix)
		if err != nil {
			return poolDir{}, fmt.Errorf("make the directory of the fork servers: %w; set TMPDIR to a directory that can be written", err)
		}
		if len(path) > longestDir {
			return poolDir{}, errors.Join(fmt.Errorf("%s is too long for the path of a socket; set TMPDIR to a shorter one", parent), os.Remove(path))
		}
		d, err := lockDir(path)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return poolDir{}, errors.Join(fmt.Errorf("lock %s: %w", path, err), os.Remove(path))
		}
	}
	return poolDir{}, fmt.Errorf("make the directory of the fork servers: somebody removes it from %s", parent)
}

// lockDir takes the lock of a directory that is there.
func lockDir(path string) (_ poolDir, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return poolDir{}, err //nolint:wrapcheck // it says what it is
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return poolDir{}, err //nolint:wrapcheck // as above
	}
	mine, err := file.Stat()
	if err != nil {
		return poolDir{}, err //nolint:wrapcheck // as above
	}
	now, err := os.Lstat(path)
	if err == nil && !os.SameFile(mine, now) {
		err = os.ErrNotExist
	}
	return poolDir{file}, err //nolint:wrapcheck // as above
}

// remove removes the directory with all that is in it.
func (d poolDir) remove() error {
	return errors.Join(os.RemoveAll(d.Name()), d.Close())
}

// sweepDirs removes what pools have left below a directory that did not live to
// do it: directories of this user, closed to others, that nobody has locked.
// What cannot be removed stays: somebody else may be at it.
func sweepDirs(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*")) // the pattern is right
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != os.ModeDir|0o700 {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
			continue
		}
		if d, err := lockDir(path); err == nil {
			_ = d.remove()
		}
	}
}
