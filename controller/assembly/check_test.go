package assembly

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/rolewright/rolewright/runner"
)

func TestRunnerCheck_AnswersFromMemoryAndFollowsTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		var installed atomic.Bool
		var looks atomic.Int32
		c := NewRunnerCheck(func(context.Context) (runner.Versions, error) {
			looks.Add(1)
			if !installed.Load() {
				return runner.Versions{}, runner.ErrUnavailable
			}
			return runner.Versions{Runner: "2.3.1", Core: "2.14.18"}, nil
		}, time.Minute, log)
		if err := c.Check(nil); !errors.Is(err, errNotChecked) {
			t.Errorf("before the first look: %v, want %v", err, errNotChecked)
		}

		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Start(ctx) }()
		synctest.Wait()
		for range 100 {
			if err := c.Check(nil); !errors.Is(err, runner.ErrUnavailable) {
				t.Fatalf("while it is missing: %v", err)
			}
		}
		if _, err := c.Versions(t.Context()); !errors.Is(err, runner.ErrUnavailable) {
			t.Errorf("the versions, while it is missing: %v", err)
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("100 probes looked %d times, want once", n)
		}

		time.Sleep(checkAgain) // still missing: nothing new to log
		synctest.Wait()
		installed.Store(true)
		time.Sleep(2 * checkAgain)
		synctest.Wait()
		if err := c.Check(nil); err != nil {
			t.Errorf("after it was installed: %v", err)
		}
		if v, err := c.Versions(t.Context()); err != nil || v.Core != "2.14.18" {
			t.Errorf("the versions, after it was installed: %+v, %v", v, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()

		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Start: %v", err)
		}
		if n := looks.Load(); n != 4 {
			t.Errorf("looked %d times, want 4", n)
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "Ansible cannot be run") || !strings.Contains(lines[1], `"runner"="2.3.1"`) {
			t.Errorf("log = %q, want one line for each change", lines)
		}
	})
}

func TestRunnerCheck_KeepsItsAnswerWhenItIsStoppedInALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		c := NewRunnerCheck(func(ctx context.Context) (runner.Versions, error) {
			if first {
				first = false
				return runner.Versions{}, nil
			}
			<-ctx.Done()
			return runner.Versions{}, ctx.Err()
		}, time.Second, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Start(ctx) }()
		time.Sleep(2 * time.Second) // during the second check
		cancel()
		_ = <-stopped
		if err := c.Check(nil); err != nil {
			t.Errorf("Check after the stop: %v", err)
		}
	})
}
