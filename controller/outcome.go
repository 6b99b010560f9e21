package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// endedRun returns the record of the run of s, whether or not it took place.
func (r *reconciler) endedRun(s *scope) status.Run {
	run := status.Run{
		ID: s.runID, Cause: string(s.plan.cause), Trigger: s.trigger, Mode: s.plan.mode(), Generation: s.active.Generation,
		Fingerprint: s.fingerprint, Inputs: s.inputs,
		Started: s.active.Started, Finished: r.now(), Handled: s.handled(),
	}
	if errors.Is(s.err, runner.ErrSurvivors) {
		s.warnings = append(s.warnings, survivorsLeft+s.err.Error())
	} else if errors.Is(s.err, runner.ErrUnseen) {
		s.warnings = append(s.warnings, survivorsUnseen+s.err.Error())
	}
	// Warnings and errors may quote the object.
	for i, w := range s.warnings {
		s.warnings[i] = s.mask.Mask(w)
	}
	if s.err != nil {
		r.notRun(s, &run)
	} else {
		r.judged(s, &run)
	}
	if s.ran {
		run.Executor, run.Modules = string(s.result.Executor()), s.result.Modules()
	}
	if s.plan.check && run.Result == status.Succeeded && run.Counts.Changed > 0 {
		run.Drifted, run.Drift = true, r.driftOf(s)
	}
	if run.Result == status.Succeeded && s.calls != nil {
		run.Wait = s.calls.parked()
	}
	toPark := s.earlier && s.result.Summary.Parked || s.calls != nil && s.calls.toPark()
	if run.Result == status.Succeeded && run.Wait == nil && toPark {
		run.Reason, run.RequeueAfter = string(runner.NotYet), notYetPause
		run.Message = "The run has parked the object, but only the operator process that started the run knew what it waits for; the object runs again"
	}
	switch {
	case run.Result != status.Failed:
	case blameless(run.Reason):
		run.Attempts = s.attempts()
	default:
		run.Attempts = s.attempts() + 1
	}
	run.Warnings, run.Dependents, run.Pruned = bounded(s.warnings), s.dependents, s.pruned
	run.References = r.references(s)
	r.noteLoop(s, &run)
	if why := s.mask.Withheld(); why != "" {
		run.Warnings = append(run.Warnings, withheldBecause+why)
	}
	return run
}

// handled returns the last request for a run that the run of s has answered. If an
// earlier process began the run, it is not known whether the current request was made
// before that, so the request gets another run.
func (s *scope) handled() string {
	if s.earlier && s.memory.last != nil {
		return s.memory.last.Handled
	}
	if s.earlier {
		return ""
	}
	return s.settings.requested
}

// withheldBecause begins the warning that says why [redact.Replacement] stands in place
// of all text of a run.
const withheldBecause = "the output of the run is withheld: "

// survivorsLeft begins the warning about the processes of a run that are left.
const survivorsLeft = "processes of the run are left that cannot be killed; find out what they wait for, such as a file system that does not respond, " +
	"or restart the node: "

// survivorsUnseen begins the warning that it is not known whether processes are left.
const survivorsUnseen = "processes of the run may be left; raise the limit of open files, or run less at a time: "

// notRun fills in the record of a run that ended with s.err: it did not take place, was cut short, or left processes.
func (r *reconciler) notRun(s *scope, run *status.Run) {
	said := s.mask.Mask(s.err.Error())
	switch {
	case errors.Is(s.err, runner.ErrNoTurn) && errors.Is(s.err, ErrTimeout) && r.watch.Executor == watches.ExecutorJob:
		// It was the run's turn, but the cluster did not begin its Pod within the timeout.
		run.Result, run.Reason = status.Failed, status.ReasonNotRun
		run.Message = short("Unable to run reconciliation: " + said)
	case errors.Is(s.err, runner.ErrNoTurn) && !errors.Is(s.err, ErrCancelled):
		wasInterrupted(s, run, string(status.Interrupted), said)
	case errors.Is(s.err, runner.ErrMemory), errors.Is(s.err, runner.ErrProcesses):
		tookTooMuch(s, run, said)
	case errors.Is(s.err, runner.ErrServerCut):
		// This says nothing about the run itself, so it does not count against the run.
		wasInterrupted(s, run, string(status.Interrupted), said)
	case errors.Is(s.err, runner.ErrCut) && s.cutBefore():
		// Most likely the run itself is the cause, with the memory that it takes.
		run.Result, run.Reason = status.Failed, string(runner.RunnerDied)
		run.Message = short(said + "; the previous run ended in the same way: " + whyCutAgain(s.err))
		run.Counts = countsOf(s.result.Summary)
	case errors.Is(s.err, runner.ErrCut):
		wasInterrupted(s, run, status.ReasonCut, said)
	case interrupted(s.err):
		wasInterrupted(s, run, string(status.Interrupted), said)
	case errors.Is(s.err, runner.ErrUnanswered) && !s.earlier && s.disruptedBefore():
		r.judged(s, run) // again, with the operator there all the time: it may be the role that has its requests cut
		s.warnings = append(s.warnings, said)
	case errors.Is(s.err, runner.ErrCluster):
		wasInterrupted(s, run, status.ReasonDisrupted, said)
	case errors.Is(s.err, ErrTimeout), errors.Is(s.err, ErrIdle), errors.Is(s.err, ErrCancelled):
		run.Result, run.Reason = status.Failed, status.ReasonTimedOut
		if errors.Is(s.err, ErrCancelled) {
			run.Reason = status.ReasonCancelled
		}
		run.Message = short(stoppedAt(s, said))
		run.Counts = countsOf(s.result.Summary)
		run.FailedTask = taskAt(s)
	case errors.As(s.err, &hookError{}):
		run.Result, run.Reason, run.Message = status.Failed, status.ReasonHookFailed, short(said)
		if errors.Is(s.err, ErrRefused) {
			run.Reason, run.Permanent = string(runner.InputRefused), true
		}
	case errors.Is(s.err, runner.ErrNoSpace):
		run.Result, run.Reason = status.Failed, string(runner.NoSpace)
		run.Message, run.Counts = r.noSpace(s, "Unable to run reconciliation: "+said), countsOf(s.result.Summary)
	case errors.Is(s.err, runner.ErrTooLarge):
		run.Result, run.Reason = status.Failed, status.ReasonArtifactsTooLarge
		run.Message = short(said + "; print less in the tasks, or raise --artifacts-max-bytes-per-run")
		run.Counts = countsOf(s.result.Summary)
	case errors.Is(s.err, errReferenceNotFound):
		run.Result, run.Reason = status.Failed, status.ReasonReferenceNotFound
		run.Message = short("Unable to run reconciliation: " + said + "; the object runs when it exists")
	case errors.Is(s.err, runner.ErrSurvivors), errors.Is(s.err, runner.ErrUnseen):
		r.judged(s, run) // the run itself came to its end
	default:
		run.Result, run.Reason = status.Failed, whyNotMade(s.err)
		run.Message = short("Unable to run reconciliation: " + said)
	}
}

// whyNotMade returns the reason for a run that was not made.
func whyNotMade(err error) string {
	switch {
	case errors.Is(err, runner.ErrNotRunnable):
		return string(runner.CommandNotRunnable)
	case errors.Is(err, runner.ErrUnavailable), errors.Is(err, runner.ErrPod):
		return status.ReasonUnavailable
	}
	return status.ReasonNotRun
}

// wasInterrupted fills in the record of a run that is repeated without having failed.
func wasInterrupted(s *scope, run *status.Run, reason, said string) {
	run.Result, run.Reason = status.Interrupted, reason
	run.Message = short(fmt.Sprintf("Run %s was interrupted: %s", shortID(s.runID), said)) + "; it is repeated"
	run.Counts = countsOf(s.result.Summary)
}

// cutBefore reports whether the previous run, with the same inputs, also ended because a helper process was killed.
func (s *scope) cutBefore() bool {
	last := s.memory.last
	return last != nil && last.Fingerprint == s.fingerprint &&
		(last.Reason == status.ReasonCut || last.Reason == string(runner.RunnerDied))
}

// disruptedBefore reports whether the cluster ended the last run, of the same inputs, or that run has failed.
func (s *scope) disruptedBefore() bool {
	last := s.memory.last
	return last != nil && last.Fingerprint == s.fingerprint && (last.Disrupted() || last.Result == status.Failed)
}

// whyCutAgain returns the likely cause if a run was cut like the one before it.
func whyCutAgain(err error) string {
	if errors.Is(err, runner.ErrPodEnded) {
		return "its last task may have ended it"
	}
	return "it probably needs more memory than the container has"
}

// interrupted reports whether a run was stopped through no fault of its own.
func interrupted(err error) bool {
	causes := []error{ErrShutdown, errReplaced, ErrKindGone, ErrLeadershipLost, ErrObjectDeleted, ErrObjectGone, ErrObjectChanged, runner.ErrStoodStill}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// taskAt returns the task that was running when the run was stopped; nil if there was none.
func taskAt(s *scope) *status.Task {
	task := taskOf(s.result.Summary.Task)
	if task.Name == "" {
		return nil
	}
	return &task
}

// stoppedAt adds to a message which task was running when the run was stopped.
func stoppedAt(s *scope, message string) string {
	if task := s.result.Summary.Task; task.Name != "" {
		message += fmt.Sprintf("; the task that ran was %q", task.Name)
		if task.Role != "" {
			message += fmt.Sprintf(", role %q", task.Role)
		}
		if task.Path != "" {
			message += ", at " + task.Path
		}
	}
	return message
}

// short limits a message like those of verdicts: to 1 KiB of valid UTF-8.
func short(message string) string {
	const most = 1024
	return text.Clip(strings.ToValidUTF8(message, ""), most)
}

// judged fills in the record of a run that took place, by its verdict.
func (r *reconciler) judged(s *scope, run *status.Run) {
	sum := s.result.Summary
	verdict := s.result.Verdict()
	run.Result, run.Reason, run.Message = status.Failed, string(verdict.Reason), r.shown(s, verdict.Message)
	if verdict.Reason == runner.NoSpace {
		run.Message = r.noSpace(s, run.Message)
	}
	if verdict.Success {
		run.Result = status.Succeeded
	}
	run.Permanent = permanent(verdict.Reason) && sum.Prepared() || run.RefusesInput()
	if c := s.result.Command; c != nil {
		s.warnings = append(s.warnings, c.Warnings...)
	}
	run.Counts, run.Completed = countsOf(sum), sum.CompletedAt
	run.Localhost = localhost(sum)
	if culprits := sum.Culprits(); !verdict.Success && len(culprits) > 0 {
		c := culprits[jobevent.Decisive(culprits)] // the one that the message begins with
		task := taskOf(c.Task)
		task.Host = c.Host
		run.FailedTask = &task
	}
	if verdict.Reason == runner.NotYet {
		run.RequeueAfter = notYetPause
	}
	if sum.RequeueAfter == nil {
		return
	}
	after, err := requeueAfter(*sum.RequeueAfter)
	if err != nil {
		said := fmt.Sprintf("task %q (%s)", sum.RequeueAfter.Task.Name, sum.RequeueAfter.Task.Path)
		if s.result.Command != nil {
			said = "the report requeue has no effect" // a report has no file and line
		}
		s.warnings = append(s.warnings, said+": "+err.Error())
		return
	}
	if after > 0 {
		run.RequeueAfter = after
		s.log.Info("Set the reconciliation to occur after " + after.String())
	}
}

// notYetPause is the time until the next run after a run that says that the object is not yet
// as wanted, without a time for the next run.
const notYetPause = 10 * time.Second

// shown returns the message of a verdict. Its parts are masked already; the whole
// message is masked again, except for the parts that name tasks, roles and paths.
func (r *reconciler) shown(s *scope, message string) string {
	if s.mask.Withheld() != "" {
		return message
	}
	sum := s.result.Summary
	var kept []string
	for _, task := range append([]jobevent.Failure{{Task: sum.Task}}, sum.Culprits()...) {
		kept = append(kept, fmt.Sprintf("task %q", task.Task.Name), fmt.Sprintf("role %q", task.Task.Role), "at "+task.Task.Path)
	}
	return runner.MaskAround(s.masker(s.mask), message, kept...)
}

// requeueAfter reads the period of a requeue_after task.
func requeueAfter(asked jobevent.RequeueAfter) (time.Duration, error) {
	if asked.Hidden {
		return 0, errors.New("its time is hidden by no_log, so the normal period applies; take no_log off the task")
	}
	text := asked.Period
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("unable to parse time input: %q is not a duration such as \"30s\" or \"5m\"; the normal period applies", clip(text))
	}
	if d < 0 {
		return 0, fmt.Errorf("unable to parse time input: %q is negative; the normal period applies", clip(text))
	}
	if d == 0 {
		return 0, nil // no requeue, as for ansible-operator
	}
	return min(max(d, minPeriod), maxPeriod), nil
}

// permanent reports whether only other inputs can change a verdict, provided that Ansible
// reaches it before it reads anything from the cluster. An undefined variable is not permanent:
// roles read fields of objects that do not exist yet.
func permanent(reason runner.Reason) bool {
	switch reason {
	case runner.PlaybookInvalid, runner.RoleNotFound, runner.BadArguments, runner.ArgumentSpecNotMet:
		return true
	}
	return false
}

func (r *reconciler) logEnd(s *scope, run status.Run) {
	log := s.log.WithValues("cause", run.Cause, "generation", run.Generation, "result", run.Result, "reason", run.Reason,
		"duration", run.Finished.Sub(run.Started).Round(time.Millisecond).String())
	for _, w := range run.Warnings {
		log.Info("Object needs attention", "warning", w)
	}
	if run.Drifted {
		log.Info("Object has drifted", "changed", run.Counts.Changed, "drift", run.Drift)
	}
	switch run.Result {
	case status.Succeeded:
		switch executor := runner.Executor(run.Executor); {
		case executor == runner.ExecutorJob && r.watch.Content.Command != nil:
			log.Info("The command has ended", "message", run.Message)
		case executor == runner.ExecutorCommand, executor == runner.ExecutorHandler:
			log.Info("The "+run.Executor+" has ended", "message", run.Message)
		default:
			log.Info("Ansible-runner exited successfully")
		}
	case status.Interrupted:
		log.Info("Run was interrupted", "message", run.Message)
	default:
		log.Error(errors.New(run.Message), "Run failed", "attempts", run.Attempts)
	}
}

func taskOf(t jobevent.Task) status.Task {
	return status.Task{Name: t.Name, Role: t.Role, Path: t.Path}
}

func countsOf(s jobevent.Summary) status.Counts {
	return status.Counts{
		OK: int64(s.OK), Changed: int64(s.Changed), Skipped: int64(s.Skipped), Failed: int64(s.Failures),
		Unreachable: int64(s.Unreachable), Rescued: int64(s.Rescued), Ignored: int64(s.Ignored),
	}
}

// localhost returns the counts that ansible-operator reports in ansibleResult: those of the
// host localhost, or of all hosts if there is no localhost.
func localhost(s jobevent.Summary) status.Counts {
	const host = "localhost"
	if s.Stats == nil || s.Stats.Processed[host] == 0 {
		return countsOf(s)
	}
	return status.Counts{
		OK: int64(s.Stats.OK[host]), Changed: int64(s.Stats.Changed[host]),
		Skipped: int64(s.Stats.Skipped[host]), Failed: int64(s.Stats.Failures[host]),
	}
}

// bounded limits the number of warnings, so that the status does not grow with the mistakes in an object.
func bounded(warnings []string) []string {
	const most = 20
	if len(warnings) > most {
		rest := len(warnings) - most
		warnings = append(warnings[:most:most], fmt.Sprintf("… and %d more; see the operator's log", rest))
	}
	return warnings
}
