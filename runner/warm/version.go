package warm

import (
	"time"

	"golang.org/x/sys/unix"
)

// version identifies a version of a file; the zero value stands for a missing file.
// A program that replaces a file may give the new one the same size and mtime, but
// not the same ctime.
type version struct {
	size, mtime, ctime int64
	inode              uint64
	mode               uint32
}

// identity returns the current version of a file.
func identity(name string) version {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return version{}
	}
	v := version{size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), inode: st.Ino, mode: st.Mode}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		v.inode = 0 // overlayfs may change the inode number of a directory
	}
	return v
}

// snapshot has the versions of some files at one time.
type snapshot struct {
	at    time.Time
	files map[string]version
}

// changed returns a file that has another version now than in the snapshot, and
// whether there is one. A file that is not in the snapshot counts as changed if its
// ctime is later. That is wrong if the clock was set back since; the next snapshot
// has the file.
func (s snapshot) changed(now map[string]version) (string, bool) {
	for name, v := range now {
		if was, known := s.files[name]; known && v != was || !known && v.ctime > s.at.UnixNano() {
			return name, true
		}
	}
	return "", false
}
