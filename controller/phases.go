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

// phaseResult says how a reconcile continues after a phase: the delay after which the object is
// requeued, or one of the values below. Negative values are not durations.
type phaseResult time.Duration

const (
	// finished leaves nothing to do.
	finished phaseResult = 0
	// lookAgain requeues the object to give the cache time to catch up.
	lookAgain = phaseResult(200 * time.Millisecond)
	// notThere requeues an object that the API server did not find: either the cache will soon drop it, or the API
	// server has just started and reports any object as not found.
	notThere = phaseResult(2 * time.Second)
	// nextPhase continues with the next phase.
	nextPhase phaseResult = -1
	// runEnded skips the remaining phases: the scope holds a run that has ended and is concluded next.
	runEnded phaseResult = -2
)

// after requeues the object after d; zero or less is the same as finished.
func after(d time.Duration) phaseResult { return phaseResult(max(d, 0)) }

// checkFinalizer ends the reconcile of a deleted object that does not wait for this operator. It removes
// the finalizer if the finalizer run has already succeeded, or none is needed.
func (r *reconciler) checkFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	none := s.memory.finalized || !r.hasFinalizer(s.object)
	if none || s.settings.orphan {
		if then, err := r.endUnneeded(ctx, s); then != nextPhase || err != nil {
			return then, err
		}
	}
	if !r.hasOurFinalizer(s.object) {
		s.log.Info("Resource is terminated, skipping reconciliation")
		return finished, nil
	}
	if s.settings.orphan {
		s.log.Info("Finalizer is removed without a finalizer run, because of the annotation " + ownPrefix + "orphan; " +
			"what the finalizer would have removed stays")
		return r.removeFinalizer(ctx, s)
	}
	if none {
		if now := r.now(); s.settings.holdsDeletion(now) {
			s.plan = plan{held: causeDeleted}
			err := r.reportHeldRun(ctx, s, now)
			return r.untilWritten(s, pauseLeft(now, s.settings.paused)), err
		}
		return r.pruneAndRemoveFinalizer(ctx, s)
	}
	return nextPhase, nil
}

// ensureFinalizer adds the finalizer before a run creates anything that it would have to clean up. It
// also removes the finalizers of another watch that ran the object before; nothing would remove them later.
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
		return after(rest), nil // another client keeps removing it
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

// finalizerPause is the shortest time between two patches of an object's finalizers.
const finalizerPause = 10 * time.Second

// orphanAfter is how many finalizer runs in a row have to fail before onFailure: orphan
// removes the finalizer, unless the watch sets a number.
const orphanAfter = 5

// givesUp reports whether the finalizer is removed although its run has failed. A run that was
// cancelled or could not be made is never a reason to give up.
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

// removeFinalizer removes all finalizers that the operator has added.
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

// patchFinalizers writes the list, on the condition that the object still has obj's UID and resource
// version, and updates obj with the answer.
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

// writeUnwritten writes the result of an earlier run that could not be written when the run ended. The run is
// not repeated because of that. If the API server refuses the result, new runs go ahead without it.
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

// decide decides whether a run is due and may start now. If not, it requeues the object, and writes into the status
// what holds the run back, or what cannot be watched.
func (r *reconciler) decide(ctx context.Context, s *scope) (phaseResult, error) {
	if !r.refer(s) {
		err := r.showNotWatched(ctx, s)
		return r.untilWritten(s, 0), err // it is reconciled when what it refers to is known
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
		s.memory.refused = time.Time{} // nothing is left to write
	}
	return r.untilWritten(s, s.plan.wait), nil
}

// untilWritten requeues the object after wait, or earlier if a status still has to be written.
func (r *reconciler) untilWritten(s *scope, wait time.Duration) phaseResult {
	if (s.memory.unwritten != nil || !s.memory.refused.IsZero()) && (wait == 0 || wait > r.opts.RetryMax) {
		wait = r.opts.RetryMax
	}
	return after(wait)
}

// observe writes into the status, once per generation, that a new generation with the same inputs as the last success is
// settled too. After a held run or a stuck object it also restores what the last run had left in the status.
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
// left it. With mode check nothing is ever applied, so the mode stays.
func asApplied(last status.Run, mode watches.Mode) status.Run {
	if mode != watches.ModeCheck && last.Result == status.Succeeded && !last.Drifted {
		last.Mode = ""
	}
	return last
}

// reportHeldRun writes into the status what holds a run back, once per generation, cause and opening of
// the maintenance window. It does not report a run that would only repeat a success, unless someone asked for it.
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
	case !s.memory.refused.IsZero(): // it was already logged
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

// begin decides again by the live object instead of the cached one, and records the run before it
// starts.
func (r *reconciler) begin(ctx context.Context, s *scope) (phaseResult, error) {
	if then, err := r.mayBegin(ctx, s); then != nextPhase || err != nil {
		return then, err
	}
	if s.plan = decide(r.now(), r.situation(s)); s.plan.cause == "" {
		return lookAgain, nil
	}
	if then := r.place(s); then != nextPhase {
		return then, nil // its cause is no longer the one for which it got its place
	}
	s.previous = r.previousOf(s)
	s.trigger = r.trigger(s)
	s.active = status.Active{
		ID: s.runID, Cause: string(s.plan.cause), Trigger: s.trigger, Mode: s.plan.mode(), Generation: s.object.GetGeneration(), Started: r.now(),
	}
	failpoint.Hit("begin.before-write")
	var err error
	if s.quiet = r.isQuiet(s); !s.quiet {
		// A shutdown must not cut it: the run would be on record as in progress, and be lost.
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)
		err = r.writeStatus(writing, s.object, metrics.MomentStart, func(st map[string]any) map[string]any {
			return status.Begin(st, s.active, s.deleting, s.active.Started)
		})
		cancel()
	}
	failpoint.Hit("begin.after-write")
	switch {
	case apierrors.IsNotFound(err):
		return notThere, nil
	case refused(err):
		// A refused status must not prevent the run.
		r.logRefusal(s, err)
	case err != nil:
		// The status may have been written all the same.
		s.memory.lost, s.memory.unbegun = &s.active, s.active.ID
		s.memory.unanswered++
		return finished, err
	}
	// After a conflict the object may differ from the one that was planned for. The run is recorded by now and
	// has to end, or it would seem in progress for ever.
	planned := s.fingerprint
	r.readSettings(s)
	s.fingerprint, s.err = s.content.inputs.fingerprint(ctx, s)
	if ctx.Err() != nil { // the run is not even started
		if s.err = context.Cause(ctx); !interrupted(s.err) {
			s.err = ErrShutdown
		}
	}
	s.inputs, s.dependents = r.packInputs(s), resourceNames(r.record(s.object).Dependents) // a run that is not made leaves them as they are
	if s.err == nil && (s.fingerprint != planned || s.object.GetGeneration() != s.active.Generation ||
		(s.object.GetDeletionTimestamp() != nil) != s.deleting) {
		s.err, s.plan.check = ErrObjectChanged, false // the run that follows does not repeat a check
	}
	if s.err == nil {
		r.objects.with(s.key, func(e *entry) { s.dependentChanged, s.changedInOtherNamespace = e.seen() }) // the run sees all changes up to now
		s.memory.held, s.memory.refused, s.memory.unanswered = heldRun{}, time.Time{}, 0
		return nextPhase, nil
	}
	return runEnded, nil
}

// mayBegin reads the object from the API server, and checks whether this reconcile may still run it.
func (r *reconciler) mayBegin(ctx context.Context, s *scope) (phaseResult, error) {
	failpoint.Hit("begin.before-read")
	if err := r.readLive(ctx, s); apierrors.IsNotFound(err) {
		return notThere, nil
	} else if errors.Is(ctx.Err(), context.Canceled) {
		return finished, nil // the operator is stopping, which is not an error
	} else if err != nil {
		return finished, fmt.Errorf("read the object before the run: %w", err)
	}
	failpoint.Hit("begin.after-read")
	if !r.handles(s.object) {
		return finished, nil // the cache is about to catch up
	}
	if by, busy := r.set.busy.LoadOrStore(s.object.GetUID(), s.runID); busy && by != s.runID {
		return after(time.Second), nil // another watch of the kind is still running it
	}
	r.takeOver(s.key)
	if deleting := s.object.GetDeletionTimestamp() != nil; deleting != s.deleting || deleting && !r.hasFinalizer(s.object) {
		return lookAgain, nil // the cache is about to catch up
	}
	if !s.memory.ran {
		// Another process may have recorded a run that the cache did not show yet.
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

// readSettings rereads from the live object the settings that decide whether it runs.
func (r *reconciler) readSettings(s *scope) {
	now, _ := r.settingsOf(s.object)
	s.settings.paused, s.settings.pausesDeletion = now.paused, now.pausesDeletion
	s.settings.requested, s.settings.mode = now.requested, now.mode
}
