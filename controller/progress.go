package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// progress follows a run and writes its progress into the status. It writes from its
// own goroutine, so that a slow API server does not slow down the run.
type progress struct {
	r      *reconciler
	active status.Active
	quiet  bool
	// recording is nil if there is no history.
	recording *history.Recording

	mu      sync.Mutex
	summary jobevent.Summary
	// waits is what the run waits for before it can begin.
	waits string
	// read is when the run last read its own object; zero if it has written the object since.
	read time.Time
	// deferred is since when a write has been deferred; zero if none is.
	deferred time.Time
	// stale is true if the run has written its own object since object was read.
	stale bool
	// left is the last generation that the run's own writes of the object made. shared is true if another
	// client has changed the spec meanwhile. own are generations stored by the run that settle has yet
	// to count: the answers to concurrent writes come in any order.
	left   int64
	shared bool
	own    []int64
	// wrote is true if the run has written its own object, apart from a status that is not an input.
	wrote bool
	// changing is the number of the run's own writes of the spec in progress. seen is the last generation
	// that the watch has shown; stop is called if another client made it, and is nil before the first.
	changing int
	seen     int64
	stop     func()

	// writing is held during a write.
	writing sync.Mutex

	// object is the result of the last write or read. Only the writing goroutine may
	// use it until that has stopped.
	object *unstructured.Unstructured
	// written and told are the number of events and the text in waits that were last written.
	written int
	told    string
}

func (r *reconciler) newProgress(s *scope) *progress {
	return &progress{r: r, active: s.active, quiet: s.quiet, left: s.active.Generation, object: s.object.DeepCopy()}
}

// observe takes an event of the run. It returns the result of the task that ended with the event, if
// one did. It may be called during a write.
func (p *progress) observe(e jobevent.Event) (result jobevent.TaskResult, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	result, ended = p.summary.Result(e)
	p.summary.Observe(e)
	switch {
	case p.recording == nil:
	case ended:
		p.recording.Now(historyTask(p.summary.Task), historyCounts(countsOf(p.summary)))
		recordTask(p.recording, result)
	case e.Kind == jobevent.TaskStart, e.Kind == jobevent.HandlerTaskStart:
		p.recording.Now(historyTask(p.summary.Task), historyCounts(countsOf(p.summary)))
	}
	return result, ended
}

// A role that writes the status of its own object, for example with
// operator_sdk.util.k8s_status, reads the object and writes it with the resource version
// that it has read. A write of progress in between would cause a conflict. So progress waits
// until the run has written, but at most roleWrites after the read, and at most
// progressDelay in all, since a role may read its object again and again.
const (
	roleWrites    = 5 * time.Second
	progressDelay = 3 * roleWrites
)

// Reads implements [proxy.Self].
func (p *progress) Reads() {
	p.mu.Lock()
	p.read = p.r.now()
	p.mu.Unlock()
	// Wait for a write that has begun; the next one will see p.read.
	p.writing.Lock()
	defer p.writing.Unlock()
}

// Wrote implements [proxy.Self].
func (p *progress) Wrote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read, p.stale = time.Time{}, true
	p.wrote = p.wrote || p.active.Generation == 0 && !p.r.watch.ManageStatus
}

// Stored implements [proxy.Self].
func (p *progress) Stored(generation int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own, p.wrote = append(p.own, generation), true
}

// settle updates left and shared by the run's own writes. None may be in progress, and the caller must hold mu.
func (p *progress) settle() {
	slices.Sort(p.own)
	for _, generation := range p.own {
		p.shared = p.shared || generation != p.left && generation != p.left+1
		p.left = generation
	}
	p.own = nil
}

// Changing implements [proxy.Self].
func (p *progress) Changing() (changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changing++
	return func() {
		p.mu.Lock()
		p.changing--
		p.mu.Unlock()
		p.stopIfChanged()
	}
}

// onChange calls stop if a client other than the run has made the generation. If a write of the run
// is in progress, it decides that when the write has ended.
func (p *progress) onChange(generation int64, stop func()) {
	p.mu.Lock()
	p.seen, p.stop = max(p.seen, generation), stop
	p.mu.Unlock()
	p.stopIfChanged()
}

func (p *progress) stopIfChanged() {
	p.mu.Lock()
	var stop func()
	if p.changing == 0 {
		if p.settle(); p.seen > p.active.Generation && (p.seen > p.left || p.shared) {
			stop = p.stop
		}
	}
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// ownSpec returns the generation that the run made by changing its object's spec; 0 if it made none, or if
// another client has changed the spec, too.
func (p *progress) ownSpec() int64 {
	if p == nil {
		return 0 // an earlier process executed the run
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settle(); p.shared || p.left <= p.active.Generation {
		return 0
	}
	return p.left
}

// ownWrite reports whether the run has written its own object, apart from a status that is not an input.
func (p *progress) ownWrite() bool {
	if p == nil {
		return false // as above
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote
}

// say notes what the run waits for before it can begin.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = short(text)
}

// behind reports whether the run has written its own object since p.object was read.
func (p *progress) behind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stale
}

// defers reports whether a write of progress has to wait for the run's own write. The caller must hold mu.
func (p *progress) defers(now time.Time) bool {
	if now.Sub(p.read) >= roleWrites || !p.deferred.IsZero() && now.Sub(p.deferred) >= progressDelay {
		p.deferred = time.Time{}
		return false
	}
	if p.deferred.IsZero() {
		p.deferred = now
	}
	return true
}

// start writes progress until the returned function is called. That waits for the
// last write to end, and returns the object as it is then.
func (p *progress) start(ctx context.Context) (stop func() *unstructured.Unstructured) {
	every := p.r.opts.ProgressInterval
	if every <= 0 || !p.r.writesStatus() {
		return func() *unstructured.Unstructured { return p.object }
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.write(ctx)
			}
		}
	})
	return func() *unstructured.Unstructured {
		cancel()
		wg.Wait()
		return p.object
	}
}

// progressTimeout limits one write. A write that has begun is not cancelled when the
// run ends: the API server might still carry it out after the run's end was recorded.
const progressTimeout = 5 * time.Second

// unknownWaits is in told after a write that has failed: the API server may have carried it out.
const unknownWaits = "\x00"

// write writes the progress if there is any since the last write.
func (p *progress) write(ctx context.Context) {
	if p.r.schemaDropsSummary.Load() || p.r.legacyUntil.Load() != 0 || p.quiet && p.r.now().Sub(p.active.Started) < quietFor {
		return
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	events, stale := p.summary.Events, p.stale
	a := p.active
	a.Task, a.TasksStarted = taskOf(p.summary.Task), int64(p.summary.TasksStarted)
	a.Counts = countsOf(p.summary)
	a.Waiting = p.waits
	if events == p.written && p.waits == p.told || p.defers(p.r.now()) {
		p.mu.Unlock()
		return
	}
	p.stale = false
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), progressTimeout)
	defer cancel()
	var err error
	if stale {
		err = p.r.readAgain(ctx, p.object)
	}
	if err == nil {
		err = p.r.writeProgress(ctx, p.object, a)
	}
	if apierrors.IsConflict(err) {
		// Another client wrote, for example the role. If the object is gone or another
		// one has its name, readAgain fails and nothing is written.
		err = p.r.readAgain(ctx, p.object)
		if err == nil {
			err = p.r.writeProgress(ctx, p.object, a)
		}
	}
	p.told = unknownWaits
	if err == nil {
		p.written, p.told = events, a.Waiting
	} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.r.log.V(1).Info("Progress cannot be written", "job", a.ID, "error", err.Error())
	}
}
