package status

import (
	"fmt"
	"time"
)

// Result is how a run ended.
type Result string

// The results of a run.
const (
	Succeeded   Result = "Succeeded"
	Failed      Result = "Failed"
	Interrupted Result = "Interrupted"
)

// ReasonExhausted is the reason why a failed run is not retried: no attempt is left.
const ReasonExhausted = "RetriesExhausted"

// ReasonLoop is the reason of a looping object: others change back what its runs do.
const ReasonLoop = "TriggeredByOwnEffects"

// Reasons of a run that did not take place, or not to its end.
const (
	// ReasonUnavailable: ansible-runner could not be started.
	ReasonUnavailable = "RunnerUnavailable"
	// ReasonNotRun: the run could not be prepared.
	ReasonNotRun = "RunNotStarted"
	// ReasonReferenceNotFound: a Secret or ConfigMap of varsFrom or secrets does not exist.
	ReasonReferenceNotFound = "ReferenceNotFound"
	// ReasonLost: the run's end was not seen.
	ReasonLost = "Lost"
	// ReasonCut: a helper process of the run was killed.
	ReasonCut = "HelperKilled"
	// ReasonDisrupted: the cluster has ended the run, which was in a Pod of its own.
	ReasonDisrupted = "Disrupted"
	// ReasonTimedOut: the run was stopped at a limit of its watch.
	ReasonTimedOut = "TimedOut"
	// ReasonCancelled: the run was stopped because the annotation rolewright.dev/cancel
	// names it.
	ReasonCancelled = "Cancelled"
	// ReasonHookFailed: Go code of the program around the run has failed.
	ReasonHookFailed = "HookFailed"
	// ReasonOutOfMemory: the run was stopped because it took the memory that was left.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonNoMemory: the run was stopped because all runs together took the memory that was left.
	ReasonNoMemory = "NoMemory"
	// ReasonTooManyProcesses: the run was stopped because it started so many processes
	// that hardly another could be started.
	ReasonTooManyProcesses = "TooManyProcesses"
	// ReasonArtifactsTooLarge: the run was stopped because it had written too much.
	ReasonArtifactsTooLarge = "ArtifactsTooLarge"
)

// Run is the record of one ended run: status.ansible.lastRun.
type Run struct {
	// ID is the run's identifier and the name of its artifacts: a UUID.
	ID string `json:",omitzero"`
	// Cause says why the run started: created, changed, content, period, …. Trigger says what
	// caused it, in at most [MaxTrigger] bytes; empty if there is no more to say.
	Cause, Trigger string `json:",omitzero"`
	// Mode is [ModeCheck] for a check, and empty for an applying run. Drifted is true for
	// a successful check that would have changed something. Drift says what, in at most
	// [MaxDrift] bytes, and is not read back.
	Mode    string `json:",omitzero"`
	Drifted bool   `json:",omitzero"`
	Drift   string `json:",omitzero"`
	// Generation is the object's generation for which the run was made.
	Generation int64 `json:",omitzero"`
	// Fingerprint identifies the run's inputs. Inputs has them as package fingerprint packs them, to
	// say later which have changed; empty if they are not known.
	Fingerprint, Inputs string `json:",omitzero"`
	// Started and Finished are the run's start and end, with microseconds.
	Started, Finished time.Time `json:",omitzero"`
	Result            Result    `json:",omitzero"`
	// Reason and Message are those of the verdict. The message is empty on success, and
	// is not read back.
	Reason, Message string `json:",omitzero"`
	// Permanent is true if the same inputs cannot succeed. It is recorded only for [Run.RefusesInput].
	Permanent bool   `json:",omitzero"`
	Counts    Counts `json:",omitzero"`
	// Executor says how the run was executed. Modules counts its modules by how they were
	// executed: forked, or why not. Both are empty for a run that did not take place.
	Executor string           `json:",omitzero"`
	Modules  map[string]int64 `json:",omitzero"`
	// FailedTask is the task that decided a failure; nil if there is none.
	FailedTask *Task `json:",omitzero"`
	// RequeueAfter is the time until the next run that the run asked for; 0 if it asked for none.
	RequeueAfter time.Duration `json:",omitzero"`
	// Handled is the value of the annotation reconcile-at when the run began
	// (status.ansible.lastHandledReconcileAt); empty if there was none.
	Handled string `json:",omitzero"`
	// Wait is what the object waits for if the run has parked it; else nil. Only a
	// successful run has one.
	Wait *Wait `json:",omitzero"`
	// Pruned is the number of objects that were removed because the run did not touch them;
	// it is not read back.
	Pruned int64 `json:",omitzero"`
	// Attempts is the number of failed runs in a row, including this one.
	Attempts int64 `json:",omitzero"`
	// Losses is the number of lost runs in a row, including this one; 0 if this one was not lost.
	Losses int64 `json:",omitzero"`
	// Dependents are the resources of the objects that this object owns
	// (status.ansible.dependents), in kubectl's form: deployments.v1.apps. The
	// first [maxDependents] are recorded.
	Dependents []string `json:",omitzero"`
	// References are the objects that a command has reported, in the form of [Reference]; the
	// first [MaxReferences] are recorded.
	References []string `json:",omitzero"`
	// Loop says, in at most 1 KiB, what keeps starting runs of the object; empty if nothing does.
	// It is not read back.
	Loop string `json:",omitzero"`
	// Warnings are things that the author of the object should know.
	Warnings []string `json:",omitzero"`
	// Localhost has the counts in ansibleResult; Completed is its completion.
	Localhost Counts    `json:",omitzero"`
	Completed time.Time `json:",omitzero"`
}

// MaxTrigger is the largest length of the text of a trigger, in bytes.
const MaxTrigger = 256

// saysNotYet is the runner's reason for a successful run after which the object is not as wanted yet.
const saysNotYet = "NotYet"

// NotYet reports whether the run has succeeded, but the object is not as wanted yet: the run has
// parked it, or says so.
func (r Run) NotYet() bool {
	return r.Wait != nil || r.Result == Succeeded && r.Reason == saysNotYet
}

// refusesInput is the runner's reason for a run whose command says that only other inputs
// can help.
const refusesInput = "InputRefused"

// RefusesInput reports whether the command says that only other inputs can help. That holds even if another
// process executed the run.
func (r Run) RefusesInput() bool { return r.Result == Failed && r.Reason == refusesInput }

// Disrupted reports whether the cluster ended the run. Such a run is repeated with backoff, since the
// cause, such as too little ephemeral storage, may end the next one, too.
func (r Run) Disrupted() bool { return r.Result == Interrupted && r.Reason == ReasonDisrupted }

// lossesAtOnce is how many runs in a row may be lost before the next one is delayed. It is above 0 because
// operators are also killed for other reasons than their runs.
const lossesAtOnce = 2

// Lost reports whether the end of the run was not seen.
func (r Run) Lost() bool { return r.Result == Interrupted && r.Reason == ReasonLost }

// LostOften reports whether so many runs in a row were lost that they may be why the operator gets killed.
func (r Run) LostOften() bool { return r.Lost() && r.Losses > lossesAtOnce }

// BacksOff reports whether the run was interrupted, and is repeated with backoff.
func (r Run) BacksOff() bool { return r.Disrupted() || r.LostOften() }

// MaxWait is the longest time for which an object may be parked.
const MaxWait = 7 * 24 * time.Hour

// Wait is what a run has parked its object for.
type Wait struct {
	APIVersion, Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
	// For is the goal that the object has to reach, in the form of package waitfor.
	For string
	// Since is when the wait was first asked for; Until is when it ends at the latest.
	Since, Until time.Time
}

// Same reports whether two waits have the same object and goal.
func (w Wait) Same(other Wait) bool {
	w.Since, w.Until, other.Since, other.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return w == other
}

func (w Wait) String() string {
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + name
	}
	return fmt.Sprintf("waits for %s %s: %s, until %s", w.Kind, name, w.For, w.Until.UTC().Format(time.RFC3339))
}

// Counts are the numbers of task results.
type Counts struct {
	OK, Changed, Skipped, Failed, Unreachable, Rescued, Ignored int64
}

// Task names a task.
type Task struct {
	Name, Role, Host, Path string
}

// Active is the record of the run in progress: status.ansible.activeRun.
type Active struct {
	ID, Cause, Trigger string
	// Mode is as in [Run].
	Mode       string
	Generation int64
	Started    time.Time
	// Task, TasksStarted and Counts are the progress so far.
	Task         Task
	TasksStarted int64
	Counts       Counts
	// Waiting is what a run as a Job waits for, in the cluster's words; empty once it has begun.
	Waiting string
}

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

func (r Run) encode() map[string]any {
	m := map[string]any{
		"id": r.ID, "cause": r.Cause, "generation": r.Generation, "fingerprint": r.Fingerprint,
		"started":  r.Started.UTC().Format(timeLayout),
		"finished": r.Finished.UTC().Format(timeLayout),
		"duration": r.Finished.Sub(r.Started).Round(time.Millisecond).String(),
		"result":   string(r.Result), "reason": r.Reason,
		"counts": r.Counts.encode(),
	}
	putTrigger(m, r.Trigger)
	if r.Mode == ModeCheck {
		m["mode"], m["drifted"] = r.Mode, r.Drifted
	}
	if inputsForm.MatchString(r.Inputs) { // it may have been read from a disk
		m["inputs"] = r.Inputs
	}
	if r.Message != "" {
		m["message"] = r.Message
	}
	if r.Executor != "" {
		m["executor"] = r.Executor
	}
	if len(r.Modules) > 0 {
		modules := make(map[string]any, len(r.Modules))
		for way, number := range r.Modules {
			modules[way] = number
		}
		m["modules"] = modules
	}
	if r.FailedTask != nil {
		m["failedTask"] = r.FailedTask.encode()
	}
	if r.RequeueAfter > 0 {
		m["requeueAfter"] = r.RequeueAfter.String()
	}
	if r.Wait != nil {
		m["wait"] = r.Wait.encode()
	}
	if r.Pruned > 0 {
		m["pruned"] = r.Pruned
	}
	if r.Attempts > 0 {
		m["attempts"] = r.Attempts
	}
	if r.Losses > 0 {
		m["losses"] = r.Losses
	}
	if refs := r.References[:min(len(r.References), MaxReferences)]; len(refs) > 0 {
		list := make([]any, len(refs))
		for i, ref := range refs {
			list[i] = ref
		}
		m["references"] = list
	}
	return m
}

func (a Active) encode() map[string]any {
	m := map[string]any{
		"id": a.ID, "cause": a.Cause, "generation": a.Generation,
		"started": a.Started.UTC().Format(timeLayout),
	}
	putTrigger(m, a.Trigger)
	if a.Mode == ModeCheck {
		m["mode"] = a.Mode
	}
	if a.Waiting != "" {
		m["waiting"] = a.Waiting
	}
	if a.TasksStarted > 0 {
		m["task"] = a.Task.encode()
		m["tasksStarted"] = a.TasksStarted
		m["counts"] = a.Counts.encode()
	}
	return m
}

func putTrigger(m map[string]any, trigger string) {
	if triggerForm.MatchString(trigger) && len(trigger) <= MaxTrigger {
		m["trigger"] = trigger
	}
}

func (w Wait) encode() map[string]any {
	m := map[string]any{
		"apiVersion": w.APIVersion, "kind": w.Kind, "name": w.Name, "for": w.For,
		"since": w.Since.UTC().Format(timeLayout), "until": w.Until.UTC().Format(timeLayout),
	}
	if w.Namespace != "" {
		m["namespace"] = w.Namespace
	}
	return m
}

func (c Counts) encode() map[string]any {
	return map[string]any{
		"ok": c.OK, "changed": c.Changed, "skipped": c.Skipped, "failed": c.Failed,
		"unreachable": c.Unreachable, "rescued": c.Rescued, "ignored": c.Ignored,
	}
}

func (t Task) encode() map[string]any {
	m := map[string]any{"name": t.Name}
	for key, value := range map[string]string{"role": t.Role, "host": t.Host, "path": t.Path} {
		if value != "" {
			m[key] = value
		}
	}
	return m
}

// ansibleResult returns ansible-operator's block of counts. completion is the
// creation time of the stats event, in ansible-operator's layout. It is not after the
// end of the run, by which [Read] tells runs of ansible-operator: the clock of a Job
// may be ahead.
func (r Run) ansibleResult() map[string]any {
	completed := r.Completed
	if completed.After(r.Finished) {
		completed = r.Finished
	}
	return map[string]any{
		"ok": r.Localhost.OK, "changed": r.Localhost.Changed, "skipped": r.Localhost.Skipped,
		"failures":   r.Localhost.Failed,
		"completion": completed.UTC().Format("2006-01-02T15:04:05.99999999") + "+00:00",
	}
}
