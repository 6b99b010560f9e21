package main

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

// executors are the values of --executor.
func executors() []watches.Executor {
	return []watches.Executor{watches.ExecutorAuto, watches.ExecutorWarm, watches.ExecutorRunner}
}

// uses tells whether the runs of a watch are made in one of some ways.
func uses(watched []watches.Watch, ways ...watches.Executor) bool {
	return slices.ContainsFunc(watched, func(w watches.Watch) bool { return slices.Contains(ways, w.Executor) })
}

// newExecutor returns what makes the runs, and what ends it when no run is in
// progress. While there is no fork server, runs are plain, and the log says why,
// once. If a watch requires forked runs, that is an error at the start.
func (o *runOptions) newExecutor(ctx context.Context, watched []watches.Watch, recorder *metrics.Recorder, log logr.Logger) (_ *runner.Runner, end func(), err error) {
	options := runner.Options{Path: o.ansibleRunner}
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
	// Watches that come later may be such.
	later := o.watchContent && o.executor != string(watches.ExecutorRunner)
	if !later && !uses(watched, watches.ExecutorAuto, watches.ExecutorWarm) {
		r := runner.New(options)
		return r, func() {
			r.Close()
			endFiles()
		}, nil
	}
	said := ""
	options.Warm = runner.NewPool(options, func(err error) {
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
