package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// JobRunner is a [Runner] that executes runs as Jobs. They go on while the operator restarts.
type JobRunner interface {
	// FindJobRun finds a run that an earlier process began as a Job for the object with uid. It returns what was
	// kept with the run: its token at the API proxy and its ticket. age is how long ago the run was created, independent
	// of this machine's clock. The ID comes from a status, which others can write, so FindJobRun checks the UID.
	FindJobRun(ctx context.Context, id, uid string) (token string, ticket []byte, age time.Duration, ok bool, err error)
	// Adopting reports whether the search for an earlier process's runs has not ended yet. New runs
	// as Jobs wait for it.
	Adopting() bool
	// UnclaimedJobRuns returns the IDs of the object's earlier runs as Jobs that are neither followed nor ended. It waits
	// until the search for them has ended.
	UnclaimedJobRuns(ctx context.Context, uid string) []string
	// EndJobRuns stops the object's unclaimed runs, and returns a text about what is left of them; empty for nothing.
	EndJobRuns(ctx context.Context, uid string) (left string, err error)
	// ForgetJobRun removes what is left of a run whose end is recorded, if the run belongs to the object with uid.
	ForgetJobRun(id, uid string)
}

// jobRun returns what a run as a Job needs beyond its request; nil for other runs.
func (r *reconciler) jobRun(s *scope) *runner.JobRun {
	if r.watch.Executor != watches.ExecutorJob {
		return nil
	}
	a := &runner.JobRun{
		Template: r.watch.Job, Subject: s.uid(), Timeout: s.settings.timeout, Ticket: ticketOf(s), Replaced: s.life.replaced,
		GoesOn: goesOn, OnBegun: s.life.begun, MakeRoom: r.store.MakeRoom,
	}
	a.OnPhase = func(text string) {
		r.objects.setPodless(s.key, text != "", r.now())
		s.progress.say(s.mask.Mask(text))
	}
	a.Token, a.Server, a.CA = s.access.Token()
	return a
}

// goesOn reports whether a run as a Job goes on after this process stopped following it for cause.
// Another process, or this one once it leads again, finds it.
func goesOn(cause error) bool {
	return errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrLeadershipLost)
}

// leave hands a run that goes on over to the process that will find it in the object's status. It returns runEnded if the
// run does not go on. If this process cannot follow the run now, for example on a full disk, it is retried with backoff.
func (r *reconciler) leave(s *scope) (phaseResult, error) {
	handedOver := errors.Is(s.err, runner.ErrHandedOver)
	if !handedOver && !errors.Is(s.err, runner.ErrNotFollowed) {
		return runEnded, nil
	}
	// moved is true if the run goes to another replica, and none has it yet: this process still holds its Leases.
	moved := func() bool {
		return handedOver && closed(s.life.replaced) && (r.opts.Leads == nil || time.Now().Before(r.opts.Leads()))
	}
	if handedOver && s.access != nil {
		patience := 5 * time.Second
		if moved() {
			patience = time.Minute
		}
		s.access.Leave(patience)
	}
	r.dismiss(s)
	if moved() { // or its disk would keep, and not count, what the next one gets from the Pod from the first event on
		r.store.Leave(s.uid(), s.runID)
	}
	s.memory.lost = &s.active
	s.recording.Drop(handedOver)
	if errors.Is(s.err, runner.ErrNoSpace) {
		r.store.MakeRoom() // for the next attempt
	}
	if s.started {
		r.metrics.RunHandedOver(r.gvk)
	}
	if !handedOver {
		return finished, fmt.Errorf("follow run %s of an earlier process: %w", s.runID, s.err)
	}
	s.log.Info("Run continues in its Pod; the next operator process adopts it")
	return finished, nil
}

// adopt follows an earlier process's run as a Job to its end. It does nothing if there is none, or if
// the run is no longer what the object wants.
func (r *reconciler) adopt(ctx context.Context, s *scope, lost status.Active) (phaseResult, error) {
	jobs, ok := r.opts.Runner.(JobRunner)
	if !ok {
		return nextPhase, nil
	}
	token, data, age, ok, err := jobs.FindJobRun(ctx, lost.ID, s.uid())
	if err != nil {
		return finished, fmt.Errorf("look for the Job of run %s: %w", lost.ID, err)
	}
	t := ticketIn(data)
	if !ok || t.Run != lost.ID || t.UID != s.uid() || t.Generation != lost.Generation ||
		t.Deleting != s.deleting || t.Check != (lost.Mode == status.ModeCheck) {
		return nextPhase, nil // it is ended like any other lost run
	}
	if by, busy := r.set.busy.LoadOrStore(s.object.GetUID(), s.runID); busy && by != s.runID {
		return after(time.Second), nil
	}
	s.log.Info("Adopted a run of an earlier operator process; it continues", "run", lost.ID)
	s.runID, s.active, s.fingerprint, s.inputs, s.trigger = lost.ID, lost, t.Fingerprint, t.Inputs, lost.Trigger
	s.plan, s.earlier, s.token, s.age = plan{cause: cause(lost.Cause), check: t.Check}, true, token, age
	s.memory.lost = nil
	r.places.Take(s.key, classOf(causeInterrupted), s.due)
	r.refer(s) // from now on, the references are followed
	return r.run(ctx, s)
}

// adoptionLook is how often a new run checks whether an earlier process's runs have been found.
const adoptionLook = time.Second

// adopting reports whether a new run has to wait until an earlier process's runs have been found:
// those have to be followed, and must not wait for a worker that the new run takes.
func (r *reconciler) adopting() bool {
	jobs, ok := r.opts.Runner.(JobRunner)
	return ok && r.watch.Executor == watches.ExecutorJob && jobs.Adopting()
}

// ticketIn decodes the ticket that was kept with a run; it is empty if it cannot be decoded.
func ticketIn(data []byte) (t runstore.Ticket) {
	if err := json.Unmarshal(data, &t); err != nil {
		return runstore.Ticket{}
	}
	return t
}

// adopted returns the request for a run that an earlier process began and that goes on.
func (r *reconciler) adopted(s *scope) (runner.Request, error) {
	dir, err := r.store.Create(s.uid(), s.runID)
	if err != nil {
		return runner.Request{}, fmt.Errorf("%w: %w", runner.ErrNotFollowed, err)
	}
	// It is no longer known which Secrets the run has read so far.
	s.mask.Withhold()
	req := runner.Request{ID: s.runID, Dir: dir, Mask: s.masker(s.mask), MaxBytes: r.opts.RunMaxBytes, Executor: runner.ExecutorJob, JobRun: r.jobRun(s)}
	if req.JobRun == nil { // the watch no longer uses Jobs
		req.JobRun = &runner.JobRun{Subject: s.uid(), Token: s.token, Replaced: s.life.replaced, GoesOn: goesOn, OnPhase: func(string) {}, OnBegun: s.life.begun, MakeRoom: r.store.MakeRoom}
	}
	req.JobRun.Adopted, req.JobRun.Ticket = true, ticketOf(s)
	if command := r.contentFor(s).Command; command != nil {
		// The command's reports are read again from the first one: what they ask for is done once more.
		req.Content.Command = commandIn(s.content.copy, command)
		req.Call, req.Redact = r.callsOfCommand(s), func(ctx context.Context, value string) { s.mask.Add(ctx, value) }
	}
	return req, nil
}

// unclaimed returns the IDs of earlier processes' runs of the object that still have a Job. It asks even if the watch no
// longer uses Jobs, or the status names no run.
func (r *reconciler) unclaimed(ctx context.Context, s *scope) []string {
	if jobs, ok := r.opts.Runner.(JobRunner); ok {
		return jobs.UnclaimedJobRuns(ctx, s.uid())
	}
	return nil
}

// longestLook is the longest pause between two checks of what is left of a run that does not end.
const longestLook = 30 * time.Second

// endJobRuns ends a run as a Job that cannot be adopted, before anything else happens to the object. The next run must not
// begin before that; if it already had a place, it would block the place for as long as the node does not answer.
func (r *reconciler) endJobRuns(ctx context.Context, s *scope, lost status.Active) (phaseResult, error) {
	jobs, ok := r.opts.Runner.(JobRunner)
	if !ok {
		return nextPhase, nil
	}
	left, err := jobs.EndJobRuns(ctx, s.uid())
	if err != nil {
		return finished, err
	}
	if left == "" {
		s.memory.left = ""
		return nextPhase, nil
	}
	if left != s.memory.left {
		s.log.Info("No run starts until the earlier run as a Job has ended", "left", left)
		if r.writesStatus() && lost.ID != "" {
			lost.Waiting = short(left)
			if _, err := r.show(ctx, s, "record what the object waits for", func(st map[string]any) map[string]any {
				return status.Begin(st, lost, s.deleting, r.now())
			}); err != nil {
				return finished, err
			}
		}
		s.memory.left, s.memory.leftPause = left, 0
	}
	s.memory.leftPause = min(max(2*s.memory.leftPause, time.Second), longestLook)
	return after(s.memory.leftPause), nil
}

// endUnneeded ends an earlier process's run as a Job of a deleted object that gets no finalizer run: settleLost does not see
// that object. With the annotation orphan it does not wait for the Pod, whose node may be dead.
func (r *reconciler) endUnneeded(ctx context.Context, s *scope) (phaseResult, error) {
	jobs, ok := r.opts.Runner.(JobRunner)
	if !ok || s.memory.lost == nil && s.memory.left == "" && len(r.unclaimed(ctx, s)) == 0 {
		return nextPhase, nil
	}
	var lost status.Active
	if s.memory.lost != nil {
		lost = *s.memory.lost
	}
	then, err := nextPhase, error(nil)
	if s.settings.orphan {
		_, err = jobs.EndJobRuns(ctx, s.uid())
	} else {
		then, err = r.endJobRuns(ctx, s, lost)
	}
	if err == nil && then == nextPhase {
		s.memory.lost = nil // nothing of it is left to look for, even if another finalizer keeps the object
	}
	return then, err
}

// forgetRun removes from the cluster what is left of a run whose end is recorded.
func (r *reconciler) forgetRun(id, uid string) {
	if jobs, ok := r.opts.Runner.(JobRunner); ok {
		jobs.ForgetJobRun(id, uid)
	}
}
