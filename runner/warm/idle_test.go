package warm_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
)

// A server starts with the first run, which waits for it. It ends when there has been no run for a while, and another one
// starts with the next run. That it ends is not a failure.
func TestPool_HasAServerWhileThereAreRuns(t *testing.T) {
	t.Parallel()
	o := options(t)
	var mu sync.Mutex
	var said []error
	o.OnChange = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, err)
	}
	o.Idle = 3 * time.Second // a run that waits for the server takes it before that
	pool := warm.New(o)
	defer pool.Close()
	r := runnerOf(o, pool, patient)
	defer r.Close()
	if left := entries(t, o.Dir); len(left) > 0 {
		t.Errorf("before the first run: %v", left)
	}
	for i := range 3 { // after more than one failure in a row, the next server would only start a minute later
		g := newGated(t)
		go func() {
			eventually(t, "the run", func() bool { return g.started() > 0 })
			if i == 0 {
				time.Sleep(2 * o.Idle) // the server stays during a run
			}
			g.goOn(t)
		}()
		if res, err := r.Run(t.Context(), g.Request); err != nil || !res.Verdict().Success || res.Executor() != runner.ExecutorWarm {
			t.Errorf("error %v, verdict %+v, executor %s", err, res.Verdict(), res.Executor())
		}
		eventually(t, "nothing is left of the server", func() bool { return len(processes(t, o.Dir)) == 0 })
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 6 {
		t.Errorf("%d changes: %v", len(said), said)
	}
	for i, err := range said {
		if goes := i%2 == 1; goes != errors.Is(err, warm.ErrIdle) || !goes && err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
}

// Runs that begin just when the server ends are made all the same, and the end is not a failure of the server.
func TestRun_TakesPlaceWhenTheServerGoes(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Idle = time.Microsecond
	o.OnChange = func(err error) {
		if err != nil && !errors.Is(err, warm.ErrIdle) {
			t.Error(err)
		}
	}
	pool := warm.New(o)
	defer pool.Close()
	r := runnerOf(o, pool, patient)
	defer r.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			req := request(t, simple)
			if res, err := r.Run(t.Context(), req); err != nil || !res.Verdict().Success {
				t.Errorf("error %v, verdict %+v", err, res.Verdict())
			}
		})
		time.Sleep(time.Second)
	}
	wg.Wait()
}
