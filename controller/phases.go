package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
)

// phaseResult is what a phase says of its reconcile: after how long the object is
// requeued, or one of the values below. Those below zero are no durations.
type phaseResult time.Duration

const (
	// finished leaves nothing to do.
	finished phaseResult = 0
	// lookAgain requeues the object for when the cache has caught up.
	lookAgain = phaseResult(200 * time.Millisecond)
	// notThere requeues an object that the API server does not have. The cache will know that it is gone; an API server that has just
	// started may say so of any object.
	notThere = phaseResult(2 * time.Second)
	// nextPhase goes on with the next phase.
	nextPhase phaseResult = -1
	// runEnded says that the scope has a run that ended, which is concluded now.
	runEnded phaseResult = -2
)

// after requeues the object after d; zero leaves nothing to do.
func after(d time.Duration) phaseResult { return phaseResult(max(d, 0)) }

// checkFinalizer ends the reconcile of a deleted object that does not wait for
// this operator, and removes the finalizer of one whose finalizer run is proved already.
func (r *reconciler) checkFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	if !r.hasOurFinalizer(s.object) {
		s.log.Info("Resource is terminated, skipping reconciliation")
		return finished, nil
	}
	if s.settings.orphan {
		s.log.Info("Finalizer is removed without a finalizer run, because of the annotation " + ownPrefix + "orphan; " +
			"what the finalizer would have removed stays")
		return r.removeFinalizer(ctx, s)
	}
	if s.memory.finalized || !r.hasFinalizer(s.object) {
		if now := r.now(); s.settings.holdsDeletion(now) {
			s.plan = plan{held: causeDeleted}
			err := r.reportHeldRun(ctx, s, now)
			return r.untilWritten(s, pauseLeft(now, s.settings.paused)), err
		}
		return r.pruneAndRemoveFinalizer(ctx, s)
	}
	return nextPhase, nil
}

// ensureFinalizer puts the finalizer on the object before anything exists that
// it would have to clean up, and takes off what another watch has put on it that has run it
// before: nothing would take it off later.
func (r *reconciler) ensureFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	finalizers := slices.Clone(s.object.GetFinalizers())
	if r.watchers.shared() {
		unneeded := r.unneeded()
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return slices.Contains(unneeded, f) })
	}
	for _, f := range r.finalizers() {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	if slices.Equal(finalizers, s.object.GetFinalizers()) {
		return nextPhase, nil
	}
	if rest := s.memory.finalizerAt.Add(finalizerPause).Sub(r.now()); rest > 0 {
		return after(rest), nil // another client takes it off each time
	}
	failpoint.Hit("finalizer.before-patch")
	err := r.patchFinalizers(ctx, s.object, finalizers)
	failpoint.Hit("finalizer.after-patch")
	switch {
	case apierrors.IsNotFound(err):
		return notThere, nil
	case apierrors.IsConflict(err):
		return lookAgain, nil
	case err != nil:
		err = fmt.Errorf("add the finalizer: %w", err)
		r.showStuck(ctx, s, err)
		return finished, err
	}
	s.trimmed, s.memory.finalizerAt = false, r.now()
	return nextPhase, nil
}

// finalizerPause is the least time between two patches of the finalizers of an object.
const finalizerPause = 10 * time.Second

// orphanAfter is how many finalizer runs in a row have to fail for an object to be
// orphaned where the watch does not say it.
const orphanAfter = 5

// givesUp reports whether the finalizer is removed although its run has failed: not after one
// that was cancelled, or could not be made.
func (r *reconciler) givesUp(s *scope, run status.Run) bool {
	most := int64(cmp.Or(r.watch.Retry.MaxAttempts, orphanAfter))
	if !s.deleting || !s.ran || r.watch.Finalizer.OnFailure != watches.OnFailureOrphan ||
		run.Result != status.Failed || run.Reason == status.ReasonCancelled || run.Attempts < most {
		return false
	}
	s.log.Error(errors.New(run.Message), "Finalizer run has failed too often: the finalizer is removed, because the watch says onFailure: orphan; "+
		"what the finalizer should have removed stays", "attempts", run.Attempts)
	return true
}

// pruneAndRemoveFinalizer lets an object go whose finalizer run has succeeded or was given up.
func (r *reconciler) pruneAndRemoveFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	if err := r.prune(ctx, s); err != nil {
		r.showStuck(ctx, s, err)
		return finished, err
	}
	return r.removeFinalizer(ctx, s)
}

// removeFinalizer removes the finalizers of the operator.
func (r *reconciler) removeFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	finalizers := slices.DeleteFunc(slices.Clone(s.object.GetFinalizers()), r.isOurFinalizer)
	failpoint.Hit("release.before-patch")
	err := r.patchFinalizers(ctx, s.object, finalizers)
	failpoint.Hit("release.after-patch")
	if apierrors.IsNotFound(err) {
		return notThere, nil
	}
	if err != nil {
		err = fmt.Errorf("remove the finalizer: %w", err)
		r.showStuck(ctx, s, err)
		return finished, err
	}
	r.objects.setDeleted(s.key, time.Time{})
	s.log.Info("Finalizer removed", "remaining", finalizers)
	return finished, nil
}

// patchFinalizers writes the list under the UID and resource version that obj
// was read with, and brings obj to the answer.
func (r *reconciler) patchFinalizers(ctx context.Context, obj *unstructured.Unstructured, finalizers []string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("encode the finalizers: %w", err)
	}
	err = r.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; grant the operator patch on %s in group %q", err, r.res.plural, r.gvk.Group)
	}
	return err
}

// writeUnwritten writes the end of an earlier run that could not be written
// then. The run is not repeated for it, and while it is refused other runs do not
// wait for it.
func (r *reconciler) writeUnwritten(ctx context.Context, s *scope) (phaseResult, error) {
	run := s.memory.unwritten
	if run == nil {
		return nextPhase, nil
	}
	failpoint.Hit("unwritten.before-write")
	switch err := r.writeEnd(ctx, s, *run); {
	case apierrors.IsNotFound(err):
		return notThere, nil
	case refused(err):
		return nextPhase, nil
	case err != nil:
		return finished, err
	}
	s.memory.unwritten = nil
	r.settle(s, run.ID)
	return nextPhase, nil
}

// decide says whether a run is due and may start now. If not, it requeues the object, and writes into the status why a run
// is held back, or what cannot be watched.
func (r *reconciler) decide(ctx context.Context, s *scope) (phaseResult, error) {
	if !r.refer(s) {
		err := r.showNotWatched(ctx, s)
		return r.untilWritten(s, 0), err // it is looked at when what it refers to is known
	}
	var err error
	if s.fingerprint, err = s.content.inputs.fingerprint(ctx, s); err != nil {
		return finished, err
	}
	r.checkWait(ctx, s)
	now := r.now()
	s.plan = decide(now, r.situation(s))
	r.metrics.Decision(r.gvk, s.plan.cause != "")
	if s.plan.cause != "" {
		return r.place(s), nil
	}
	report := r.observe
	if s.plan.held != "" {
		report = r.reportHeldRun
	}
	if err := report(ctx, s, now); err != nil {
		return finished, err
	}
	if err := r.showNotWatched(ctx, s); err != nil {
		return finished, err
	}
	if now.After(s.memory.refused) {
		s.memory.refused = time.Time{} // there is nothing to say any more
	}
	return r.untilWritten(s, s.plan.wait), nil
}

// untilWritten requeues the object after wait, or earlier to write what was refused.
func (r *reconciler) untilWritten(s *scope, wait time.Duration) phaseResult {
	if (s.memory.unwritten != nil || !s.memory.refused.IsZero()) && (wait == 0 || wait > r.opts.RetryMax) {
		wait = r.opts.RetryMax
	}
	return after(wait)
}

// observe says in the status that a generation with the inputs of the last success is settled too, once per generation. Of what
// else the last run has left it says so again after another run was held back, or the object was stuck.
func (r *reconciler) observe(ctx context.Context, s *scope, now time.Time) error {
	generation, last := s.object.GetGeneration(), s.memory.last
	settled := last.Result == status.Succeeded && !last.NotYet() && s.settings.mode != watches.ModeCheck
	known, held := last.Generation == generation || s.memory.observed == generation, s.memory.held != (heldRun{})
	if !r.writesStatus() || last.Result == status.Interrupted || !held && (known || !settled) {
		return nil
	}
	shown, err := r.show(ctx, s, "record the generation", func(st map[string]any) map[string]any {
		if s.object.GetGeneration() != generation {
			return st
		}
		return status.Resume(st, asApplied(*last, s.settings.mode), generation, r.situation(s).delay(), now)
	})
	if !shown {
		return err
	}
	s.memory.observed, s.memory.held = generation, heldRun{}
	return nil
}

// asApplied clears the mode of a successful check that found no difference: the object is still as the last applying run
// left it. In mode check nothing was applied, so the mode stays.
func asApplied(last status.Run, mode watches.Mode) status.Run {
	if mode != watches.ModeCheck && last.Result == status.Succeeded && !last.Drifted {
		last.Mode = ""
	}
	return last
}

// reportHeldRun says in the status what holds a run back. It writes once per generation, cause
// and opening of a window, and not for a run that would only repeat a success, unless it was asked for.
func (r *reconciler) reportHeldRun(ctx context.Context, s *scope, now time.Time) error {
	held, last := heldRun{cause: s.plan.held, generation: s.object.GetGeneration()}, s.memory.last
	if !s.plan.until.IsZero() {
		held.until = s.plan.until.Unix()
	}
	if last != nil && last.Result == status.Succeeded && last.Fingerprint == s.fingerprint && !s.deleting && held.cause != causeManual {
		return r.observe(ctx, s, now)
	}
	if s.memory.held == held {
		return nil
	}
	switch {
	case !s.memory.refused.IsZero(): // it was said
	case s.plan.until.IsZero():
		s.log.Info("A run is held back: the object is paused", "cause", held.cause)
	default:
		s.log.Info("A run is held back until a maintenance window opens", "cause", held.cause, "opens", s.plan.until.UTC())
	}
	shown, err := r.show(ctx, s, "record what holds the run back", func(st map[string]any) map[string]any {
		return status.Hold(st, s.object.GetGeneration(), string(held.cause), s.plan.until, s.warnings, now)
	})
	if !shown {
		return err
	}
	s.memory.held = held
	s.noteNotWatched()
	return nil
}

// begin decides by the object as it is now, not as the cache had it, and records
// the run before it starts.
func (r *reconciler) begin(ctx context.Context, s *scope) (phaseResult, error) {
	if then, err := r.mayBegin(ctx, s); then != nextPhase || err != nil {
		return then, err
	}
	if s.plan = decide(r.now(), r.situation(s)); s.plan.cause == "" {
		return lookAgain, nil
	}
	if then := r.place(s); then != nextPhase {
		return then, nil // it has another cause than when it got its place
	}
	s.previous = r.previousOf(s)
	s.trigger = r.trigger(s)
	s.active = status.Active{
		ID: s.runID, Cause: string(s.plan.cause), Trigger: s.trigger, Mode: s.plan.mode(), Generation: s.object.GetGeneration(), Started: r.now(),
	}
	failpoint.Hit("begin.before-write")
	var err error
	if s.quiet = r.isQuiet(s); !s.quiet {
		err = r.writeStatus(ctx, s.object, metrics.MomentStart, func(st map[string]any) map[string]any {
			return status.Begin(st, s.active, s.deleting, s.active.Started)
		})
	}
	failpoint.Hit("begin.after-write")
	switch {
	case apierrors.IsNotFound(err):
		return notThere, nil
	case refused(err):
		// A status that is refused must not prevent the run.
		r.logRefusal(s, err)
	case err != nil:
		// It may have been written nevertheless.
		s.memory.lost, s.memory.unbegun = &s.active, s.active.ID
		s.memory.unanswered++
		return finished, err
	}
	// A conflict may have brought another object than the plan was made for. The
	// run is on record and has to get an end, or it would seem in progress for ever.
	planned := s.fingerprint
	r.readSettings(s)
	s.fingerprint, s.err = s.content.inputs.fingerprint(ctx, s)
	if s.err != nil && ctx.Err() != nil {
		s.err = ErrShutdown
	}
	s.inputs = r.packInputs(s)
	if s.err == nil && (s.fingerprint != planned || s.object.GetGeneration() != s.active.Generation ||
		(s.object.GetDeletionTimestamp() != nil) != s.deleting) {
		s.err, s.plan.check = ErrObjectChanged, false // what follows is no repetition of a check
	}
	if s.err == nil {
		r.objects.with(s.key, func(e *entry) { s.dependentChanged, s.changedInOtherNamespace = e.seen() }) // the run sees every change there was
		s.memory.held, s.memory.refused, s.memory.unanswered = heldRun{}, time.Time{}, 0
		return nextPhase, nil
	}
	return runEnded, nil
}

// mayBegin reads the object from the API server, and sees whether this is the
// reconcile that may run it.
func (r *reconciler) mayBegin(ctx context.Context, s *scope) (phaseResult, error) {
	failpoint.Hit("begin.before-read")
	if err := r.readLive(ctx, s); apierrors.IsNotFound(err) {
		return notThere, nil
	} else if errors.Is(ctx.Err(), context.Canceled) {
		return finished, nil // the operator ends, which is no error of the object's
	} else if err != nil {
		return finished, fmt.Errorf("read the object before the run: %w", err)
	}
	failpoint.Hit("begin.after-read")
	if !r.handles(s.object) {
		return finished, nil // the cache will know in a moment
	}
	if by, busy := r.set.busy.LoadOrStore(s.object.GetUID(), s.runID); busy && by != s.runID {
		return after(time.Second), nil // another watch of the kind has begun to run it, and goes on
	}
	r.takeOver(s.key)
	if deleting := s.object.GetDeletionTimestamp() != nil; deleting != s.deleting || deleting && !r.hasFinalizer(s.object) {
		return lookAgain, nil // the cache will know in a moment
	}
	if !s.memory.ran {
		// The cache may have been behind a run that another process recorded.
		s.memory.recall(r.record(s.object), r.now())
		if s.memory.lost != nil {
			return lookAgain, nil
		}
	}
	if !r.refer(s) {
		return lookAgain, nil
	}
	var err error
	r.readSettings(s)
	if s.fingerprint, err = s.content.inputs.fingerprint(ctx, s); err != nil {
		return finished, err
	}
	return nextPhase, nil
}

// readSettings takes from the object as it is now what decides whether it runs.
func (r *reconciler) readSettings(s *scope) {
	now, _ := r.settingsOf(s.object)
	s.settings.paused, s.settings.pausesDeletion = now.paused, now.pausesDeletion
	s.settings.requested, s.settings.mode = now.requested, now.mode
}
