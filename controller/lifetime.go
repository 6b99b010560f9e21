package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rolewright/rolewright/internal/watches"
)

// lifetime limits how long a run may live. Its context ends, with the cause, when
// the run has to end.
type lifetime struct {
	cancel context.CancelCauseFunc
	// hurried ends, by a call of hurry, when there is no time left for a long grace.
	hurried context.Context // of one run
	hurry   func()
	unhook  []func() bool

	mu    sync.Mutex
	over  bool
	stops *time.Timer // ends the run because the operator stops; nil before that
	limit *time.Timer // nil without a timeout
	most  time.Duration
	idle  *time.Timer // nil without an idleTimeout
	pause time.Duration
	held  *time.Timer // nil unless a protected section delays the end
	// replaced is closed when another watch, or another replica, waits for the end of the run.
	replaced chan struct{}
}

// ending is the time that it takes to end a run: the runner's grace, the kill, the
// last status write.
const ending = 8 * time.Second

// lifetime begins the lifetime of a run. The returned context outlives ctx, which ends
// as soon as the operator is asked to stop: the run may go on for the operator's grace
// period, less the time that ending it takes. The context ends at once if the kind is
// gone or the operator cannot wait, and at the limits in the settings.
func (r *reconciler) lifetime(ctx context.Context, s settings) (context.Context, *lifetime) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l := &lifetime{cancel: cancel, pause: s.idleTimeout, most: s.timeout, replaced: make(chan struct{})}
	l.hurried, l.hurry = context.WithCancel(context.Background())
	if s.timeout > 0 {
		l.limit = time.AfterFunc(s.timeout, func() { cancel(fmt.Errorf("it has taken %s, its %w", s.timeout, ErrTimeout)) })
	}
	if s.idleTimeout > 0 {
		l.idle = time.AfterFunc(s.idleTimeout, func() {
			cancel(fmt.Errorf("it has given no sign of life for %s, its %w", s.idleTimeout, ErrIdle))
		})
	}
	l.unhook = []func() bool{
		context.AfterFunc(r.set.runs, func() {
			cancel(context.Cause(r.set.runs))
			l.hurry()
		}),
		context.AfterFunc(ctx, func() {
			stop := func() { l.stopWithin(r.opts.GracefulShutdown - ending) }
			if r.watch.Executor == watches.ExecutorJob {
				stop = func() { l.stopWithin(0) } // the run goes on without this process
			}
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, ErrKindGone):
				cancel(cause)
			case errors.Is(cause, errReplaced):
				close(l.replaced)
				unhook := r.atEnd(stop)
				context.AfterFunc(long, func() { unhook() })
			default:
				stop()
			}
		}),
	}
	return long, l
}

// stopWithin ends the run after d because the operator stops.
func (l *lifetime) stopWithin(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.stops = time.AfterFunc(max(d, 0), func() {
			l.cancel(ErrShutdown)
			l.hurry()
		})
	}
}

// handIn is how long an adopted run has at least: it may have ended in time while there was no operator to notice.
const handIn = 30 * time.Second

// spent shortens the timeout of a run that an earlier process began d ago.
func (l *lifetime) spent(d time.Duration) {
	if d > 0 {
		l.limitTo(max(l.most-d, min(handIn, l.most)))
	}
}

// begun restarts the timeout of a run as a Job from when it began in its Pod, ago before now: the wait for the Pod does not
// count.
func (l *lifetime) begun(ago time.Duration) {
	l.limitTo(l.most)
	l.spent(ago)
	l.sign()
}

// limitTo sets the remaining time until the timeout to d.
func (l *lifetime) limitTo(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != nil && !l.over {
		l.limit.Reset(d)
	}
}

// waits suspends the idle timeout until the next sign of life: hooks and calls give none, and a run as a Job may wait for a
// node before it begins. The timeout limits this wait; for a Job, begun restarts it.
func (l *lifetime) waits() {
	if l.idle != nil {
		l.idle.Stop()
	}
}

// sign is called when the run gives a sign of life.
func (l *lifetime) sign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil && !l.over {
		l.idle.Reset(l.pause)
	}
}

// end has to be called when the run is over.
func (l *lifetime) end() {
	for _, unhook := range l.unhook {
		unhook()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, t := range []*time.Timer{l.stops, l.limit, l.idle, l.held} {
		if t != nil {
			t.Stop()
		}
	}
	l.cancel(nil)
	l.hurry()
}
