package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rolewright/rolewright/runner/supervise"
)

// latest returns Until on the clock that all processes share; 0 is no limit. If this
// process is frozen between the two readings, the result is only earlier.
func (req Request) latest() time.Duration {
	if req.Until == nil {
		return 0
	}
	now := supervise.SinceBoot()
	return max(1, now+time.Until(req.Until()))
}

// start runs the command c, from a fork server if there is one. A server that cannot
// start the run only delays it.
func (r *Runner) start(ctx context.Context, req Request, c supervise.Command) (supervise.Exit, error) {
	if c.Server = req.server; c.Server != "" || r.opts.Warm == nil || req.Executor == ExecutorRunner || req.reports != nil {
		return r.supervisor.Run(ctx, c)
	}
	for {
		exit, again, err := r.startOnce(ctx, req, c)
		if !again {
			return exit, err
		}
	}
}

// startOnce runs ansible-runner when it is its turn. If again is true, nothing was
// started, because the fork came too late, and startOnce has to be called once more.
func (r *Runner) startOnce(ctx context.Context, req Request, c supervise.Command) (_ supervise.Exit, again bool, _ error) {
	limited, err := r.throttle.enter(ctx)
	if err != nil {
		return supervise.Exit{Code: -1}, false, fmt.Errorf("%w: %w: %w", supervise.ErrNotStarted, ErrNoTurn, err)
	}
	defer r.throttle.leave()
	if limited {
		// A machine with late forks has no time for a new Python. If there will be no
		// server, Await says so.
		_ = r.opts.Warm.Wait(ctx)
	}
	lease, err := r.opts.Warm.Await(ctx)
	if ctx.Err() != nil && err != nil {
		return supervise.Exit{Code: -1}, false, fmt.Errorf("%w: %w: %w", supervise.ErrNotStarted, ErrNoTurn, context.Cause(ctx))
	}
	c.Until = req.latest() // it may have changed during the wait
	if err != nil {
		exit, err := r.supervisor.Run(ctx, c)
		return exit, false, err
	}
	forked := c
	forked.Server, forked.Trace = lease.Socket, lease.Trace
	asked := time.Now()
	req.asked.Store(&asked)
	exit, err := r.supervisor.Run(ctx, forked)
	if !errors.Is(err, supervise.ErrServer) || ctx.Err() != nil {
		if exit.Cut && lease.Lost(ctx) {
			err = errors.Join(ErrServerCut, err)
		}
		lease.Release(exit, err)
		return exit, false, err
	}
	req.asked.Store(nil)
	late := errors.Is(err, supervise.ErrLate)
	if late && r.throttle.late(asked) {
		err = nil // the server may be in order
	}
	lease.Release(exit, err)
	if err := removeStart(c); err != nil {
		return exit, false, err
	}
	if late && (err == nil || limited) {
		return exit, true, nil
	}
	c.Until = req.latest()
	exit, err = r.supervisor.Run(ctx, c)
	return exit, false, err
}

// removeStart removes the files of an attempt that did not start the command.
func removeStart(c supervise.Command) error {
	for _, name := range []string{c.Output, c.Record} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", supervise.ErrNotStarted, err)
		}
	}
	return nil
}
