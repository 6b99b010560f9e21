// Package plainfile opens, reads and replaces small files in directories into
// which a playbook may have put links, pipes or devices: none of them blocks, no
// link is followed, and files are written completely or not at all. Opening waits
// up to ten seconds for a file descriptor.
//
// It knows names and modes, and nothing of what the files are for.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotPlain is wrapped if a file is not regular or is too large, or a directory
// is not a directory.
var ErrNotPlain = errors.New("not what it should be")

// A process without a file descriptor for a moment must not take what a run has
// left for missing, so opening is repeated for up to patience: other runs end.
const (
	patience = 10 * time.Second
	pause    = 200 * time.Millisecond
)

// patiently repeats open while no file descriptor is left.
func patiently(open func() (*os.File, error)) (*os.File, error) {
	for until := time.Now().Add(patience); ; time.Sleep(pause) {
		f, err := open()
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || time.Now().After(until) {
			return f, err
		}
	}
}

// Open opens a regular file for reading. It waits up to ten seconds for a file descriptor.
func Open(name string) (*os.File, error) {
	return patiently(func() (*os.File, error) { return open(name) })
}

func open(name string) (*os.File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// regular returns f if it is a regular file, else it closes f and returns an error.
func regular(f *os.File) (*os.File, error) {
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w: it is not a regular file", f.Name(), ErrNotPlain)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func openIn(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// OpenBelow opens a regular file for reading. name is relative to dir. Links in
// name that lead out of dir are refused, and so is a file that is a link itself.
// It waits up to ten seconds for a file descriptor.
func OpenBelow(dir, name string) (*os.File, error) {
	return patiently(func() (*os.File, error) { return openBelow(dir, name) })
}

func openBelow(dir, name string) (*os.File, error) {
	root, err := OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	named, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	f, err := openIn(root, name)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !os.SameFile(named, fi) {
		err = fmt.Errorf("%s: %w: it is a link", filepath.Join(dir, name), ErrNotPlain)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a regular file of at most limit bytes.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// ReadIn is [Read] for a file in an open directory. A link that stays in the
// directory is followed.
func ReadIn(dir *os.Root, base string, limit int64) ([]byte, error) {
	f, err := openIn(dir, base)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// readAll reads a file of at most limit bytes, and closes it.
func readAll(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: %w: it has more than %d bytes", f.Name(), ErrNotPlain, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// OpenDir opens a directory that is not a link. Operations on the root stay inside it.
func OpenDir(dir string) (*os.Root, error) {
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	base := filepath.Base(dir)
	fi, err := parent.Lstat(base)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is not a directory", dir, ErrNotPlain)
	}
	return parent.OpenRoot(base)
}

// successor is the name under which the new content of a file is written.
func successor(base string) string { return "." + base + ".new" }

// Reserve reserves size bytes of the disk for the next [Replace] of name by this
// or another process, so that Replace succeeds even if the disk is full by then.
// File systems that do not write in place cannot guarantee that.
func Reserve(name string, size int) error {
	root, err := OpenDir(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	defer root.Close()
	if err := fill(root, successor(filepath.Base(name)), make([]byte, size)); err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	return nil
}

// Replace replaces a file by one with mode 0600 and the content data, or leaves it
// as it was. It never writes into what is at the name before.
func Replace(name string, data []byte) error {
	root, err := OpenDir(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("replace file: %w", err)
	}
	defer root.Close()
	return ReplaceIn(root, filepath.Base(name), data)
}

// ReplaceIn is [Replace] for a file in an open directory.
func ReplaceIn(root *os.Root, base string, data []byte) error {
	if err := fill(root, successor(base), data); err != nil {
		return fmt.Errorf("replace file: %w", err)
	}
	err := root.Rename(successor(base), base)
	if fi, statErr := root.Lstat(base); err != nil && statErr == nil && fi.IsDir() {
		if err = root.RemoveAll(base); err == nil {
			err = root.Rename(successor(base), base)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace file: %w", err), root.Remove(successor(base)))
	}
	return nil
}

// fill writes data to the named file: into the existing one if reserved accepts it, else
// into a new one.
func fill(root *os.Root, name string, data []byte) error {
	f, err := reserved(root, name)
	if err != nil {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		if f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(name))
	}
	return nil
}

// reserved opens an existing file for writing. The file must not have another name,
// under which something else could use it.
func reserved(root *os.Root, name string) (*os.File, error) {
	fi, err := root.Lstat(name)
	if err == nil && !lonely(fi) {
		err = ErrNotPlain
	}
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err = f.Stat(); err != nil || !lonely(fi) {
		return nil, errors.Join(ErrNotPlain, err, f.Close())
	}
	return f, nil
}

func lonely(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && fi.Mode().IsRegular() && st.Nlink == 1
}
