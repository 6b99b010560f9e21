package assembly

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/collection"
)

// Executors are the ways to start runs that may be asked for.
func Executors() []watches.Executor {
	return []watches.Executor{watches.ExecutorAuto, watches.ExecutorWarm, watches.ExecutorRunner, watches.ExecutorJob}
}

// uses tells whether the runs of a watch are made in one of some ways.
func uses(watched []watches.Watch, ways ...watches.Executor) bool {
	return slices.ContainsFunc(watched, func(w watches.Watch) bool { return slices.Contains(ways, w.Executor) })
}

// ExecutorOptions say how runs are made.
type ExecutorOptions struct {
	// Path is the program ansible-runner; see [runner.Options].
	Path string
	// Supervisor is as that of [runner.Options].
	Supervisor []string
	// Watches are those that there are, and Later is true if others may come that do not say
	// how their runs start.
	Watches  []watches.Watch
	Later    bool
	Recorder *metrics.Recorder
	Log      logr.Logger
}

// NewExecutor returns what makes the runs, and what ends it when no run is in
// progress. While there is no fork server, runs are plain, and the log says why,
// once. If a watch requires forked runs, that is an error at the start.
func NewExecutor(ctx context.Context, o ExecutorOptions) (_ *runner.Runner, end func(), err error) {
	watched, recorder, log := o.Watches, o.Recorder, o.Log
	options := runner.Options{Path: o.Path, Supervisor: o.Supervisor}
	if options.Temp, err = runner.NewTemp(os.TempDir()); err != nil {
		log.Error(err, "Temporary files of killed runs are not removed")
	}
	if options.Collections, err = collection.Install(os.TempDir()); err != nil {
		log.Error(err, "Runs do without the collection rolewright.operator, unless it is installed")
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
	said := ""
	options.Warm = runner.NewPool(options, func(err error) { //nolint:contextcheck // a fork server outlives what starts it
		recorder.WarmReady(err == nil)
		if err == nil {
			said = ""
			log.Info("Runs are forked: the fork server is ready")
		} else if err.Error() != said {
			said = err.Error()
			log.Info("Runs are not forked, each starts a new Python", "reason", said)
		}
	})
	if uses(watched, watches.ExecutorWarm) {
		if err := options.Warm.Wait(ctx); err != nil {
			options.Warm.Close()
			endFiles()
			return nil, nil, fmt.Errorf("executor %s: %w; use the executor %s to start all the same", watches.ExecutorWarm, err, watches.ExecutorAuto)
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

// limitLog returns what is told of the number of runs at a time while forks come late.
func limitLog(recorder *metrics.Recorder, log logr.Logger) func(limit int) {
	recorder.RunLimit(0)
	last := 0
	return func(limit int) {
		recorder.RunLimit(limit)
		switch {
		case limit == 0:
			log.Info("Forks are in time again: the number of runs at a time is not limited any more")
		case last == 0 || limit < last:
			log.Info("A fork came late: this machine has too much to do, and there are fewer runs at a time; "+
				"give it more CPU, or lower --max-concurrent-reconciles", "limit", limit)
		}
		last = limit
	}
}
