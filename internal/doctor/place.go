package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Place is a directory that runs write to.
type Place struct {
	// Check is the name of the check.
	Check string
	Path  string
	// Made is true if the operator creates it, with its parents.
	Made bool
	// Optional places may be missing: the operator has an alternative.
	Optional bool
	// ReadOnly places are useful even if they cannot be written.
	ReadOnly bool
	// Alone is true in a Pod: only processes of the Pod can reach the place. The
	// kubelet makes volumes there writable for all users.
	Alone bool
	// Remedy says how to choose another place.
	Remedy string
}

// leastSpace is roughly the space that one or two runs need, in bytes.
const leastSpace = 64 << 20

// CheckPlace checks whether the operator can write to a place, and whether other users can.
// It creates a temporary file there.
func CheckPlace(p Place) Finding {
	f := Finding{Check: p.Check, State: OK, Found: p.Path, Remedy: p.Remedy}
	path := p.Path
	info, err := os.Stat(path)
	for p.Made && errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	fail := func(format string, args ...any) Finding {
		f.State = Failed
		if p.Optional {
			f.State = Note
		}
		f.Found = fmt.Sprintf(format, args...)
		return f
	}
	switch {
	case p.Path == "":
		return fail("it is not set")
	case err != nil:
		return fail("%v", err)
	case !info.IsDir():
		return fail("%s is not a directory", path)
	}
	probe, err := os.CreateTemp(path, ".rolewright-doctor-")
	if err != nil && p.ReadOnly {
		f.Found, f.Remedy = path+" cannot be written, and need not be", ""
		return f
	}
	if err != nil {
		return fail("%s cannot be written: %v", path, cause(err))
	}
	_ = errors.Join(probe.Close(), os.Remove(probe.Name())) // the file is not needed any more
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return fail("%s: %v", path, err)
	}
	mode := info.Mode()
	switch {
	case mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 && !p.Alone:
		return fail("%s is world-writable (mode %#o): any user can replace its files", path, mode.Perm())
	case disk.Bavail*uint64(disk.Bsize) < leastSpace:
		f.State, f.Found = Note, fmt.Sprintf("%s has %d MiB left", path, disk.Bavail*uint64(disk.Bsize)>>20)
	case mode.Perm()&0o020 != 0 && mode&fs.ModeSticky == 0 && !p.Alone:
		f.State, f.Found = Note, fmt.Sprintf("%s is group-writable (mode %#o)", path, mode.Perm())
	case disk.Flags&unix.ST_NOEXEC != 0:
		f.Found += ", mounted noexec: a role that executes files in it fails"
		f.Remedy = ""
	default:
		f.Remedy = ""
	}
	return f
}

func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// CheckAccounts says whether users other than root can write the list of users:
// a process in a container that can do so can become root there
// (CVE-2025-7195).
func CheckAccounts(path string) Finding {
	f := Finding{Check: "accounts", State: OK, Found: path + " can be written by its owner only"}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Found = path + " is not there, and is not needed"
	case err != nil:
		f.State, f.Found = LeftOut, err.Error()
	case info.Mode().Perm()&0o022 != 0:
		f.State = Failed
		f.Found = fmt.Sprintf("%s can be written by more than its owner (mode %#o): a run can make itself root (CVE-2025-7195)", path, info.Mode().Perm())
		f.Remedy = "correct the mode in the image: chmod 644 " + path
	}
	return f
}
