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

// errNoFile tells that there is no regular file of a name.
var errNoFile = errors.New("no such regular file")

// directory is the job_events directory, which may not exist yet. Once open it
// is held by descriptor, so that nothing put in its place is ever read.
type directory struct {
	path string
	file *os.File
	// awaited is the path that has to appear next: path itself, or the first
	// of its parents that does not exist. Its parent is watched.
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

// open opens the directory if it is there, and has it, or the nearest parent
// that exists, watched. That it is not there is no error.
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
		// A closer parent is watched now. What is missing may have appeared
		// before that.
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

// watch moves the watch to a path. If it cannot, the poll has to do.
func (d *directory) watch(w *fsnotify.Watcher, path string) bool {
	if w == nil || w.Add(path) != nil {
		return false
	}
	if d.watched != "" && d.watched != path {
		// It may have gone with what it watched.
		_ = w.Remove(d.watched)
	}
	d.watched = path
	return true
}

// list calls visit with every name, in batches so as not to hold them all,
// until it returns false.
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

// read decodes an event file. Anything but a regular file is not even opened,
// as that can block (a pipe) or act (a device); should one take the file's
// place in between, O_NONBLOCK and the second look keep the harm out.
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
