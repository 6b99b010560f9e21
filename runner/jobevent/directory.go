package jobevent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// errNoFile says that there is no regular file with a name.
var errNoFile = errors.New("no such regular file")

// directory is the job_events directory, which may not exist yet. Once it is
// open, all access is through its descriptor, so that nothing put in its place is
// ever read.
type directory struct {
	path string
	file *os.File
	// awaited is the path that has to appear next: path itself, or the first
	// of its parents that does not exist. The parent of awaited is watched.
	awaited string
	watched string
}

func newDirectory(path string) directory { return directory{path: filepath.Clean(path)} }

func (d *directory) isOpen() bool { return d.file != nil }

func (d *directory) close() {
	if d.file != nil {
		// It was only read.
		_ = d.file.Close()
		d.file = nil
	}
}

// open opens the directory if it exists, and watches it, or else its nearest
// existing parent. It is no error if the directory does not exist.
func (d *directory) open(w *fsnotify.Watcher) error {
	if d.isOpen() {
		return nil
	}
	for {
		fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			d.file = os.NewFile(uintptr(fd), d.path)
			d.watch(w, d.path)
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "open", Path: d.path, Err: err}
		}
		if w == nil || !d.watchParent(w) {
			return nil
		}
		// A closer parent is watched now. The directory may have appeared
		// before the watch began, so look again.
	}
}

func (d *directory) watchParent(w *fsnotify.Watcher) (closer bool) {
	before := d.watched
	for awaited := d.path; ; awaited = filepath.Dir(awaited) {
		parent := filepath.Dir(awaited)
		if parent == awaited {
			return false
		}
		if d.watch(w, parent) {
			d.awaited = awaited
			return len(parent) > len(before)
		}
	}
}

// watch moves the watch to a path. If it fails, polling has to suffice.
func (d *directory) watch(w *fsnotify.Watcher, path string) bool {
	if w == nil || w.Add(path) != nil {
		return false
	}
	if d.watched != "" && d.watched != path {
		// The old watch may have ended with the directory that it watched.
		_ = w.Remove(d.watched)
	}
	d.watched = path
	return true
}

// list calls visit with each name until visit returns false. It reads the names
// in batches, so that it does not hold all of them.
func (d *directory) list(visit func(name string) bool) error {
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := d.file.Readdirnames(1024)
		for _, name := range names {
			if !visit(name) {
				return nil
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (d *directory) fd() int { return int(d.file.Fd()) }

func (d *directory) hasFile(name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// read decodes an event file. It does not even open anything but a regular file,
// because that can block (a pipe) or have effects (a device). If one takes the
// file's place in between, O_NONBLOCK and the second check prevent harm.
func (d *directory) read(name string) (Event, error) {
	if !d.hasFile(name) {
		return Event{}, errNoFile
	}
	fd, err := unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP):
		return Event{}, errNoFile
	case err != nil:
		return Event{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return Event{}, errNoFile
	}
	return Decode(file)
}
