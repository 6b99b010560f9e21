package jobevent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// errDuplicate is wrapped by the [EventError] of a second file with the same
// counter.
var errDuplicate = errors.New("a second file with this counter")

// EventError says that the file of an event could not be used.
type EventError struct {
	Counter int
	Name    string
	Err     error
}

func (e *EventError) Error() string { return fmt.Sprintf("event %d: %v", e.Counter, e.Err) }

func (e *EventError) Unwrap() error { return e.Err }

// GapError says that the events with counters from First to Last are missing.
type GapError struct{ First, Last int }

func (e *GapError) Error() string { return fmt.Sprintf("events %d to %d are missing", e.First, e.Last) }

const (
	// pollEvery is how long a lost notification can go unnoticed. Without any
	// notifications (a host has few inotify instances per user) there is only
	// polling, and it is more frequent.
	pollEvery        = time.Second
	pollEveryUnaided = 200 * time.Millisecond
	// pollEveryTold is for [FollowTold], which misses no file.
	pollEveryTold = time.Minute
	// scanShare limits the time for listing the directory while the run lasts to
	// one part in scanShare+1: listing a million names takes most of a second.
	scanShare = 10
	// gapPatience is how long to wait for a missing event while later ones exist.
	// ansible-runner writes events in order, so it will hardly come.
	gapPatience = 2 * time.Second
	// maxLiveGap bounds the size of a gap that is skipped while the run lasts: a
	// stray file with an absurd counter must not delay the genuine events.
	maxLiveGap = 64 << 10
	// maxRefused is how often in a row opening is repeated if no file descriptor is
	// left: with the pauses, for a minute.
	maxRefused = 300
)

// Follow yields the events in dir, ansible-runner's job_events directory, in
// the order of their counters, each once, while they are being written. It
// ends when done is closed and everything that existed by then was yielded, or
// when ctx is cancelled. The directory and its parents need not exist yet.
//
// For a file that holds no event, Follow yields an [*EventError] and the event's
// counter; for missing events that are no longer expected, a [*GapError]; and
// goes on after both. An error of another kind is the last: the directory could
// not be read. If no file descriptor is left, Follow tries again for a minute.
// Links, pipes, devices and directories count as missing files.
//
// Memory is bounded, however large and however many the events are. The
// sequence can be iterated over more than once; each iteration starts from the
// first event.
func Follow(ctx context.Context, dir string, done <-chan struct{}) iter.Seq2[Event, error] {
	return FollowTold(ctx, dir, nil, done)
}

// FollowTold is [Follow] for a directory into which this process puts the files. told receives the name of each file once it
// exists, except while told is full. This needs no notifications of the kernel, which are scarce, and hardly any listings.
func FollowTold(ctx context.Context, dir string, told <-chan string, done <-chan struct{}) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := newFollower(dir, told)
		defer f.close()
		f.run(ctx, done, yield)
	}
}

// follower is the state of one iteration. Notifications are hints that fill
// the window cheaply; the directory's listing is the truth.
type follower struct {
	directory directory
	// told is nil if another process writes the directory; watcher is nil if there are no notifications, or told replaces
	// them.
	told    <-chan string
	watcher *fsnotify.Watcher

	// next is the counter of the next event; window holds names with this or later counters.
	next   int
	window window
	// behind remembers the files delivered last, to tell a repeated hint from
	// a second file.
	behind [1024]struct {
		fileName
		doubled bool
	}
	duplicates []fileName

	// stale is true if the directory may hold names that were not announced.
	stale bool
	// scanned is when the last listing ended, scanTook how long it took.
	scanned  time.Time
	scanTook time.Duration
	// failure is why the directory cannot be read; reported at the end.
	failure error
	// gapSince is when the current gap was noticed, zero if there is none; patience
	// is how long to wait for the missing events.
	gapSince time.Time
	patience time.Duration
	// refused counts how often in a row no file descriptor was left.
	refused int
	// poll is the interval at which the directory is listed without a hint.
	poll time.Duration
}

func newFollower(dir string, told <-chan string) *follower {
	f := &follower{
		directory: newDirectory(dir),
		told:      told,
		next:      1,
		window:    window{size: windowSize},
		stale:     true,
		patience:  gapPatience,
		poll:      pollEvery,
	}
	if told != nil {
		f.poll = pollEveryTold
		return f
	}
	var err error
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		f.watcher, f.poll = nil, pollEveryUnaided
	}
	return f
}

func (f *follower) close() {
	f.unwatch()
	f.directory.close()
}

func (f *follower) unwatch() {
	if f.watcher != nil {
		// An error from closing an inotify descriptor does not matter.
		_ = f.watcher.Close()
		f.watcher = nil
	}
}

func (f *follower) run(ctx context.Context, done <-chan struct{}, yield func(Event, error) bool) {
	finished := false
	for ctx.Err() == nil {
		if !finished && isClosed(done) {
			// List everything that was written so far; nothing else will come.
			finished, f.stale = true, true
			f.unwatch()
		}
		f.takeHints()
		more := true
		switch {
		case len(f.duplicates) > 0:
			more = f.yieldDuplicates(yield)
		case f.due():
			more = f.deliver(yield)
		case f.mustScan(finished):
			f.scan(ctx)
		case f.window.empty() && finished:
			if f.stale = f.refusedBriefly(f.failure); f.stale {
				continue
			}
			if f.failure != nil {
				yield(Event{}, fmt.Errorf("read job events: %w", f.failure))
			}
			return
		case finished || f.gapIsOld():
			more = f.skipGap(yield)
		default:
			f.wait(ctx, done)
		}
		if !more {
			return
		}
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (f *follower) due() bool { return !f.window.empty() && f.window.first().counter <= f.next }

// deliver yields the event that is due.
func (f *follower) deliver(yield func(Event, error) bool) bool {
	n := f.window.pop()
	if n.counter < f.next {
		f.duplicates = append(f.duplicates, n)
		return true
	}
	e, err := f.directory.read(n.name)
	if errors.Is(err, errNoFile) {
		return true
	}
	if f.refusedBriefly(err) {
		f.window.add(n)
		return true
	}
	last := &f.behind[n.counter%len(f.behind)]
	last.fileName, last.doubled = n, false
	f.next++
	f.gapSince = time.Time{}
	e.Counter = n.counter
	if err != nil {
		return yield(Event{Counter: n.counter}, &EventError{n.counter, n.name, err})
	}
	return yield(e, nil)
}

// refusedBriefly returns true, after a pause, if err says that no file descriptor was left and
// opening is to be repeated: other runs end, and release theirs.
func (f *follower) refusedBriefly(err error) bool {
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		f.refused = 0
		return false
	}
	if f.refused >= maxRefused {
		return false
	}
	f.refused++
	time.Sleep(pollEveryUnaided)
	return true
}

func (f *follower) yieldDuplicates(yield func(Event, error) bool) bool {
	n := f.duplicates[0]
	f.duplicates = f.duplicates[1:]
	last := &f.behind[n.counter%len(f.behind)]
	if last.counter != n.counter || last.name == n.name || last.doubled || !f.directory.hasFile(n.name) {
		return true
	}
	last.doubled = true
	return yield(Event{Counter: n.counter}, &EventError{n.counter, n.name, errDuplicate})
}

// see handles a name from a hint or a listing. It returns true if the event is still to be
// delivered; else it notes a duplicate.
func (f *follower) see(n fileName) (ahead bool) {
	if n.counter >= f.next {
		return true
	}
	last := f.behind[n.counter%len(f.behind)]
	if last.counter == n.counter && last.name != n.name && !last.doubled && len(f.duplicates) < len(f.behind) {
		f.duplicates = append(f.duplicates, n)
	}
	return false
}

// mustScan tells whether to list the directory now that no event is due.
func (f *follower) mustScan(finished bool) bool {
	if f.window.empty() && f.window.truncated {
		return true
	}
	return f.stale && (finished || !time.Now().Before(f.mayScan()))
}

// mayScan returns when the directory may be listed again, while the run lasts.
func (f *follower) mayScan() time.Time { return f.scanned.Add(scanShare * f.scanTook) }

// scan lists the directory and fills the window.
func (f *follower) scan(ctx context.Context) {
	start := time.Now()
	f.stale = false
	if f.failure = f.directory.open(f.watcher); f.directory.isOpen() {
		f.window.relist()
		f.failure = f.directory.list(func(name string) bool {
			if n, ok := parseName(name); ok && f.see(n) {
				f.window.collect(n)
			}
			return ctx.Err() == nil
		})
		f.window.settle()
	}
	f.scanned = time.Now()
	f.scanTook = f.scanned.Sub(start)
}

// ahead tells whether the window has a name up to which missing events may be skipped while the run lasts.
func (f *follower) ahead() bool {
	return !f.window.empty() && f.window.first().counter-f.next <= maxLiveGap
}

// gapIsOld tells whether to give up waiting for the events before the window's
// first name. It returns true only after another listing of the directory. Names
// that do not belong to regular files are no events, and it drops them first.
func (f *follower) gapIsOld() bool {
	if !f.ahead() {
		return false
	}
	if f.gapSince.IsZero() {
		f.gapSince = time.Now()
	}
	due := f.gapSince.Add(f.patience)
	if time.Now().Before(due) {
		return false
	}
	if f.stale = f.stale || f.scanned.Before(due); f.stale {
		return false
	}
	for f.ahead() && !f.directory.hasFile(f.window.first().name) {
		f.window.pop()
	}
	if !f.ahead() {
		f.gapSince = time.Time{}
		return false
	}
	return true
}

func (f *follower) skipGap(yield func(Event, error) bool) bool {
	gap := &GapError{f.next, f.window.first().counter - 1}
	f.next = f.window.first().counter
	f.gapSince = time.Time{}
	return yield(Event{}, gap)
}
