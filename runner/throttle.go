package runner

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"sync"
	"time"
)

// ErrNoTurn is wrapped by the error of a run that was stopped while it waited for its
// turn, because forks come late. Nothing was started.
var ErrNoTurn = errors.New("it was stopped before its turn came")

// throttle lowers the number of runs at a time while forks come late: more runs,
// or new Pythons in their place, would make the machine later still. The limit is
// halved by a fork that comes late, grows by one with each run that begins, and
// where a run has waited for a while (long runs may hold all places), and goes when
// it is above the number of runs that there were at first.
type throttle struct {
	onChange func(limit int)
	// pause is how long a run waits before the limit grows; 0 means [throttlePause].
	pause time.Duration

	mu      sync.Mutex
	running int
	// limit is 0 while there is none; most is where it ends.
	limit, most int
	// lowered is when the limit was last lowered, and changed when it was changed.
	// futile counts how often it was lowered since a run has begun.
	lowered, changed time.Time
	futile           int
	// free is closed when there may be a place.
	free chan struct{}
}

const throttlePause = 15 * time.Second

func newThrottle(onChange func(limit int)) *throttle {
	if onChange == nil {
		onChange = func(int) {}
	}
	return &throttle{onChange: onChange, free: make(chan struct{})}
}

// enter waits for a place, and tells whether there is a limit. The error is the
// cause of the context's end.
func (t *throttle) enter(ctx context.Context) (limited bool, err error) {
	pause := cmp.Or(t.pause, throttlePause)
	for {
		t.mu.Lock()
		if t.limit > 0 && t.running >= t.limit && time.Since(t.changed) > pause {
			t.raise()
		}
		if t.limit == 0 || t.running < t.limit {
			t.running++
			limited = t.limit > 0
			t.mu.Unlock()
			return limited, nil
		}
		free := t.free
		t.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-free:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// leave gives the place back.
func (t *throttle) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.wake()
}

// wake is called under the lock.
func (t *throttle) wake() {
	close(t.free)
	t.free = make(chan struct{})
}

// late lowers the limit because of a fork that was asked for at a time and came
// late. It is false if that does not help, because the run was the only one, or no run
// has begun since the limit was lowered so often that it would be 1. Then the server is
// to be given up.
func (t *throttle) late(asked time.Time) (helps bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case asked.Before(t.lowered):
		return true // among more runs than there are now
	case t.running == 1, t.futile > bits.Len(uint(t.most)):
		t.futile = 0
		return false
	}
	t.futile++
	t.most = max(t.most, t.running)
	t.limit, t.lowered = max(t.running/2, 1), time.Now()
	t.changed = t.lowered
	t.onChange(t.limit)
	return true
}

// begun is called when a run has begun its playbook that was forked, which was asked
// for at a time.
func (t *throttle) begun(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit > 0 && asked.After(t.lowered) {
		t.futile = 0
		t.raise()
	}
}

// raise is called under the lock, while there is a limit.
func (t *throttle) raise() {
	t.changed = time.Now()
	if t.limit++; t.limit > t.most {
		t.limit, t.most, t.futile = 0, 0, 0
	}
	t.onChange(t.limit)
	t.wake()
}
