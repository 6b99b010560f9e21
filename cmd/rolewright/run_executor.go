package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
)

// The values of --executor.
const (
	executorRunner = "runner"
	executorWarm   = "warm"
)

// newExecutor returns what makes the runs, and what ends it when no run is under way.
func (o *runOptions) newExecutor(log logr.Logger) (_ *runner.Runner, end func() error, err error) {
	options := runner.Options{
		Path: o.ansibleRunner, Environ: runner.Inherited(os.Environ()), Ledger: filepath.Join(o.runnerRoot, ledgerFile),
	}
	removeDir := func() error { return nil }
	if o.executor == executorWarm {
		if options.Warm, removeDir, err = o.newPool(options.Environ, log); err != nil {
			return nil, nil, err
		}
	}
	r := runner.New(options)
	return r, func() error {
		r.Close()
		if options.Warm != nil {
			options.Warm.Close()
		}
		return removeDir()
	}, nil
}

// newPool starts a fork server. Where there can be none, the log says why, and
// every run starts Python anew.
func (o *runOptions) newPool(environ []string, log logr.Logger) (_ *warm.Pool, removeDir func() error, err error) {
	ansibleRunner, err := exec.LookPath(o.ansibleRunner)
	playbook, err2 := exec.LookPath("ansible-playbook")
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, fmt.Errorf("--executor=%s: %w", executorWarm, err)
	}
	// Not the runner root: the path of a socket is short.
	dir, err := os.MkdirTemp("", "rolewright-warm-")
	if err != nil {
		return nil, nil, fmt.Errorf("--executor=%s: %w", executorWarm, err)
	}
	return warm.New(warm.Options{
		Dir: dir, Environ: environ, Runner: ansibleRunner, Playbook: playbook,
		Supervisor: []string{"/proc/self/exe", runner.SupervisorCommand},
		OnChange: func(err error) {
			if err != nil {
				log.Info("Runs start Python anew", "reason", err.Error())
				return
			}
			log.Info("Runs are forked from a warm interpreter")
		},
	}), func() error { return os.RemoveAll(dir) }, nil
}
