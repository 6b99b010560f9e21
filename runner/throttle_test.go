package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// Late forks halve the limit of concurrent runs, but only once for forks that were requested together. Runs that begin
// raise it again.
func TestThrottle(t *testing.T) {
	t.Parallel()
	var limits []int
	th := newThrottle(func(limit int) { limits = append(limits, limit) })
	for range 8 {
		if limited, err := th.enter(t.Context()); limited || err != nil {
			t.Fatal(limited, err)
		}
	}
	asked := time.Now()
	for range 6 {
		if !th.late(asked) {
			t.Error("the server is given up before there are fewer runs")
		}
		th.leave()
	}
	for range 2 {
		if limited, err := th.enter(t.Context()); !limited || err != nil {
			t.Fatal(limited, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	cancel(ended)
	if _, err := th.enter(ctx); !errors.Is(err, ended) {
		t.Errorf("a fifth run: %v", err)
	}
	if !th.late(time.Now()) || th.limit != 2 {
		t.Errorf("limit %d", th.limit)
	}
	entered := make(chan error)
	go func() {
		_, err := th.enter(t.Context())
		entered <- err
	}()
	for range 2 { // of the four runs
		th.leave()
	}
	th.leave()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	for range 7 {
		th.begun(time.Now())
	}
	if want := []int{4, 2, 3, 4, 5, 6, 7, 8, 0}; !slices.Equal(limits, want) {
		t.Errorf("limits %v, want %v", limits, want)
	}
	for range 8 {
		if _, err := th.enter(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Long runs hold back another run no longer than a pause.
func TestThrottle_GrowsWhereARunWaits(t *testing.T) {
	t.Parallel()
	th := newThrottle(nil)
	th.pause = time.Millisecond
	for range 4 {
		must.Get(th.enter(t.Context()))(t)
	}
	if !th.late(time.Now()) {
		t.Error("the server is given up")
	}
	if _, err := th.enter(t.Context()); err != nil || th.limit != 0 {
		t.Errorf("limit %d, %v", th.limit, err)
	}
}

// If the fork of the only run is late, there are not too many runs: the server is given up.
func TestThrottle_OfOneRun(t *testing.T) {
	t.Parallel()
	th := newThrottle(func(limit int) { t.Error(fmt.Sprint("limit ", limit)) })
	must.Get(th.enter(t.Context()))(t)
	if th.late(time.Now()) {
		t.Error("the server is kept")
	}
}

// A server that starts nothing is given up, even if another run goes on.
func TestThrottle_GivesUpAServerThatStartsNothing(t *testing.T) {
	t.Parallel()
	th := newThrottle(nil)
	th.pause = time.Nanosecond
	for range 2 { // one of them goes on
		must.Get(th.enter(t.Context()))(t)
	}
	late := 0
	for th.late(time.Now()) {
		if late++; late > 5 {
			t.Fatal("the server is kept")
		}
		th.leave()
		must.Get(th.enter(t.Context()))(t)
	}
}
