package controller

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// protectEnv names, to a run, the file by which its role protects a section from
// being cut short: while the file exists, the run is not stopped because its
// object is deleted, gone or changed. The run's timeout, and the end of the
// operator, wait for no one.
const protectEnv = "ROLEWRIGHT_PROTECT"

// protectFile is that file's name in the run's private data directory.
const protectFile = "protect"

// sectionPoll is how often a run that is to be stopped is looked at.
const sectionPoll = 100 * time.Millisecond

// barrier stands where the file would be once the run is being stopped: a link
// through which no one can create a file, so that no section begins then.
const barrier = "stopped/by-the-operator"

// section is the file by which a run protects itself.
type section string

func (r *reconciler) section(s *scope) section {
	return section(filepath.Join(r.store.Object(s.uid()), s.runID, protectFile))
}

// bar reports whether no protected section is in progress, and prevents any
// further one.
func (s section) bar() bool {
	err := os.Symlink(barrier, string(s))
	if !errors.Is(err, fs.ErrExist) {
		return true // where there is no directory, there is no run yet
	}
	target, err := os.Readlink(string(s))
	return err == nil && target == barrier || errors.Is(err, fs.ErrNotExist) && s.bar()
}

// withdraw ends the run for cause as soon as it is in no protected section;
// before is called right before it is ended. It returns true if a section holds
// that up, and did not before.
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
