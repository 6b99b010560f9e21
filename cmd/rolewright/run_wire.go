package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// loadWatches logs the warnings about the watches file, and returns all its
// errors in one.
func (o *runOptions) loadWatches(log logr.Logger) ([]watches.Watch, error) {
	watched, problems, err := o.readWatches()
	for _, p := range problems {
		log.Info(watchesProblem, "problem", p.String())
	}
	return watched, err
}

const watchesProblem = "problem in the watches file"

// readWatches returns the watches with the warnings about them, or all errors in one.
func (o *runOptions) readWatches() ([]watches.Watch, []watches.Problem, error) {
	watched, problems, err := watches.Load(o.watchesFile, watches.Options{
		LookupEnv: os.LookupEnv,
		Strict:    o.strict,
		Defaults: watches.Defaults{
			MaxConcurrentReconciles: o.maxConcurrent,
			AnsibleVerbosity:        o.ansibleVerbosity,
			Executor:                watches.Executor(o.executor),
			ReconcilePeriod:         o.chartPeriod,
		},
	})
	if err != nil {
		return nil, nil, problemsError(err, problems)
	}
	for _, w := range watched {
		if w.Content.Handler != "" {
			return nil, nil, problemsError(watches.ErrInvalid, []watches.Problem{{
				File: o.watchesFile, Pos: w.Pos, Severity: watches.Error, Hint: "run that one; see docs/go.md",
				Message: fmt.Sprintf("the handler %s of the watch of %s is Go code of another program, which adds the watch to its own manager", w.Content.Handler, w.GVK),
			}})
		}
	}
	return watched, problems, nil
}

// checkPrune reports watches with prune if the operator does not know what their objects
// own, or what their runs touch.
func (o *runOptions) checkPrune(watched []watches.Watch) error {
	for _, w := range watched {
		p := watches.Problem{File: o.watchesFile, Pos: w.Pos, Severity: watches.Error}
		switch {
		case !w.Prune:
			continue
		case !o.injectOwnerRef:
			p.Message, p.Hint = "prune needs the owner marks that --inject-owner-ref=false turns off", "remove the flag, or prune"
		case o.proxyAnonymous:
			p.Message, p.Hint = "prune does not see what a run touches through --proxy-anonymous", "remove the flag, or prune"
		default:
			continue
		}
		return problemsError(watches.ErrInvalid, []watches.Problem{p})
	}
	return nil
}

// usableWatches loads a watches file that must be free of errors. The error it returns is the user's.
func usableWatches(file string, lookupEnv func(string) (string, bool)) ([]watches.Watch, error) {
	watched, problems, err := watches.Load(file, watches.Options{LookupEnv: lookupEnv})
	if err != nil {
		return nil, usage(problemsError(err, problems))
	}
	return watched, nil
}

// problemsError adds to err what only the problems contain: each problem with its
// place, or what to do about a file that cannot be read.
func problemsError(err error, problems []watches.Problem) error {
	if !errors.Is(err, watches.ErrInvalid) {
		if len(problems) == 1 && problems[0].Hint != "" {
			return fmt.Errorf("%w; %s", err, problems[0].Hint)
		}
		return err
	}
	var lines strings.Builder
	for _, p := range problems {
		lines.WriteString("\n  " + p.String())
	}
	return fmt.Errorf("%w%s", err, &lines)
}

// runnerOptions are for runs of the current watches, and of watches that may be added later.
func (o *runOptions) runnerOptions() assembly.RunnerOptions {
	return assembly.RunnerOptions{
		Path: o.ansibleRunner, WarmIdle: o.warmIdle, TrustLine: o.trustLine, Later: o.watchContent && o.executor != string(watches.ExecutorRunner),
	}
}

// addControllers adds the controllers to mgr.
func (op *operator) addControllers(mgr ctrl.Manager, gateway *proxy.Proxy) (*controller.Set, error) {
	o := op.runOptions
	runs, err := op.jobRunner(mgr, gateway)
	if err != nil {
		return nil, err
	}
	options := controller.Options{
		Watches:        op.watched,
		Content:        op.content,
		Runner:         runs,
		InjectOwnerRef: o.injectOwnerRef,
		RunnerRoot:     o.runnerRoot,

		SuppressOverrideValues: o.suppressOverrides,

		ArtifactsMaxBytes: int64(o.artifactsMaxBytes), ArtifactsMaxAge: o.artifactsMaxAge, RunMaxBytes: int64(o.runMaxBytes),

		MaxConcurrentRuns: o.maxRuns,

		Namespaces:       o.namespaces,
		ReconcilePeriod:  o.reconcilePeriod,
		RetryMin:         o.retryMin,
		RetryMax:         o.retryMax,
		ProgressInterval: o.progressInterval,
		GracefulShutdown: o.grace(),
		AnsibleArgs:      o.ansibleArgs,
		Inventory:        o.inventory,
		SkipFacts:        o.skipFacts,
		LogEvents:        o.eventLevel,
		LogVerbosity:     o.logVerbosity,
		LogLines:         o.logFormat != "",
		EventOut:         eventlog.NewOutput(op.stdout),
		DebugLogs:        o.debugLogs,
		Follow:           o.follow,
	}
	if op.lease != nil {
		options.Leads, options.Sharded = op.lease.proved, o.shards > 0
	}
	return op.AddControllers(mgr, gateway, options)
}
