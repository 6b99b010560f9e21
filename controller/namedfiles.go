package controller

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// namedFiles decides which of the files that a role or playbook names literally are
// inputs.
type namedFiles struct {
	// without are the patterns of the watch; those that begin with "-" leave files out.
	without []string
	// within are directories that count as a whole, so that their files need not count again.
	within []string
	// mayWrite reports whether the operator may write or replace a file. What a run may
	// write itself must not start the next run.
	mayWrite func(path string) bool
}

func (n namedFiles) counts(path string) bool {
	for _, dir := range n.within {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return false
		}
	}
	for _, pattern := range n.without {
		pattern, not := strings.CutPrefix(pattern, "-")
		if match, _ := filepath.Match(pattern, path); match && not { // patterns were checked when they were read
			return false
		}
	}
	return !isOfThePlace(path) && !n.mayWrite(path)
}

// isOfThePlace reports whether a file describes the place where the operator runs, changes by
// itself, or is temporary. Such files do not count, since a restart must not run every object.
func isOfThePlace(path string) bool {
	switch path {
	case "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/machine-id", "/etc/mtab":
		return true
	}
	dirs := []string{"/proc/", "/sys/", "/dev/", "/run/", "/tmp/", "/var/run/", "/var/tmp/", "/var/log/"}
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path+"/", dir) })
}

// mayWrite reports whether this process may write, create or replace a file.
func mayWrite(path string) bool {
	err := unix.Access(path, unix.W_OK)
	for errors.Is(err, unix.ENOENT) && path != "/" {
		path = filepath.Dir(path)
		err = unix.Access(path, unix.W_OK)
	}
	return err == nil || unix.Access(filepath.Dir(path), unix.W_OK) == nil
}
