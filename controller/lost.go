package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/runner"
)

// ticketOf returns the encoded ticket of a run that is about to start.
func ticketOf(s *scope) []byte {
	gvk := s.object.GroupVersionKind()
	data, err := json.Marshal(runstore.Ticket{
		Run: s.runID, Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: s.key.Namespace, Name: s.key.Name, UID: s.uid(),
		Generation: s.active.Generation, Fingerprint: s.fingerprint, Inputs: s.inputs, Deleting: s.deleting, Check: s.plan.check,
	})
	if err != nil {
		return nil // cannot happen; without a ticket, a lost run is repeated
	}
	return data
}

// settleLost settles a run that the status shows in progress although it is not this process's:
// its operator process has died, or was frozen and lost the leadership. A run as a Job is adopted
// if possible; otherwise, what is left of the run is ended. If its result is known after all, that
// counts; else the run is recorded as lost, and repeated.
func (r *reconciler) settleLost(ctx context.Context, s *scope) (phaseResult, error) {
	unclaimed := r.unclaimed(ctx, s)
	if s.memory.lost == nil {
		r.store.Settled(s.uid(), s.settings.retention())
		if len(unclaimed) == 0 && s.memory.left == "" {
			return nextPhase, nil
		}
	}
	failpoint.Hit("lost.before-read")
	// The cache may not show an end that was already recorded.
	if err := r.readLive(ctx, s); apierrors.IsNotFound(err) {
		return notThere, nil
	} else if err != nil {
		return finished, fmt.Errorf("read the object: %w", err)
	}
	s.memory.recall(r.record(s.object), r.now())
	r.objects.with(s.key, func(e *entry) { e.ended(s.memory.last) })
	if last := s.memory.last; s.memory.lost == nil && last != nil && slices.Contains(unclaimed, last.ID) {
		r.forgetRun(last.ID, s.uid()) // the process that recorded its end died before it removed the Job
		if len(r.unclaimed(ctx, s)) < len(unclaimed) {
			return lookAgain, nil // look at the current object
		}
		return nextPhase, nil
	}
	if _, busy := r.set.busy.Load(s.object.GetUID()); busy {
		return after(time.Second), nil // another watch of the kind runs it
	}
	if s.memory.lost == nil { // no status names it, for example because the CRD drops the record of runs
		return r.endJobRuns(ctx, s, status.Active{})
	}
	if then, err := r.adopt(ctx, s, *s.memory.lost); then != nextPhase || err != nil {
		return then, err
	}
	if then, err := r.endJobRuns(ctx, s, *s.memory.lost); then != nextPhase || err != nil {
		return then, err
	}
	if err := r.recoverRun(ctx, s, *s.memory.lost); err != nil {
		return finished, err
	}
	s.earlier = true
	return runEnded, nil
}

// recoverRun ends what is left of an earlier process's run, and puts its result into s: as
// that process recorded it, as this disk shows it, or as lost.
func (r *reconciler) recoverRun(ctx context.Context, s *scope, lost status.Active) error {
	t, noTicket := r.store.Ticket(s.uid(), lost)
	if noTicket == nil {
		failpoint.Hit("lost.before-reap")
		switch err := r.opts.Runner.Reap(lost.ID); {
		case errors.Is(err, runner.ErrSurvivors): // they may stay for as long as the node is up
			s.log.Error(err, "Processes of a run of an earlier operator process cannot be killed; find out what they wait for, or restart the node", "run", lost.ID)
		case err != nil:
			return err
		}
		r.strip(s, lost.ID)
	}
	run, written := r.store.Recorded(s.uid(), s.deleting, lost)
	if run != nil && !written {
		s.log.Info("Run of an earlier operator process has ended; its result is written now", "run", run.ID)
		s.fingerprint, s.recorded = run.Fingerprint, run
		return nil
	}
	failpoint.Hit("lost.reaped")
	err := noTicket
	switch {
	case written: // a restore from a backup may have dropped what the run made together with its recorded end
		err = fmt.Errorf("%w: the status was restored from a backup made before the run ended", runner.ErrNoRecord)
	case noTicket == nil:
		err = r.find(ctx, s, lost, t)
	}
	switch {
	case err == nil:
		s.log.Info("Run of an earlier process has ended; its result counts", "run", lost.ID)
		failpoint.Hit("lost.found")
		return nil
	case !errors.Is(err, runner.ErrNoRecord):
		return err
	}
	s.recorded = &status.Run{
		ID: lost.ID, Cause: lost.Cause, Trigger: lost.Trigger, Mode: lost.Mode, Generation: lost.Generation, Started: lost.Started, Finished: r.now(),
		Result: status.Interrupted, Reason: status.ReasonLost, Dependents: resourceNames(r.record(s.object).Dependents),
		Message: fmt.Sprintf("Run %s was lost: its end was not seen; it is retried", shortID(lost.ID)),
	}
	if s.memory.last != nil {
		s.recorded.Fingerprint, s.recorded.Inputs, s.recorded.Handled = s.memory.last.Fingerprint, s.memory.last.Inputs, s.memory.last.Handled
	}
	if lost.ID == s.memory.unbegun {
		s.recorded.Reason = status.ReasonNotRun
		s.recorded.Message = fmt.Sprintf("Run %s was not started: the API server did not confirm that its start was recorded; it is retried", shortID(lost.ID))
		s.log.Info("Run was not started, because the API server did not confirm that its start was recorded; it is run again", "run", lost.ID)
		return nil
	}
	s.countLosses()
	s.log.Info("Run of an earlier process is lost; it is run again", "run", lost.ID, "reason", err.Error(), "losses", s.recorded.Losses)
	r.metrics.RunLost(r.gvk)
	failpoint.Hit("lost.before-write")
	return nil
}

// countLosses notes in the lost run of s how many runs in a row were lost, whatever their specs were. Each run that was
// in progress counts, since it is not known which of them got the operator killed.
func (s *scope) countLosses() {
	run := s.recorded
	run.Losses = 1
	if last := s.memory.last; last != nil && last.Lost() {
		run.Losses += last.Losses
	}
	if run.LostOften() {
		run.Message = fmt.Sprintf("Run %s was lost, like %s before it: it may be the reason why the operator is killed, for example because of its memory use; it is retried",
			shortID(run.ID), runs(run.Losses-1))
	}
}

// changeWaits reports whether not even a change of the spec starts a run at once after last: the previous change did,
// and that run was lost as well, or it is a finalizer run, whose cause does not tell. Else the run of an object that changes all the time would end every operator that starts.
func changeWaits(last *status.Run) bool {
	return last.LostOften() && (last.Cause == string(causeChanged) || last.Cause == string(causeDeleted))
}

// find puts an earlier process's run into s, as if this process had executed it. The error wraps
// [runner.ErrNoRecord] if the run's files do not exist or do not match.
func (r *reconciler) find(ctx context.Context, s *scope, lost status.Active, t runstore.Ticket) error {
	if t.Deleting != s.deleting || t.Check != (lost.Mode == status.ModeCheck) {
		return fmt.Errorf("%w: its ticket is for something else", runner.ErrNoRecord)
	}
	dir, err := r.store.Dir(s.uid(), lost.ID)
	if err != nil {
		return fmt.Errorf("%w: %w", runner.ErrNoRecord, err)
	}
	// It is no longer known which Secrets the run has read.
	mask := redact.New()
	mask.Withhold()
	s.plan = plan{cause: cause(lost.Cause), check: t.Check}
	command := r.contentFor(s).Command
	result, err := r.opts.Runner.Recover(ctx, dir, lost.ID, command != nil && command.RequireResult, s.masker(mask))
	if err != nil {
		return err
	}
	s.runID, s.active, s.fingerprint, s.inputs, s.trigger = lost.ID, lost, t.Fingerprint, t.Inputs, lost.Trigger
	s.result, s.ran = result, true
	s.hooked = true // Before has let it start; that process may have died in After
	s.dependents = resourceNames(r.record(s.object).Dependents)
	s.warnings = append(s.warnings, withheldBecause+"another operator process started the run, so it is unknown which secrets the run has read")
	return nil
}
