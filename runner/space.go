package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/rundir"
)

// ErrNoSpace is wrapped by the error of a run that did not take place, or was
// stopped, because the file system of its private data directory is full. In
// the first case [Result.Started] is zero.
var ErrNoSpace = errors.New("no space left for the run's files")

// ErrTooLarge is wrapped by the error of a run that was stopped because its
// private data directory had grown beyond [Request.MaxBytes].
var ErrTooLarge = errors.New("the run has written too much")

// IsNoSpace tells whether an error says that a file system is full, or that
// its user's quota is used up.
func IsNoSpace(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// A file system with less room than this is as good as full: ansible-runner
// writes a file for each event, most of them a few KiB. The probe is smaller, to
// leave space for the run.
const (
	fewBytes  = 64 << 10
	fewFiles  = 8
	probeSize = 16 << 10
)

// full tells whether the file system of dir is as good as full, by its own numbers.
func full(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	// Some file systems do not count files.
	return st.Bavail*uint64(st.Bsize) < fewBytes || st.Files > 0 && st.Ffree < fewFiles
}

// exhausted tells whether a file cannot be written in dir because no space is left. Unlike
// full it notices quotas, and space that only the superuser may use.
func exhausted(dir string) bool {
	name := filepath.Join(dir, ".probe")
	err := plainfile.Replace(name, make([]byte, probeSize))
	if err == nil {
		err = os.Remove(name)
	}
	return IsNoSpace(err)
}

// guard watches over the private data directory of a run in progress.
type guard struct {
	req    Request
	cancel context.CancelCauseFunc
	quit   chan struct{}
	group  sync.WaitGroup
	// noSpace is true if the file system was full at some check; read it after stop.
	noSpace bool
	// since is when the file system became full, zero if it is not; patience is how
	// long the run may go on then.
	since    time.Time
	patience time.Duration
	// pipes are the named pipes that clear found in place of artifacts.
	pipes []*os.File
}

// watch guards a run until stop is called; cancel ends the run.
func (r *Runner) watch(req Request, cancel context.CancelCauseFunc) *guard {
	g := &guard{req: req, patience: r.patience, cancel: cancel, quit: make(chan struct{})}
	g.group.Go(g.run)
	return g
}

func (g *guard) stop() {
	close(g.quit)
	g.group.Wait()
	for _, f := range g.pipes {
		_ = f.Close() // nothing was written
	}
}

// guardEvery is the time between two checks of a run's directory. The size of a
// large directory is measured less often, so that measuring takes no more than a
// twentieth (1/guardShare) of the time.
const (
	guardEvery = time.Second
	guardShare = 20
)

func (g *guard) run() {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	var measured time.Time
	var pause time.Duration
	for {
		select {
		case <-g.quit:
			return
		case <-tick.C:
		}
		g.checkSpace()
		g.clear()
		if g.req.MaxBytes <= 0 || time.Since(measured) < pause {
			continue
		}
		start := time.Now()
		if size := rundir.Usage(g.req.Dir); size > g.req.MaxBytes {
			g.cancel(fmt.Errorf("%w: %d bytes, and %d are allowed", ErrTooLarge, size, g.req.MaxBytes))
		}
		measured = time.Now()
		pause = guardShare * measured.Sub(start)
	}
}

// fullPatience is how long a run may go on without space. There is no proof of
// what it does then, and it may hang: ansible-runner's callback plugin for
// ansible-playbook does not release its lock when it cannot write.
const fullPatience = 20 * time.Second

func (g *guard) checkSpace() {
	if !full(g.req.Dir) || !exhausted(g.req.Dir) {
		g.since = time.Time{}
		return
	}
	g.noSpace = true
	if g.since.IsZero() {
		g.since = time.Now()
	}
	if time.Since(g.since) > g.patience {
		g.cancel(fmt.Errorf("%w since %s", ErrNoSpace, g.since.UTC().Format(time.RFC3339)))
	}
}

// clear removes what a playbook has put where ansible-runner writes its last
// files: ansible-runner would write to the target of a link, and wait forever for
// a reader of a pipe.
func (g *guard) clear() {
	root, err := plainfile.OpenDir(g.req.Dir)
	if err != nil {
		return // the run will say so
	}
	defer root.Close()
	for _, name := range []string{"rc", "status"} {
		path := filepath.Join("artifacts", g.req.ID, name)
		fi, err := root.Lstat(path)
		if err != nil || fi.Mode().IsRegular() {
			continue
		}
		if fi.Mode()&fs.ModeNamedPipe != 0 {
			// Opening it unblocks writers that already wait for a reader.
			if f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				g.pipes = append(g.pipes, f)
			}
		}
		_ = root.RemoveAll(path) // else the run ends without a result
	}
}
