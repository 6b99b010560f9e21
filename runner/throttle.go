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
// turn, which runs do when forks come late. Nothing was started.
var ErrNoTurn = errors.New("it was stopped before its turn came")

// throttle limits the number of concurrent runs while forks come late: more runs,
// or cold starts instead of forks, would slow the machine down further. A late fork
// sets the limit to half the runs in progress. The limit grows by one with each run
// that begins, and when a run has waited for a while, since long runs may hold all
// places. It is lifted when it exceeds the number of runs before it was first set.
type throttle struct {
	onChange func(limit int)
	// pause is how long a run waits before the limit grows; 0 means [throttlePause].
	pause time.Duration

	mu      sync.Mutex
	running int
	// limit is 0 while there is none; a limit above most is lifted.
	limit, most int
	// lowered is when the limit was last lowered, changed when it last changed.
	// futile counts how often it was lowered since a run last began.
	lowered, changed time.Time
	futile           int
	// free is closed, and replaced, when a place may have become free.
	free chan struct{}
}

const throttlePause = 15 * time.Second

func newThrottle(onChange func(limit int)) *throttle {
	if onChange == nil {
		onChange = func(int) {}
	}
	return &throttle{onChange: onChange, free: make(chan struct{})}
}

// enter waits for a place, and tells whether there is a limit. If ctx ends first,
// the error is its cause.
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

// wake wakes the runs that wait in enter. It is called under the lock.
func (t *throttle) wake() {
	close(t.free)
	t.free = make(chan struct{})
}

// late lowers the limit because a fork that was requested at asked came late. It
// returns false if that does not help, because the run was the only one, or because no
// run has begun although the limit was lowered often enough to reach 1. Then the caller
// has to give the server up.
func (t *throttle) late(asked time.Time) (helps bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case asked.Before(t.lowered):
		return true // the limit was lowered since: there were more runs then
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

// begun is called when a forked run has begun its playbook; asked is when the fork was
// requested.
func (t *throttle) begun(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit > 0 && asked.After(t.lowered) {
		t.futile = 0
		t.raise()
	}
}

// raise raises the limit by one, or lifts it. It is called under the lock, while there is a limit.
func (t *throttle) raise() {
	t.changed = time.Now()
	if t.limit++; t.limit > t.most {
		t.limit, t.most, t.futile = 0, 0, 0
	}
	t.onChange(t.limit)
	t.wake()
}
