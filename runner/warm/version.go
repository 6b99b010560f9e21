package warm

import (
	"time"

	"golang.org/x/sys/unix"
)

// version is what tells the versions of a file apart; that there is none is one.
// A program that replaces a file may give it the old one's size and time, but not its
// time of change.
type version struct {
	size, mtime, ctime int64
	inode              uint64
	mode               uint32
}

// identity is the version of a file.
func identity(name string) version {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return version{}
	}
	v := version{size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), inode: st.Ino, mode: st.Mode}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		v.inode = 0 // overlayfs may number a directory again
	}
	return v
}

// snapshot is what the versions of some files were at a time.
type snapshot struct {
	at    time.Time
	files map[string]version
}

// changed returns a file that has another version now than then. Of a file that
// the snapshot has not, its time of change tells: perhaps wrongly, by a clock that
// was put back since. The next snapshot has it.
func (s snapshot) changed(now map[string]version) (string, bool) {
	for name, v := range now {
		if was, known := s.files[name]; known && v != was || !known && v.ctime > s.at.UnixNano() {
			return name, true
		}
	}
	return "", false
}
