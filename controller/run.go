package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/rundir"
)

// rolesPathEnv tells Ansible where to look for the roles that playbooks name.
const rolesPathEnv = "ANSIBLE_ROLES_PATH"

// traceParentEnv tells callbacks and modules the trace of the run,
// https://opentelemetry.io/docs/specs/otel/context/env-carriers/.
const traceParentEnv = "TRACEPARENT"

// kubeconfigFile is the name of the run's kubeconfig in its private data directory.
const kubeconfigFile = "kubeconfig"

// run executes the role or playbook and waits for its end.
func (r *reconciler) run(ctx context.Context, s *scope) (phaseResult, error) {
	s.mask = r.newMasker(ctx, s)
	ctx, life := r.lifetime(ctx, s.settings)
	defer life.end()
	s.life = life
	if s.token != "" {
		life.spent(s.age)
	}
	s.progress = r.newProgress(s)
	r.recordHistory(s)
	r.admit(s, life)
	defer r.dismiss(s)
	failpoint.Hit("run.admitted")
	r.followEarlier(ctx, s)
	if s.referring != nil {
		defer s.referring.end()
	}
	req, err := r.prepare(ctx, s)
	if s.err = err; err != nil {
		return r.leave(s)
	}
	if req.JobRun != nil {
		life.waits()
	}
	r.store.Link(req.Dir, r.pathOf(s.key)...)

	events := r.follow(s, &req)
	r.noteStart(s, req.Dir)
	stop := s.progress.start(ctx)
	s.result, s.err = r.execute(ctx, req)
	if errors.Is(s.err, runner.ErrTooLate) {
		s.err = ErrLeadershipLost // this process may have been frozen
	}
	failpoint.Hit("run.ended")
	s.object = stop()
	if then, err := r.leave(s); then != runEnded {
		return then, err
	}
	r.countRun(s)
	s.access.Revoke() // after this, no request of the run is in progress
	r.pruneUntouched(ctx, s)
	r.dismiss(s) // before the end is recorded together with the object's dependents
	r.settleReferences(ctx, s)
	failpoint.Hit("run.dismissed")
	r.strip(s, req.ID)
	r.countEvents(s.result.Summary)
	events.Finish(s.result.Summary, req.Dir, filepath.Join("artifacts", req.ID, "stdout"))
	return runEnded, nil
}

// follow sets up req so that each event of the run is logged, shown in the status, and counted as a sign of life,
// and so is each call.
func (r *reconciler) follow(s *scope, req *runner.Request) *eventlog.Logger {
	events := eventlog.New(eventlog.Options{
		Level: r.opts.LogEvents, Lines: r.opts.LogLines, DebugLogs: r.opts.DebugLogs, Out: r.opts.EventOut, Masked: s.mask.Reader,
		Command: req.Content.Command != nil || req.Content.Function != nil,
	}, s.log, r.gvk.String(), s.key.Name, s.key.Namespace, r.logVerbosity(s))
	if r.opts.Follow != nil {
		s.follower = r.opts.Follow(r.gvk, s.key, string(s.plan.cause))
	}
	req.Hurry = s.life.hurried.Done()
	if call := req.Call; call != nil {
		// While a call waits for the API server, what else the run reports is not read.
		req.Call = func(ctx context.Context, name string, body []byte) error {
			s.life.waits()
			defer s.life.sign()
			return call(ctx, name, body)
		}
	}
	req.OnEvent = func(e jobevent.Event) {
		s.life.sign()
		e = r.shownEvent(s, e)
		events.Event(e)
		if result, ended := s.progress.observe(e); ended {
			events.Ended(result)
		}
		if s.follower != nil {
			s.follower.Event(e)
		}
	}
	return events
}

// noteStart records the start of a run in the log and in metrics.
func (r *reconciler) noteStart(s *scope, dir string) {
	log := s.log
	if s.trigger != "" {
		log = log.WithValues("trigger", s.trigger)
	}
	if s.plan.check {
		log = log.WithValues("mode", status.ModeCheck)
	}
	log.Info("Run starts", "cause", s.plan.cause, "generation", s.active.Generation, "directory", dir)
	r.metrics.RunStarted(r.gvk)
	r.metrics.RunWaited(r.gvk, string(s.plan.cause), r.now().Sub(s.due))
	s.started = true
}

// execute executes the run. If the disk is full, it removes old runs and tries again.
func (r *reconciler) execute(ctx context.Context, req runner.Request) (runner.Result, error) {
	for {
		result, err := r.opts.Runner.Run(ctx, req)
		if !errors.Is(err, runner.ErrNoSpace) || !result.Started.IsZero() || req.JobRun != nil || !r.store.MakeRoom() {
			return result, err
		}
	}
}

// strip removes from the directory of an ended run the files that no longer serve a purpose:
// the kubeconfig, the extra vars, the environment.
func (r *reconciler) strip(s *scope, run string) {
	dir, err := r.store.Dir(s.uid(), run)
	if err == nil {
		err = rundir.Strip(dir, kubeconfigFile)
	}
	if err != nil {
		s.log.Error(err, "Secrets of the run cannot be removed", "directory", dir)
	}
}

// prepare returns the request for the run, after calling the hooks.
func (r *reconciler) prepare(ctx context.Context, s *scope) (runner.Request, error) {
	if s.token != "" {
		return r.adopted(s)
	}
	sources, err := r.readVars(ctx, s)
	if err != nil {
		return runner.Request{}, err
	}
	more, err := r.before(ctx, s)
	if err != nil {
		return runner.Request{}, err
	}
	return r.request(s, sources, more)
}

// request returns the request for the run, and creates its directory.
func (r *reconciler) request(s *scope, sources []extravars.Source, more map[string]any) (runner.Request, error) {
	req, err := r.buildRequest(s, sources, more)
	if err != nil {
		return runner.Request{}, err
	}
	if req.Dir, err = r.store.Create(s.uid(), s.runID); err != nil {
		return runner.Request{}, err
	}
	access, err := s.access.Kubeconfig()
	if err != nil {
		return runner.Request{}, err
	}
	s.given = s.object.Object["spec"]
	req.ID, req.Until, req.JobRun = s.runID, r.opts.Leads, r.jobRun(s)
	addRunEnv(&req, req.Dir)
	if path := rolesPath(s.content.copy, os.LookupEnv); path != "" {
		req.Env[rolesPathEnv] = path
	}
	if parent := s.recording.Parent(); parent != "" {
		req.Env[traceParentEnv] = parent
	}
	if req.Files == nil {
		req.Files = map[string][]byte{}
	}
	req.Files[kubeconfigFile], req.Files[runstore.TicketFile] = access, ticketOf(s)
	return req, nil
}

// buildRequest builds the request for the run of s, without its directory. sources are variables from other objects,
// more those of a hook. It adds warnings about variables to s.
func (r *reconciler) buildRequest(s *scope, sources []extravars.Source, more map[string]any) (runner.Request, error) {
	content, finalizerVars := r.contentFor(s), map[string]any(nil)
	if s.deleting {
		finalizerVars = r.watch.Finalizer.Vars
	}
	if content.Command != nil {
		return r.commandRequest(s, content.Command, sources)
	}
	if content.Handler != "" {
		return r.handlerRequest(s, content.Handler)
	}
	vars, notices, err := extravars.Build(s.object.Object, extravars.Options{
		Group: r.gvk.Group, Kind: r.gvk.Kind, SnakeCase: r.watch.SnakeCaseParameters,
		MarkUnsafe: r.watch.MarkUnsafe, AllowReserved: r.watch.AllowReservedVariables,
		From: sources, Vars: r.watch.Vars, HookVars: more, FinalizerVars: finalizerVars,
	})
	if err != nil {
		return runner.Request{}, fmt.Errorf("extra vars: %w", err)
	}
	_, hasSpec := s.object.Object["spec"]
	for _, n := range notices {
		if n.Kind == extravars.SpecNotMap && !hasSpec {
			continue // many kinds have no spec, which is not a mistake
		}
		s.warnings = append(s.warnings, n.Detail)
	}
	return runner.Request{
		Content: contentOf(s.content.copy, content), ExtraVars: vars,
		Verbosity: s.settings.verbosity, Cmdline: s.plan.arguments(r.opts.AnsibleArgs),
		Inventory: s.content.copy.Path(r.opts.Inventory), SkipFacts: r.opts.SkipFacts, MaxBytes: r.opts.RunMaxBytes,
		Mask: s.masker(s.mask), Executor: runner.Executor(r.watch.Executor),
	}, nil
}

// contentFor returns the content to run: the finalizer's, the check command's, or the watch's.
func (r *reconciler) contentFor(s *scope) watches.Content {
	content := r.watch.Content
	switch {
	case s.deleting:
		return r.watch.Finalizer.Content
	case s.plan.check && r.watch.CheckCommand != nil:
		content.Command = r.watch.CheckCommand
	}
	return content
}

func contentOf(c *contentcopy.Copy, is watches.Content) runner.Content {
	return runner.Content{Playbook: c.Path(is.Playbook), Role: c.Path(is.Role)}
}

// logVerbosity returns the verbosity that switches the log to raw output: the
// annotation's, else the environment's. The verbosity of flags and watches has no effect on it.
func (r *reconciler) logVerbosity(s *scope) int {
	if s.settings.verbose {
		return s.settings.verbosity
	}
	return r.opts.LogVerbosity
}

// countRun notes whether the run took place, and records in metrics and in the log how.
func (r *reconciler) countRun(s *scope) {
	result := s.result
	if why := result.Unsuited(); why != "" {
		s.log.V(1).Info("Run could not be forked", "reason", why)
	}
	if s.ran = s.err == nil || !result.Finished.IsZero(); !s.ran {
		return
	}
	executor := string(result.Executor())
	r.metrics.RunMade(r.gvk, executor)
	r.metrics.RunMemory(r.gvk, executor, result.Memory)
	r.metrics.RunCPU(r.gvk, executor, result.CPU)
	r.metrics.ModulesRun(r.gvk, result.Modules())
	r.metrics.TasksRun(r.gvk, result.Tasks())
}

func (r *reconciler) countEvents(sum jobevent.Summary) {
	r.metrics.RunEvents(metrics.EventAccepted, sum.Events)
	r.metrics.RunEvents(metrics.EventForeign, sum.Foreign)
	r.metrics.RunEvents(metrics.EventBad, sum.Bad)
	r.metrics.RunEvents(metrics.EventGap, sum.Gaps)
}

// conclude records how the run ended, and removes the finalizer if a finalizer run has
// succeeded or was given up.
func (r *reconciler) conclude(ctx context.Context, s *scope) (phaseResult, error) {
	if s.recorded != nil {
		return r.recordEnd(ctx, s, *s.recorded)
	}
	run := r.endedRun(s)
	r.callAfterHook(ctx, s, &run)
	if run.Reason == string(runner.NoSpace) && s.result.Executor() != runner.ExecutorJob { // a Job has another disk
		r.store.MakeRoom() // for the next run
	}
	if err := r.store.Record(s.uid(), s.deleting, run); err != nil {
		s.log.Error(err, "The end of the run is kept in memory only until it is written")
	}
	return r.recordEnd(ctx, s, run)
}

// recordEnd is the second half of conclude. It has its own context, since a result
// is written even while the operator stops.
func (r *reconciler) recordEnd(ctx context.Context, s *scope, run status.Run) (phaseResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)
	defer cancel()
	if s.earlier && !run.RefusesInput() {
		run.Permanent = false // this process may have another image, with which the run may succeed
	}
	m, before := s.memory, s.memory.last
	r.judgeRollout(s, before, run)
	m.blocked = blocked(m.blocked, run)
	if was := m.unwritten; was != nil && was.ID != run.ID {
		r.settle(s, was.ID) // its result is no longer written
	}
	r.keepSpec(s, m.last, run)
	m.asked, m.ownSpec, m.ownObject = s.askedAfter(run), s.progress.ownSpec(), r.ownObject(ctx, s)
	m.last, m.parked, m.lost, m.unwritten, m.ran, m.nextLook, m.looks = &run, run.Wait, nil, &run, true, time.Time{}, looks{}
	m.finalized = s.deleting && run.Result == status.Succeeded && run.RequeueAfter == 0 && run.Wait == nil || r.givesUp(s, run)
	r.report(s, before, run)
	m.judge(m.last)
	r.objects.with(s.key, func(e *entry) { e.ended(&run) })
	r.noteEnd(s, run)
	failpoint.Hit("conclude.judged")

	err := r.writeEnd(ctx, s, run)
	switch {
	case apierrors.IsNotFound(err):
		if !m.finalized { // an object that is about to go does not need the result
			return notThere, nil // the result is kept and written later, unless the object is gone
		}
	case refused(err):
		r.logRefusal(s, err)
		if !m.finalized { // as above
			return after(r.opts.RetryMin), nil
		}
	case err != nil:
		s.log.Error(err, "Result of the run cannot be written yet; it is kept and written later")
		return after(r.opts.RetryMin), nil
	}
	m.unwritten = nil
	s.noteNotWatched()
	failpoint.Hit("conclude.written")
	r.settle(s, run.ID)
	failpoint.Hit("conclude.pruned")
	if m.finalized {
		return r.pruneAndRemoveFinalizer(ctx, s)
	}
	if run.Result == status.Interrupted && !run.BacksOff() {
		return lookAgain, nil
	}
	then := r.situationAfter(s, run)
	return after(cmp.Or(then.delay(), then.recheckAfter())), nil
}

// noteEnd records in the log, the history and metrics how a run ended.
func (r *reconciler) noteEnd(s *scope, run status.Run) {
	if s.follower != nil {
		s.follower.End(run)
	} else {
		r.logEnd(s, run)
	}
	r.concludeHistory(s, run)
	switch {
	case s.started:
		r.metrics.RunEnded(r.gvk, run.Cause, run.Reason)
	case run.Result == status.Failed && !s.earlier:
		r.metrics.RunNotMade(r.gvk, run.Cause, run.Reason)
	}
	if run.Result == status.Failed {
		for _, f := range s.result.Summary.Culprits() {
			r.metrics.TaskFailed(r.gvk, f.Task.Path)
		}
	}
	if run.Result != status.Interrupted {
		r.metrics.ReconcileResult(r.gvk, run.Result == status.Succeeded)
	}
}

func (r *reconciler) situationAfter(s *scope, run status.Run) situation {
	after := r.situation(s)
	after.last = &run
	return after
}
