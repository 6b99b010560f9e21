package controller

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// protectEnv tells a run the file with which its role protects a section from
// being cut short: while the file exists, the run is not stopped because its
// object is deleted, gone or changed. The run's timeout and the operator's stop do
// not wait for it.
const protectEnv = "ROLEWRIGHT_PROTECT"

// protectFile is that file's name in the run's private data directory.
const protectFile = "protect"

// sectionPoll is how often a protected section is checked when its run has to be stopped.
const sectionPoll = 100 * time.Millisecond

// barrier is the target of a symbolic link that takes the file's place once the run is
// being stopped. No file can be created through the link, so no section can begin.
const barrier = "stopped/by-the-operator"

// section is the path of the file with which a run protects a section.
type section string

func (r *reconciler) section(s *scope) section {
	return section(filepath.Join(r.store.Object(s.uid()), s.runID, protectFile))
}

// bar prevents any further protected section, and returns true; it returns false if
// one is in progress.
func (s section) bar() bool {
	err := os.Symlink(barrier, string(s))
	if !errors.Is(err, fs.ErrExist) {
		return true // without a directory, there is no run yet
	}
	target, err := os.Readlink(string(s))
	return err == nil && target == barrier || errors.Is(err, fs.ErrNotExist) && s.bar()
}

// withdraw ends the run for cause as soon as it is in no protected section. It calls
// before right before it ends the run. It returns true if a section delays the end for
// the first time.
func (l *lifetime) withdraw(cause error, s section, before func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	first := l.held == nil
	if !first {
		l.held.Stop()
	}
	if s.bar() {
		before()
		l.cancel(cause)
		return false
	}
	l.held = time.AfterFunc(sectionPoll, func() { l.withdraw(cause, s, before) })
	return first
}
