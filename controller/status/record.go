package status

import (
	"fmt"
	"time"
)

// Result is how a run ended, as recorded.
type Result string

// The recorded ends of a run.
const (
	Succeeded   Result = "Succeeded"
	Failed      Result = "Failed"
	Interrupted Result = "Interrupted"
)

// ReasonExhausted is why a failed run is the last one: no attempt is left.
const ReasonExhausted = "RetriesExhausted"

// ReasonLoop is why an object is looping: others change back what its runs do.
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
	// ReasonTooManyProcesses: the run was stopped because it started so many processes
	// that hardly another could be started.
	ReasonTooManyProcesses = "TooManyProcesses"
	// ReasonArtifactsTooLarge: the run was stopped because it had written too much.
	ReasonArtifactsTooLarge = "ArtifactsTooLarge"
)

// Run is the record of one finished run: status.ansible.lastRun.
type Run struct {
	// ID is the run's identifier and the name of its artifacts: a UUID.
	ID string `json:",omitzero"`
	// Cause says why it ran: created, changed, content, period, …, and Trigger what has
	// caused it, at most [MaxTrigger] bytes; empty where there is no more to say.
	Cause, Trigger string `json:",omitzero"`
	// Mode is [ModeCheck] for a check, and empty for a run that was applied. Drifted is
	// true for a check that succeeded and would have changed something; Drift says what,
	// in at most [MaxDrift] bytes, and is not read back.
	Mode    string `json:",omitzero"`
	Drifted bool   `json:",omitzero"`
	Drift   string `json:",omitzero"`
	// Generation is the object's generation that it ran for.
	Generation int64 `json:",omitzero"`
	// Fingerprint identifies its inputs. Inputs is what is kept of each of them, as package
	// fingerprint packs it, for saying later which have changed; empty where that is not known.
	Fingerprint, Inputs string `json:",omitzero"`
	// Started and Finished enclose it; microseconds are kept.
	Started, Finished time.Time `json:",omitzero"`
	Result            Result    `json:",omitzero"`
	// Reason and Message are the verdict's. The message is empty on success, and
	// is not read back.
	Reason, Message string `json:",omitzero"`
	// Permanent is true where the same inputs cannot succeed (recorded for [Run.RefusesInput] only).
	Permanent bool   `json:",omitzero"`
	Counts    Counts `json:",omitzero"`
	// Executor says how the run was made, and Modules counts its modules by how they
	// were executed: forked, or why not. Both are empty for a run that did not take
	// place.
	Executor string           `json:",omitzero"`
	Modules  map[string]int64 `json:",omitzero"`
	// FailedTask is the task that decided a failure; nil where there is none.
	FailedTask *Task `json:",omitzero"`
	// RequeueAfter is the wish of the run for the time until the next one; 0 if none.
	RequeueAfter time.Duration `json:",omitzero"`
	// Handled is the value of the annotation reconcile-at when the run began
	// (status.ansible.lastHandledReconcileAt); empty if there was none.
	Handled string `json:",omitzero"`
	// Wait is what the object waits for, where the run has parked it; nil where it has
	// not. Only a run that succeeded has one.
	Wait *Wait `json:",omitzero"`
	// Pruned counts the objects that were removed because the run has not touched them; it
	// is not read back.
	Pruned int64 `json:",omitzero"`
	// Attempts counts the consecutive runs that failed, this one included.
	Attempts int64 `json:",omitzero"`
	// Losses counts the consecutive runs of the generation that were lost, this one included; 0 if this one was not.
	Losses int64 `json:",omitzero"`
	// Dependents are the resources of the objects that this object owns
	// (status.ansible.dependents), as kubectl takes them: deployments.v1.apps.
	// The first [maxDependents] are recorded.
	Dependents []string `json:",omitzero"`
	// References are the objects that a command has named, each as [Reference] writes it; the
	// first [MaxReferences] are recorded.
	References []string `json:",omitzero"`
	// Loop says what keeps starting runs of the object, at most 1 KiB; empty if nothing does.
	// It is not read back.
	Loop string `json:",omitzero"`
	// Warnings are things that the author of the object should know.
	Warnings []string `json:",omitzero"`
	// Localhost are the counts of ansibleResult, Completed its completion.
	Localhost Counts    `json:",omitzero"`
	Completed time.Time `json:",omitzero"`
}

// MaxTrigger is how long the text of a trigger is at most, in bytes.
const MaxTrigger = 256

// saysNotYet is the runner's reason of a run that has succeeded as far as it goes.
const saysNotYet = "NotYet"

// NotYet is true if the run has succeeded, and the object is not as wanted yet: it has
// parked it, or says so.
func (r Run) NotYet() bool {
	return r.Wait != nil || r.Result == Succeeded && r.Reason == saysNotYet
}

// refusesInput is the runner's reason of a run whose command says that only other inputs
// can help.
const refusesInput = "InputRefused"

// RefusesInput is true if the command says so, whatever process has started it.
func (r Run) RefusesInput() bool { return r.Result == Failed && r.Reason == refusesInput }

// Disrupted reports whether the cluster has ended the run. It is repeated with backoff: what has
// ended it, such as too little ephemeral storage, may end the next one, too.
func (r Run) Disrupted() bool { return r.Result == Interrupted && r.Reason == ReasonDisrupted }

// lossesAtOnce is how many runs in a row may be lost before the next one is delayed: operators are
// killed for other reasons than their runs, too.
const lossesAtOnce = 2

// Lost reports whether the end of the run was not seen.
func (r Run) Lost() bool { return r.Result == Interrupted && r.Reason == ReasonLost }

// LostOften reports whether so many runs in a row were lost that they may be what the operator is killed for.
func (r Run) LostOften() bool { return r.Lost() && r.Losses > lossesAtOnce }

// BacksOff reports whether the run was interrupted, and is repeated with backoff.
func (r Run) BacksOff() bool { return r.Disrupted() || r.LostOften() }

// MaxWait is the longest time to wait.
const MaxWait = 7 * 24 * time.Hour

// Wait is what a run has parked its object for.
type Wait struct {
	APIVersion, Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
	// For is what has to be true of it, in the words of package waitfor.
	For string
	// Since is when it was asked for first, Until when it is over at the latest.
	Since, Until time.Time
}

// Same reports whether two waits are for the same.
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

// Counts are task results.
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
	// Mode is that of [Run].
	Mode       string
	Generation int64
	Started    time.Time
	// Task, TasksStarted and Counts are the progress so far.
	Task         Task
	TasksStarted int64
	Counts       Counts
	// Waiting is what a run in a Pod of its own waits for, in the cluster's words; empty once it has begun.
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
	if inputsForm.MatchString(r.Inputs) { // it may come from a disk
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

// ansibleResult is ansible-operator's counter block; completion is the creation
// time of the stats event in its layout.
func (r Run) ansibleResult() map[string]any {
	return map[string]any{
		"ok": r.Localhost.OK, "changed": r.Localhost.Changed, "skipped": r.Localhost.Skipped,
		"failures":   r.Localhost.Failed,
		"completion": r.Completed.UTC().Format("2006-01-02T15:04:05.99999999") + "+00:00",
	}
}
