package runstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/rundir"
)

const (
	// onceName begins the names of runner roots for one run.
	onceName = "once-"
	// onceKept is how many of them are kept after their runs.
	onceKept = 20
	// onceStarts is how long a process may take from the creation of its root to its lock.
	onceStarts = time.Minute
)

// OnceRoot creates a runner root for one run, in runnerRoot. A store takes each run that it did not begin
// for one of an earlier process, so processes that work at the same time must not share a root. The root is
// in use until the caller closes lock.
func OnceRoot(runnerRoot string) (root string, lock *os.File, err error) {
	root, err = Dir(runnerRoot, filepath.Join(clustersDir, onceName+uuid.NewString()))
	if err == nil {
		lock, err = locked(root, unix.LOCK_EX) // [TidyOnce] of another run may have it for a moment
	}
	return root, lock, err
}

// locked opens a root and locks it as how says.
func locked(root string, how int) (*os.File, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", root, err), dir.Close())
	}
	return dir, nil
}

// TidyOnce is called with what [OnceRoot] has returned, after the run. It removes the root if it has no
// run. Of the others beside it, it keeps those in use and the newest ones. From runs whose process was
// killed, it removes the files given, as [Store.Settled] does.
func TidyOnce(root string, given ...string) error {
	entries, err := os.ReadDir(filepath.Dir(root))
	errs := []error{err}
	began := map[string]time.Time{}
	var ended []string
	for _, e := range entries {
		r := filepath.Join(filepath.Dir(root), e.Name())
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(strings.TrimLeft(e.Name(), "."), onceName) {
			continue
		}
		var lock *os.File
		if r != root {
			if lock, err = locked(r, unix.LOCK_EX|unix.LOCK_NB); err != nil {
				continue // in use, or removed
			}
		}
		objects, _ := os.ReadDir(filepath.Join(r, runsDir))
		switch {
		case strings.HasPrefix(e.Name(), "."): // its removal was cut short
			errs = append(errs, rundir.Remove(r))
		case len(objects) > 0 && r != root:
			defer lock.Close()
			began[r], ended = info.ModTime(), append(ended, r)
			errs = append(errs, stripAll(r, given)...)
			continue
		case len(objects) == 0 && (r == root || time.Since(info.ModTime()) > onceStarts):
			errs = append(errs, rundir.Remove(r))
		}
		_ = lock.Close() // of the own root, a nil file: an error. The process that has just made a root may wait for its lock.
	}
	slices.SortFunc(ended, func(a, b string) int { return began[b].Compare(began[a]) })
	for _, r := range ended[min(onceKept-1, len(ended)):] {
		errs = append(errs, rundir.Remove(r))
	}
	return errors.Join(errs...)
}

// stripAll strips all runs in a root.
func stripAll(root string, given []string) (errs []error) {
	objects, _ := os.ReadDir(filepath.Join(root, runsDir))
	for _, o := range objects {
		runs, _ := os.ReadDir(filepath.Join(root, runsDir, o.Name()))
		for _, run := range runs {
			if run.IsDir() {
				errs = append(errs, rundir.Strip(filepath.Join(root, runsDir, o.Name(), run.Name()), given...))
			}
		}
	}
	return errs
}
