package status

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Begin returns the status of an object whose run a starts now. deleting is true
// for a finalizer run.
func Begin(st map[string]any, a Active, deleting bool, now time.Time) map[string]any {
	next := editable(st)
	ansible := owned(next)
	ansible[partActive] = a.encode()
	delete(ansible, nextRetry)
	if a.Mode == ModeCheck {
		return next // a check leaves the conditions of the last applying run
	}
	c := readConditions(next, a.Generation, now)
	if _, s := c.find(Successful); s != nil && s["status"] != "False" {
		c.set(Successful, "False", reasonRunning, messageRunning, nil, false)
	}
	c.set(Running, "True", reasonRunning, messageRunning, nil, false)

	reason, message := reasonInProgress, fmt.Sprintf("%s: generation %d", a.Cause, a.Generation)
	if deleting {
		reason = reasonDeleting
		c.add(Ready, "False", reason, "The object is being deleted")
	} else if _, ready := c.find(Ready); ready == nil || generationOf(ready, next) != a.Generation {
		c.add(Ready, "Unknown", reason, messageRunning)
	}
	c.add(Reconciling, "True", reason, message)
	if _, stalled := c.find(Stalled); stalled != nil && stalled["status"] == "True" {
		c.add(Stalled, "False", reason, "")
	}
	c.write(next)
	return next
}

// Progress returns a merge patch with the progress of a run. It changes nothing
// else in the status.
func Progress(a Active) map[string]any {
	active := a.encode()
	empty(active, "waiting")
	if task, ok := active["task"].(map[string]any); ok {
		empty(task, "role", "host", "path")
	}
	return map[string]any{"ansible": map[string]any{partActive: active}}
}

// empty makes a merge patch remove those of the keys for which it has no value.
func empty(m map[string]any, keys ...string) {
	for _, key := range keys {
		if _, has := m[key]; !has {
			m[key] = nil
		}
	}
}

// nextRetry is the field for when a failed run, or an interrupted one that backs off, is repeated. It decides nothing.
const nextRetry = "nextRetry"

// Conclude returns the status of an object whose run r has ended. next is the time from
// its end to the next run; 0 if none is planned, which after a failure means stalled.
func Conclude(st map[string]any, r Run, next time.Duration, now time.Time) map[string]any {
	out := editable(st)
	c := readConditions(out, r.Generation, now)
	if r.Mode != ModeCheck && r.Result != Interrupted {
		c.remove(Drifted)
	}
	switch {
	case concludeUnsettled(c, r):
	case r.Result == Succeeded:
		concludeSuccess(c, r)
	case r.Result == Interrupted:
		concludeInterrupted(c, r, next)
	default:
		concludeFailure(c, r, next)
	}
	switch {
	case r.Loop != "":
		c.add(Looping, "True", ReasonLoop, r.Loop)
	case r.Result != Interrupted:
		c.remove(Looping)
	}
	c.write(out)
	if r.Result != Interrupted && r.Mode != ModeCheck && !r.NotYet() && r.Generation > 0 {
		out["observedGeneration"] = r.Generation
	}
	ansible := owned(out)
	if active := mapAt(ansible, partActive); text(active["id"]) == r.ID {
		delete(ansible, partActive) // unless another run is active
	}
	ansible[partLast] = r.encode()
	delete(ansible, nextRetry)
	if (r.Result == Failed || r.BacksOff()) && next > 0 {
		ansible[nextRetry] = r.Finished.Add(next).UTC().Format(timeLayout)
	}
	delete(ansible, partHandled)
	if r.Handled != "" {
		ansible[partHandled] = r.Handled
	}
	delete(ansible, partDependents)
	if n := min(len(r.Dependents), maxDependents); n > 0 {
		ansible[partDependents] = stringList(r.Dependents[:n])
	}
	delete(ansible, "warnings")
	if len(r.Warnings) > 0 {
		ansible["warnings"] = stringList(r.Warnings)
	}
	return out
}

// Repeats reports whether after says the same as before, except for the ID, cause, trigger and times of
// the last run.
func Repeats(before, after map[string]any) bool {
	return reflect.DeepEqual(lasting(before), lasting(after))
}

// lasting returns a status without the fields that differ in each run.
func lasting(st map[string]any) map[string]any {
	st = clone(st)
	last := mapAt(mapAt(st, "ansible"), partLast)
	for _, key := range []string{"id", "cause", "trigger", "started", "finished", "duration"} {
		delete(last, key)
	}
	if list, ok := st["conditions"].([]any); ok { // a rewritten condition moves to the end
		slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(typeOf(a), typeOf(b)) })
	}
	return st
}

func typeOf(condition any) string {
	m, _ := condition.(map[string]any)
	return text(m["type"])
}

// concludeUnsettled sets the conditions if r was a check, or if the object is not yet as wanted after it. It returns
// false, and does nothing, for other runs.
func concludeUnsettled(c *conditions, r Run) bool {
	switch {
	case r.Mode == ModeCheck:
		concludeCheck(c, r)
	case r.Wait != nil:
		concludeWaiting(c, "The object "+r.Wait.String())
	case r.NotYet():
		concludeWaiting(c, r.Message)
	default:
		return false
	}
	return true
}

func concludeSuccess(c *conditions, r Run) {
	c.set(Running, "True", reasonSuccessful, messageAwaiting, r.ansibleResult(), false)
	c.set(Successful, "True", reasonSuccessful, messageSucceeded, nil, false)
	c.set(Failure, "False", "", "", nil, true)
	settle(c)
}

// settle sets the conditions of an object whose last run has succeeded and still holds.
func settle(c *conditions) {
	c.add(Ready, "True", reasonSettled, messageSucceeded)
	c.add(Reconciling, "False", reasonSettled, messageAwaiting)
	c.add(Stalled, "False", reasonSettled, "")
}

// concludeWaiting leaves ansible-operator's conditions as they are during a run, so that
// for its users the run goes on.
func concludeWaiting(c *conditions, message string) {
	c.add(Ready, "False", reasonWaiting, message)
	c.add(Reconciling, "True", reasonWaiting, message)
	c.add(Stalled, "False", reasonWaiting, "")
}

func concludeFailure(c *conditions, r Run, next time.Duration) {
	var result map[string]any
	if !r.Completed.IsZero() {
		result = r.ansibleResult()
	}
	if _, running := c.find(Running); running != nil {
		c.set(Running, "False", reasonFailed, messageFailed, nil, false)
	}
	c.set(Failure, "True", reasonFailed, r.Message, result, true)
	c.set(Successful, "False", "", "", nil, false)

	concludeRetry(c, r, next)
}

// concludeRetry sets the added conditions after r has failed. The next run starts after next; 0 if none is planned.
func concludeRetry(c *conditions, r Run, next time.Duration) {
	c.add(Ready, "False", r.Reason, r.Message)
	if next <= 0 {
		reason, message := r.Reason, "The same inputs cannot succeed"
		switch {
		case r.Permanent:
		case r.Reason == ReasonCancelled:
			message = "The run was cancelled"
		default:
			reason, message = ReasonExhausted, attempts(r.Attempts)
		}
		c.add(Reconciling, "False", reasonRunFailed, message)
		c.add(Stalled, "True", reason, message+"; no run starts until an input changes or the annotation rolewright.dev/reconcile-at asks for one")
		return
	}
	c.add(Reconciling, "True", reasonRetrying,
		fmt.Sprintf("%s; the next run starts after %s", attempts(r.Attempts), next.Round(time.Second)))
	c.add(Stalled, "False", reasonRetrying, "")
}

func attempts(n int64) string {
	if n == 1 {
		return "1 run failed"
	}
	return fmt.Sprintf("%d runs failed in a row", n)
}

func concludeInterrupted(c *conditions, r Run, next time.Duration) {
	if _, running := c.find(Running); running != nil {
		c.set(Running, "False", reasonInterrupted, r.Message, nil, false)
	}
	if _, s := c.find(Successful); s != nil && s["reason"] == reasonRunning {
		c.set(Successful, "False", reasonInterrupted, r.Message, nil, false)
	}
	message := r.Message
	if r.BacksOff() && next > 0 {
		message += fmt.Sprintf(" after %s", next.Round(time.Second))
	}
	c.add(Reconciling, "True", reasonInterrupted, message)
}

// Resume returns the status of an object for which its last run, r, still holds: the inputs are those of r, perhaps in
// another generation. It replaces what [Hold] and [Stuck] have said.
func Resume(st map[string]any, r Run, generation int64, next time.Duration, now time.Time) map[string]any {
	out := editable(st)
	c := readConditions(out, generation, now)
	switch {
	case concludeUnsettled(c, r):
	case r.Result == Succeeded:
		settle(c)
	default:
		concludeRetry(c, r, next)
	}
	c.write(out)
	if r.Mode != ModeCheck && !r.NotYet() {
		out["observedGeneration"] = generation
	}
	return out
}

// What conditions say about a held run, after its cause. [Read] parses this: a condition with another text is written again.
const (
	isPaused = "the object has the annotation \"paused\"; no run starts until the annotation is removed or expires"
	opensAt  = "no run starts before the maintenance window opens at " // followed by the time in RFC 3339
)

// Hold returns the status of an object whose next run, for cause, is held back: until a
// maintenance window opens at opens or, if that is zero, by a pause. warnings replace the
// warnings in the status.
func Hold(st map[string]any, generation int64, cause string, opens time.Time, warnings []string, now time.Time) map[string]any {
	out := editable(st)
	c := readConditions(out, generation, now)
	if opens.IsZero() {
		c.add(Reconciling, "True", reasonPaused, cause+": "+isPaused)
	} else {
		c.add(Reconciling, "True", reasonWindow, cause+": "+opensAt+opens.UTC().Format(time.RFC3339))
	}
	c.write(out)
	if ansible := owned(out); len(warnings) > 0 {
		ansible["warnings"] = stringList(warnings)
	} else {
		delete(ansible, "warnings")
	}
	return out
}

// Stuck returns the status of an object that is not run because its finalizer cannot be added or, with deleting, that
// cannot go because its finalizer cannot be removed. why says why.
func Stuck(st map[string]any, generation int64, deleting bool, why string, now time.Time) map[string]any {
	out := editable(st)
	c := readConditions(out, generation, now)
	reason := reasonNoFinalizer
	if deleting {
		reason = reasonDeleting
		c.add(Ready, "False", reason, "The object is being deleted: "+why)
	}
	c.add(Reconciling, "True", reason, why)
	c.write(out)
	return out
}

// notWatched begins the warnings about what cannot be watched.
const notWatched = "not watched: "

// NotWatched returns the warnings for all, which say what cannot be watched, and why.
func NotWatched(all []string) []string {
	var warnings []string
	for _, what := range all {
		warnings = append(warnings, notWatched+what)
	}
	return warnings
}

func isNotWatched(warning any) bool { return strings.HasPrefix(text(warning), notWatched) }

func saysNotWatched(ansible map[string]any) bool {
	warnings, _ := ansible["warnings"].([]any)
	return slices.ContainsFunc(warnings, isNotWatched)
}

// Warn returns the status with its [NotWatched] warnings replaced by these.
func Warn(st map[string]any, warnings []string) map[string]any {
	out := editable(st)
	ansible := owned(out)
	list, _ := ansible["warnings"].([]any)
	if list = append(slices.DeleteFunc(list, isNotWatched), stringList(warnings)...); len(list) > 0 {
		ansible["warnings"] = list
	} else {
		delete(ansible, "warnings")
	}
	return out
}

func clone(st map[string]any) map[string]any {
	if st == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(st)
}

// owned returns status.ansible. If that is not a map, it replaces it with an empty one.
func owned(st map[string]any) map[string]any {
	m := mapAt(st, "ansible")
	if m == nil {
		m = map[string]any{}
		st["ansible"] = m
	}
	return m
}

func stringList(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}
