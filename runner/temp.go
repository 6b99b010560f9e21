package runner

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"github.com/rolewright/rolewright/runner/internal/lockeddir"
)

// Temp is the directory that the runs of a [Runner] have for temporary files
// (TMPDIR). A process that is killed leaves some there: Ansible's modules unpack
// their arguments and utilities, Kubernetes clients write keys. What runs have
// left is removed when none of those is in progress that can have made it; what
// they keep there for each other, as the Kubernetes client keeps what it has
// discovered, stays until Close. It is safe for concurrent use; nil is none.
type Temp struct {
	dir lockeddir.Dir

	mu sync.Mutex
	// begun counts the runs; live are the numbers of those in progress.
	begun uint64
	live  map[uint64]bool
	// seen has what may be left of runs: that and its file, with begun at the time
	// it was seen first, which no run has made that began later.
	seen map[string]leftover
}

type leftover struct {
	info  fs.FileInfo
	begun uint64
}

// tempPrefix begins the names of the directories of Temps.
const tempPrefix = "rolewright-tmp-"

// NewTemp makes a directory for temporary files below one that may be
// everybody's, and removes those of processes that are no more.
func NewTemp(parent string) (*Temp, error) {
	dir, err := lockeddir.Make(parent, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the directory for temporary files of runs: %w", err)
	}
	return &Temp{dir: dir, live: map[uint64]bool{}, seen: map[string]leftover{}}, nil
}

// Close removes the directory. It is called when no run is in progress, and none
// comes.
func (t *Temp) Close() {
	if t != nil {
		_ = t.dir.Remove() // the next process does
	}
}

// environ adds the directory to an environment.
func (t *Temp) environ(environ []string) []string {
	if t == nil {
		return environ
	}
	return append(environ[:len(environ):len(environ)], "TMPDIR="+t.dir.Name())
}

// longestControlDir is the most bytes that the path of a directory for ssh's
// sockets may have: that of a socket has at most 107, of which Ansible takes 11
// and ssh, while it makes one, 17.
const longestControlDir = 79

// begin is called before a run begins. It returns the path of the run's own
// directory for ssh's sockets, which Ansible makes; empty if there can be none.
// ended is called when nothing is left of the run's processes.
func (t *Temp) begin() (controlDir string, ended func()) {
	if t == nil {
		return "", func() {}
	}
	// Someone may clean up where it stands.
	_ = os.Mkdir(t.dir.Name(), dirMode)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	number := t.begun
	t.live[number] = true
	dir := filepath.Join(t.dir.Name(), "cp"+strconv.FormatUint(number, 10))
	if len(dir) <= longestControlDir {
		controlDir = dir
	}
	return controlDir, func() {
		t.mu.Lock()
		delete(t.live, number)
		left := append(t.leftLocked(), dir)
		t.mu.Unlock()
		for _, path := range left {
			_ = os.RemoveAll(path) // else the end of the next run does
		}
	}
}

// transient matches the names of what is made for the life of one process, by
// random parts: a module's, and those of Python's packages tempfile and
// multiprocessing, and of mktemp(1), where no other name is given.
var transient = regexp.MustCompile(`^(ansible_.*_payload_|tmp|pymp-)[a-z0-9_]{8}|^tmp\.[A-Za-z0-9]{10}$`)

// leftLocked are the paths of what was seen when no run was in progress that is now.
func (t *Temp) leftLocked() []string {
	oldest := t.begun + 1
	for number := range t.live {
		oldest = min(oldest, number)
	}
	entries, err := os.ReadDir(t.dir.Name())
	if err != nil {
		return nil // the end of the next run sees it
	}
	var left []string
	seen := map[string]leftover{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !transient.MatchString(entry.Name()) {
			continue
		}
		it, known := t.seen[entry.Name()]
		if !known || !os.SameFile(it.info, info) {
			it = leftover{info: info, begun: t.begun}
		}
		if seen[entry.Name()] = it; it.begun < oldest {
			left = append(left, filepath.Join(t.dir.Name(), entry.Name()))
		}
	}
	t.seen = seen
	return left
}
