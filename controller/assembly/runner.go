package assembly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/collection"
	"github.com/rolewright/rolewright/runner/warm"
)

// Executors returns the executors that may be chosen.
func Executors() []watches.Executor {
	return []watches.Executor{watches.ExecutorAuto, watches.ExecutorWarm, watches.ExecutorRunner, watches.ExecutorJob}
}

// uses reports whether one of the watches has one of the executors in ways.
func uses(watched []watches.Watch, ways ...watches.Executor) bool {
	return slices.ContainsFunc(watched, func(w watches.Watch) bool { return slices.Contains(ways, w.Executor) })
}

// contentOf returns the directories with the roles and playbooks of the watches whose runs may be forked.
func contentOf(watched []watches.Watch) []string {
	dir, err := os.Getwd()
	if err != nil {
		return nil // knowing them only saves time
	}
	forked := slices.DeleteFunc(slices.Clone(watched), func(w watches.Watch) bool {
		return !w.Content.Ansible() || w.Executor == watches.ExecutorRunner || w.Executor == watches.ExecutorJob
	})
	return contentcopy.Of(dir, "", forked).Dirs
}

// RunnerOptions say how runs are executed.
type RunnerOptions struct {
	// Path is the program ansible-runner; see [runner.Options].
	Path string
	// TrustLine is the option of [runner.Options].
	TrustLine bool
	// WarmIdle is how long a fork server is kept without a run; 0 for as long as the process.
	WarmIdle time.Duration
	// Watches are the current watches. Later is true if watches may be added later whose executor
	// is not known yet.
	Watches  []watches.Watch
	Later    bool
	Recorder *metrics.Recorder
	Log      logr.Logger
}

// NewRunner returns the runner that executes the runs, and a function that ends it, to be called
// when no run is in progress. The first run starts a fork server. If that is not possible, runs are
// plain, and the log says why, once. If a watch requires forked runs, NewRunner starts a fork
// server at once, and fails if that is not possible.
func NewRunner(ctx context.Context, o RunnerOptions) (_ *runner.Runner, end func(), err error) {
	watched, recorder, log := o.Watches, o.Recorder, o.Log
	options := runner.Options{Path: o.Path, WarmContent: contentOf(watched), WarmIdle: o.WarmIdle, TrustLine: o.TrustLine}
	if options.Temp, err = runner.NewTemp(os.TempDir()); err != nil {
		log.Error(err, "Temporary files of killed runs are not removed")
	}
	if options.Collections, err = collection.Install(os.TempDir()); err != nil {
		log.Error(err, "The collection rolewright.operator cannot be provided to runs; they have it only if it is installed")
	}
	endFiles := func() {
		options.Collections.Close()
		options.Temp.Close()
	}
	if !o.Later && !uses(watched, watches.ExecutorAuto, watches.ExecutorWarm) {
		r := runner.New(options)
		return r, func() {
			r.Close()
			endFiles()
		}, nil
	}
	options.Warm = runner.NewPool(options, warmLog(recorder, log))
	if uses(watched, watches.ExecutorWarm) {
		if err := options.Warm.Wait(ctx); err != nil {
			options.Warm.Close()
			endFiles()
			return nil, nil, fmt.Errorf("executor %s: %w; use the executor %s to start anyway", watches.ExecutorWarm, err, watches.ExecutorAuto)
		}
	}
	options.OnLimit = limitLog(recorder, log)
	r := runner.New(options)
	return r, func() {
		r.Close()
		options.Warm.Close()
		endFiles()
	}, nil
}

// warmLog returns the function that is told about fork servers. A fork server that has ended because
// there was no run, or is being replaced, counts as ready, since the next run waits for another.
func warmLog(recorder *metrics.Recorder, log logr.Logger) func(error) {
	said := ""
	return func(err error) {
		idle, replaced := errors.Is(err, warm.ErrIdle), errors.Is(err, warm.ErrReplaced)
		var line *warm.LineError
		var check *runner.CheckError
		slower := errors.As(err, &line) && line.Workers
		recorder.WarmReady(err == nil || idle || replaced || slower)
		switch {
		case line != nil:
			recorder.LineDiffers(line.Differs)
		case errors.As(err, &check):
			recorder.LineDiffers(check.Differs)
		case err == nil:
			recorder.LineDiffers(nil)
		}
		switch {
		case idle:
			log.Info("The fork server was stopped because it was idle (--warm-idle); the next run starts a new one")
		case replaced:
			log.Info("The fork server is replaced: runs wait for the next one", "reason", err.Error())
		case slower:
			said = ""
			log.Info("Runs are forked: the fork server is ready", "slower", line.Error())
		case err == nil:
			said = ""
			log.Info("Runs are forked: the fork server is ready")
		case err.Error() != said:
			said = err.Error()
			log.Info("Runs are not forked, each starts a new Python", "reason", said)
		}
	}
}

// limitLog returns the function that is told the limit of runs at a time while forks come late; 0 is no limit.
func limitLog(recorder *metrics.Recorder, log logr.Logger) func(limit int) {
	recorder.RunLimit(0)
	last := 0
	return func(limit int) {
		recorder.RunLimit(limit)
		switch {
		case limit == 0:
			log.Info("Forks are on time again; the limit on concurrent runs was lifted")
		case last == 0 || limit < last:
			log.Info("A fork was late: this machine is overloaded, so fewer runs are started concurrently; "+
				"give it more CPU, or lower --max-concurrent-runs", "limit", limit)
		}
		last = limit
	}
}
