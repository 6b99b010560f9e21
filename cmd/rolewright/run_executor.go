package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/runner"
)

// The values of --executor.
const (
	executorRunner = "runner"
	executorWarm   = "warm"
)

// newExecutor returns what makes the runs, and what ends it when no run is under
// way. Where there can be no fork server, the log says why, and every run starts
// Python anew.
func (o *runOptions) newExecutor(log logr.Logger) (_ *runner.Runner, end func() error, err error) {
	options := runner.Options{Path: o.ansibleRunner, Ledger: filepath.Join(o.runnerRoot, ledgerFile)}
	if o.executor == executorRunner {
		r := runner.New(options)
		return r, func() error { r.Close(); return nil }, nil
	}
	// Not in the runner root: the path of a socket is short.
	dir, err := os.MkdirTemp("", "rolewright-warm-")
	if err != nil {
		return nil, nil, fmt.Errorf("--executor=%s: %w", o.executor, err)
	}
	options.Warm, err = runner.NewPool(options, dir, func(err error) {
		if err != nil {
			log.Info("Runs start Python anew", "reason", err.Error())
			return
		}
		log.Info("Runs are forked from a warm interpreter")
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--executor=%s: %w", o.executor, err), os.RemoveAll(dir))
	}
	r := runner.New(options)
	return r, func() error {
		r.Close()
		options.Warm.Close()
		return os.RemoveAll(dir)
	}, nil
}
