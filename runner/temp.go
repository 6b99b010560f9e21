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

// Temp is the directory for temporary files (TMPDIR) that the runs of a [Runner]
// share. A process that is killed leaves files there: Ansible's modules unpack
// their arguments and utilities, Kubernetes clients write keys. Such a leftover is
// removed when no run is in progress that may have made it. Files that runs share,
// such as the discovery cache of the Kubernetes client, stay until Close. It is
// safe for concurrent use; nil means no such directory.
type Temp struct {
	dir *lockeddir.Dir

	mu sync.Mutex
	// begun counts the runs so far; live has the numbers of the runs in progress.
	begun uint64
	live  map[uint64]bool
	// seen maps names in the directory to possible leftovers of runs.
	seen map[string]leftover
}

// leftover is a file that a run may have left. begun is the count of runs when the
// file was first seen: a run with a higher number has not made it.
type leftover struct {
	info  fs.FileInfo
	begun uint64
}

// tempPrefix begins the names of the directories of Temps.
const tempPrefix = "rolewright-tmp-"

// NewTemp makes a directory for temporary files below parent, which other users may
// share, and removes the directories of processes that no longer exist.
func NewTemp(parent string) (*Temp, error) {
	dir, err := lockeddir.Make(parent, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the directory for temporary files of runs: %w", err)
	}
	return &Temp{dir: dir, live: map[uint64]bool{}, seen: map[string]leftover{}}, nil
}

// Close removes the directory. It is called when no run is in progress and none
// will begin.
func (t *Temp) Close() {
	if t != nil {
		_ = t.dir.Remove() // else the next process does
	}
}

// ensure makes the directory again if a cleaner of temporary files has removed it. It is
// called before begin.
func (t *Temp) ensure() error {
	if t == nil {
		return nil
	}
	if err := t.dir.Ensure(); err != nil {
		return fmt.Errorf("the directory for temporary files of runs: %w", err)
	}
	return nil
}

// environ adds the directory to an environment.
func (t *Temp) environ(environ []string) []string {
	if t == nil {
		return environ
	}
	return append(environ[:len(environ):len(environ)], "TMPDIR="+t.dir.Name())
}

// longestControlDir is the length limit, in bytes, of the path of a directory for
// ssh's sockets: the path of a socket has at most 107 bytes, of which Ansible needs
// 11, and ssh 17 while it makes a socket.
const longestControlDir = 79

// begin is called before a run begins. controlDir is the path of the run's own
// directory for ssh's sockets, which Ansible makes; empty if the path would be too
// long. The caller calls ended when nothing is left of the run's processes.
func (t *Temp) begin() (controlDir string, ended func()) {
	if t == nil {
		return "", func() {}
	}
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

// transient matches the names, with random parts, of files that are made for the
// life of one process: those of Ansible's modules, and the default names of Python's
// packages tempfile and multiprocessing and of mktemp(1).
var transient = regexp.MustCompile(`^(ansible_.*_payload_|tmp|pymp-)[a-z0-9_]{8}|^tmp\.[A-Za-z0-9]{10}$`)

// leftLocked returns the paths of the leftovers that no run in progress can have made:
// they were seen before the oldest of these runs began.
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
