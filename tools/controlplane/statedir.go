package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errHeld says that another process runs a control plane in the directory.
var errHeld = errors.New("another control plane runs in this directory")

// errForeign says that the directory holds files of others, which we must not remove.
var errForeign = errors.New("the directory is not empty and no control plane made it")

// lockFile marks a state directory as ours. It is locked for as long as the control plane runs, so that a process
// counts as dead no matter how it died, and it contains the process ID of the holder.
const lockFile = "controlplane.lock"

// stateDir is a claimed state directory. The claim ends with release or with the process.
type stateDir struct {
	path string
	lock *os.File
}

func (d stateDir) join(name string) string { return filepath.Join(d.path, name) }

// claimDir makes the directory if needed, takes its lock, and removes what a dead predecessor left behind. It returns
// errHeld or errForeign if the directory cannot be claimed. An empty path means a new temporary
// directory.
func claimDir(path string) (stateDir, error) {
	if path == "" {
		temporary, err := os.MkdirTemp("", "rolewright-controlplane-")
		if err != nil {
			return stateDir{}, fmt.Errorf("make a state directory: %w", err)
		}
		path = temporary
	}
	lock, err := lockPatiently(path)
	if err != nil {
		return stateDir{}, fmt.Errorf("claim %s: %w", path, err)
	}
	dir := stateDir{path: path, lock: lock}
	if err := dir.clear(); err != nil {
		dir.release()
		return stateDir{}, fmt.Errorf("claim %s: %w", path, err)
	}
	return dir, nil
}

// lockPatiently makes the directory and takes its lock. The janitor of a killed predecessor may hold the lock, and
// remove the directory, for a moment.
func lockPatiently(path string) (*os.File, error) {
	for tries := 40; ; tries-- { // 2 seconds
		if err := prepareDir(path); err != nil {
			return nil, err
		}
		lock, err := lockDir(path)
		if err == nil || tries == 0 || !errors.Is(err, errHeld) && !errors.Is(err, os.ErrNotExist) {
			return lock, err
		}
		time.Sleep(pollInterval)
	}
}

// prepareDir refuses a directory with files of others: the directory will be removed with everything in it.
func prepareDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at the directory: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return errForeign
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("list the directory: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(path, lockFile)); len(entries) > 0 && err != nil {
		return errForeign
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close the directory to others: %w", err)
	}
	return nil
}

// lockDir takes the lock of the directory that is at path now. A directory that was removed while we opened it is an error.
func lockDir(path string) (*os.File, error) {
	name := filepath.Join(path, lockFile)
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	// A lock of the open file, not of the process: it ends only when this file is closed, and other processes can query it.
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = errHeld
	}
	if err == nil {
		err = sameFile(file, name)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("take the lock: %w", err)
	}
	return file, nil
}

func sameFile(file *os.File, name string) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	present, err := os.Lstat(name)
	if err != nil {
		return err // os.ErrNotExist if it was removed in the meantime
	}
	if !os.SameFile(opened, present) {
		return errHeld // the process that replaced it is about to take it
	}
	return nil
}

// clear removes everything but the lock, and notes the holder in it.
func (d stateDir) clear() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("list the directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(d.join(entry.Name())); err != nil {
			return fmt.Errorf("remove what is left of an earlier control plane: %w", err)
		}
	}
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	if _, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	return nil
}

// remove deletes the directory and gives up the claim, in this order, so that no one claims a directory that is about to go.
func (d stateDir) remove() error {
	err := os.RemoveAll(d.path)
	d.release()
	if err != nil {
		return fmt.Errorf("remove the state directory: %w", err)
	}
	return nil
}

func (d stateDir) release() {
	_ = d.lock.Close() // closing is what unlocks; what was written does not matter any more
}
