package runstore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner/rundir"
)

// Retention says which ended runs of an object are kept: the newest Runs and, of the
// runs before them, the newest Failed that failed, if they are younger than Age. For
// each number, 0 keeps none, and a negative number keeps all.
type Retention struct {
	Runs, Failed int
	Age          time.Duration
}

// shelf has the ended runs of one object.
type shelf struct {
	indexed bool
	runs    []kept
	busy    map[string]bool // the runs whose directories must not be touched
	keep    *Retention      // nil until the object is reconciled
}

// kept is an ended run.
type kept struct {
	id       string
	finished time.Time
	bytes    int64
	failed   bool
	// unsettled is true if the run may be an earlier process's, whose end has yet to
	// be read. It becomes false once the object is reconciled.
	unsettled bool
	// noted is true if the run's end was noted: then its directory no longer has the
	// files that only the run needed.
	noted bool
}

// ageEvery is how often the store looks for runs that have become too old.
const ageEvery = time.Minute

// Start implements manager.Runnable, which a manager starts once it leads: it reads what
// earlier processes have left, removes remains, and enforces the limits until ctx ends.
func (a *Store) Start(ctx context.Context) error {
	a.readAll(ctx)
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.enforce()
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-tick.C:
		}
	}
	return nil
}

// readAll reads what earlier processes have left, and removes remains.
func (a *Store) readAll(ctx context.Context) {
	entries, err := os.ReadDir(a.runs)
	if err != nil {
		a.log.Error(err, "Directories of earlier runs cannot be read")
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return
		}
		switch name := entry.Name(); {
		case !entry.IsDir():
		case name[0] == '.':
			a.remove(filepath.Join(a.runs, name)) // the removal of a deleted object was cut short
		default:
			a.index(name)
			a.mu.Lock()
			a.tidy(name)
			a.mu.Unlock()
		}
	}
}

// begin reserves the directory of a run that is about to start, or of an earlier process's run that goes on.
func (a *Store) begin(object, run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shelf(object)
	s.busy[run] = true
	a.take(object, s, func(k kept) bool { return k.id == run })
}

// shelf returns the shelf of an object, and creates it if necessary. The caller must hold the lock.
func (a *Store) shelf(object string) *shelf {
	s := a.shelves[object]
	if s == nil {
		s = &shelf{busy: map[string]bool{}}
		a.shelves[object] = s
	}
	return s
}

// index reads an object's directory, if that was not done yet.
func (a *Store) index(object string) {
	a.mu.Lock()
	indexed := a.shelf(object).indexed
	a.mu.Unlock()
	if indexed {
		return
	}
	dir := filepath.Join(a.runs, object)
	past, remains, err := rundir.Runs(dir)
	if err != nil {
		a.log.Error(err, "Earlier runs of an object cannot be read", "directory", dir)
	}
	found := make([]kept, 0, len(past))
	for _, p := range past {
		found = append(found, readKept(dir, p))
	}
	a.mu.Lock()
	s := a.shelf(object)
	var old, unstripped []string
	if !s.indexed {
		s.indexed = true
		for _, k := range found {
			if !s.busy[k.id] && !s.has(k.id) {
				k.unsettled = s.keep == nil
				a.add(s, k)
				if !k.unsettled && !k.noted { // the object was reconciled first
					unstripped = append(unstripped, k.id)
				}
			}
		}
		for name, run := range remains {
			if !s.busy[run] {
				old = append(old, filepath.Join(dir, name))
			}
		}
	}
	a.mu.Unlock()
	a.strip(object, unstripped)
	a.remove(old...)
}

// strip removes the files that only the runs needed, if their process had no time to do it.
func (a *Store) strip(object string, runs []string) {
	for _, id := range runs {
		dir := filepath.Join(a.runs, object, id)
		if err := rundir.Strip(dir, a.opts.Given...); err != nil {
			a.log.Error(err, "Secrets of an earlier run cannot be removed", "directory", dir)
		}
	}
}

func (s *shelf) has(run string) bool {
	return slices.ContainsFunc(s.runs, func(k kept) bool { return k.id == run })
}

// readKept returns what a directory says about its run.
func readKept(object string, p rundir.Past) kept {
	dir := filepath.Join(object, p.ID)
	k := kept{id: p.ID, finished: p.Finished}
	if o, err := readOutcome(dir); err == nil && o.Run.ID == p.ID {
		k.bytes, k.failed, k.noted = max(o.Bytes, 0), o.Run.Result == status.Failed, true
	} else {
		k.bytes = rundir.Usage(dir)
	}
	return k
}

// add puts a run on a shelf. The caller must hold the lock.
func (a *Store) add(s *shelf, k kept) {
	s.runs = append(s.runs, k)
	a.bytes += k.bytes
	a.count++
	a.opts.Metrics.Artifacts(a.count, a.bytes)
}

// Settled must be called when no run of the object is in progress or unrecorded. It notes
// the object's retention, and removes the files that only earlier processes' runs needed,
// if their process had no time to do it.
func (a *Store) Settled(uid string, keep Retention) {
	object := filepath.Base(a.Object(uid))
	a.mu.Lock()
	s := a.shelf(object)
	s.keep = &keep
	var unstripped []string
	for i, k := range s.runs {
		if k.unsettled && !k.noted {
			unstripped = append(unstripped, k.id)
		}
		s.runs[i].unsettled = false
	}
	a.mu.Unlock()
	a.strip(object, unstripped)
}

// Finish must be called when the end of a run is in the status, or never will be. It
// applies the object's retention.
func (a *Store) Finish(uid, run string, keep Retention) {
	if !rundir.IsID(run) {
		return
	}
	dir := a.Object(uid)
	object := filepath.Base(dir)
	a.index(object)
	_, err := os.Lstat(filepath.Join(dir, run))
	k := readKept(dir, rundir.Past{ID: run, Finished: a.now()})
	a.Settled(uid, keep)
	a.mu.Lock()
	s := a.shelf(object)
	delete(s.busy, run)
	a.take(object, s, func(k kept) bool { return k.id == run }) // an earlier process's, read before its end was known
	if err == nil {
		a.add(s, k)
	}
	old := a.expired(object, s)
	over := a.over()
	a.tidy(object)
	a.mu.Unlock()
	a.remove(old...)
	if over {
		select {
		case a.wake <- struct{}{}:
		default: // a token is there already
		}
	}
}

// Leave removes the directory of a run that goes on elsewhere: the process that follows it next receives all of it again.
func (a *Store) Leave(uid, run string) {
	dir, err := a.Dir(uid, run)
	if err != nil {
		return
	}
	a.remove(dir)
	object := filepath.Base(filepath.Dir(dir))
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shelf(object)
	// It is there already if an earlier process began it.
	a.take(object, s, func(k kept) bool { return k.id == run })
	delete(s.busy, run)
	a.tidy(object)
}

// forget drops an object that is gone, with its directory.
func (a *Store) forget(object string) error {
	a.mu.Lock()
	if s := a.shelves[object]; s != nil {
		for _, k := range s.runs {
			a.bytes -= k.bytes
			a.count--
		}
		delete(a.shelves, object)
		a.opts.Metrics.Artifacts(a.count, a.bytes)
	}
	a.mu.Unlock()
	return rundir.Remove(filepath.Join(a.runs, object))
}

// over reports whether all runs together are too large. The caller must hold the lock.
func (a *Store) over() bool { return a.opts.MaxBytes >= 0 && a.bytes > a.opts.MaxBytes }

// expired takes the runs that are too many or too old off a shelf, and returns their
// directories. The caller must hold the lock.
func (a *Store) expired(object string, s *shelf) []string {
	if s.keep == nil {
		return nil
	}
	slices.SortFunc(s.runs, func(x, y kept) int {
		return cmp.Or(y.finished.Compare(x.finished), cmp.Compare(x.id, y.id))
	})
	stays, failed := map[string]bool{}, 0
	for i, k := range s.runs {
		among := s.keep.Runs < 0 || i < s.keep.Runs
		if !among && k.failed {
			failed++
			among = s.keep.Failed < 0 || failed <= s.keep.Failed
		}
		young := s.keep.Age < 0 || a.now().Sub(k.finished) < s.keep.Age
		stays[k.id] = among && young || k.unsettled
	}
	return a.take(object, s, func(k kept) bool { return !stays[k.id] })
}

// take takes runs off a shelf, and returns their directories. The caller must hold the lock.
func (a *Store) take(object string, s *shelf, which func(kept) bool) []string {
	var dirs []string
	s.runs = slices.DeleteFunc(s.runs, func(k kept) bool {
		if !which(k) {
			return false
		}
		a.bytes -= k.bytes
		a.count--
		dirs = append(dirs, filepath.Join(a.runs, object, k.id))
		return true
	})
	if len(dirs) > 0 {
		a.opts.Metrics.Artifacts(a.count, a.bytes)
	}
	return dirs
}

// enforce removes expired runs. If all runs together are still too large, it removes
// further ones down to nine tenths of the limit, so that the next run does not exceed it at once.
func (a *Store) enforce() {
	a.mu.Lock()
	var old []string
	for object, s := range a.shelves {
		old = append(old, a.expired(object, s)...)
	}
	if a.over() {
		const part = 10
		most := a.opts.MaxBytes - a.opts.MaxBytes/part
		old = append(old, a.evict(func() bool { return a.bytes <= most })...)
	}
	a.mu.Unlock()
	a.remove(old...)
}

// MakeRoom removes a quarter of the bytes of all ended runs, because the disk is full.
// It returns false if there are none.
func (a *Store) MakeRoom() bool {
	a.mu.Lock()
	const part = 4
	most, count := a.bytes-(a.bytes+part-1)/part, a.count
	old := a.evict(func() bool { return a.bytes <= most && a.count < count })
	a.mu.Unlock()
	a.remove(old...)
	if len(old) > 0 {
		a.log.Info("The disk is full: runs of the objects that keep the most were removed", "runs", len(old))
	}
	return len(old) > 0
}

// tidy removes the directory of an object without runs. The caller must hold the lock,
// so that no run begins meanwhile.
func (a *Store) tidy(object string) {
	if s := a.shelves[object]; s == nil || len(s.runs)+len(s.busy) == 0 {
		_ = os.Remove(filepath.Join(a.runs, object, specFile))
		_ = os.Remove(filepath.Join(a.runs, object)) // a directory that is not empty stays
	}
}

// remove removes directories of runs, and the directories of their objects if no other
// run is left there.
func (a *Store) remove(dirs ...string) {
	for _, dir := range dirs {
		if err := rundir.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Error(err, "An old run cannot be removed", "directory", dir)
		}
		if object := filepath.Dir(dir); object != a.runs {
			a.mu.Lock()
			a.tidy(filepath.Base(object))
			a.mu.Unlock()
		}
	}
}
