package controller

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

// Summary is what an object of any watched kind says about its runs, without its watch. All
// texts are fit for a terminal, and all except Message are on one line.
type Summary struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Generation int64  `json:"generation,omitempty"`
	// Ready is True, False or Unknown; empty if no condition says it. If the condition is about
	// another generation, it is Unknown.
	Ready   string `json:"ready,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Last is the last run that ended, Active the run in progress; nil if there is none.
	Last   *ExplainedRun `json:"lastRun,omitempty"`
	Active *ExplainedRun `json:"activeRun,omitempty"`
	// Next is what the next run waits for: running, due, paused, window, waiting, stalled,
	// retry or requeue. It is empty if only an event, or the watch's period or schedule, starts
	// one. At is when that wait ends; nil if that is not known.
	Next string     `json:"next,omitempty"`
	At   *time.Time `json:"nextRun,omitempty"`
}

// generationChanged is the [Summary.Reason] if the object's condition is about another generation.
const generationChanged = "GenerationChanged"

// Summarize returns the summary of an object.
func Summarize(obj *unstructured.Unstructured, now time.Time) Summary {
	st, _ := obj.Object["status"].(map[string]any)
	record := status.Read(st)
	s := Summary{
		APIVersion: text.Plain(obj.GetAPIVersion()), Kind: text.Plain(obj.GetKind()), Namespace: text.Plain(obj.GetNamespace()), Name: text.Plain(obj.GetName()),
		Generation: obj.GetGeneration(), Last: explained(record.Last),
	}
	if a := record.Active; a != nil {
		s.Active = &ExplainedRun{ID: a.ID, Cause: a.Cause, Trigger: a.Trigger, Generation: a.Generation, Started: a.Started}
	}
	s.judge(obj.GetGeneration(), conditionsOf(st))
	s.plan(obj, st, record, now)
	return s
}

func explained(r *status.Run) *ExplainedRun {
	if r == nil {
		return nil
	}
	return &ExplainedRun{
		ID: r.ID, Cause: r.Cause, Trigger: r.Trigger, Generation: r.Generation, Started: r.Started,
		Finished: &r.Finished, Result: string(r.Result), Reason: r.Reason, Message: r.Message, Attempts: r.Attempts, Losses: r.Losses,
	}
}

// shownCondition is a condition of an object, made fit for a terminal.
type shownCondition struct {
	status, reason, message string
	generation              int64 // the observed generation; 0 if the condition has none
}

// conditionsOf returns the conditions in a status by type.
func conditionsOf(st map[string]any) map[string]shownCondition {
	all := map[string]shownCondition{}
	list, _ := st["conditions"].([]any)
	for _, item := range list {
		c, _ := item.(map[string]any)
		field := func(name string) string { s, _ := c[name].(string); return text.Plain(s) }
		generation, _ := c["observedGeneration"].(int64)
		all[field("type")] = shownCondition{text.OneLine(field("status")), text.OneLine(field("reason")), field("message"), generation}
	}
	return all
}

// judge fills in whether the object is ready: by the condition Ready, or by those that
// ansible-operator writes.
func (s *Summary) judge(generation int64, conditions map[string]shownCondition) {
	c, there := conditions[status.Ready]
	switch failure := conditions[status.Failure]; {
	case there:
	case failure.status == "True":
		c = shownCondition{status: "False", reason: failure.reason, message: failure.message}
	default:
		c = conditions[status.Successful]
	}
	s.Ready, s.Reason, s.Message = c.status, c.reason, c.message
	if c.generation != 0 && c.generation != generation {
		s.Ready, s.Reason, s.Message = "Unknown", generationChanged, fmt.Sprintf("the last known state is of generation %d: %s", c.generation, cmp.Or(c.message, c.reason))
	}
}

// plan fills in what the next run waits for.
func (s *Summary) plan(obj *unstructured.Unstructured, st map[string]any, record status.Record, now time.Time) {
	set, _ := annotated(obj, settings{}, false)
	last, conditions := record.Last, conditionsOf(st)
	at := func(t time.Time) {
		if t.After(now) {
			s.At = &t
		}
	}
	switch {
	case s.Active != nil:
		s.Next = "running"
	case set.paused.After(now):
		s.Next = "paused"
		if set.paused.Before(forEver()) {
			at(set.paused)
		}
	case conditions[status.Reconciling].status == "True" && conditions[status.Reconciling].reason == "MaintenanceWindow":
		s.Next = "window"
	case last == nil:
	case isDue(obj, last):
		s.Next = "due"
	case last.Wait != nil:
		s.Next = "waiting"
		at(last.Wait.Until)
	case status.IsStalled(obj.Object):
		s.Next = "stalled"
	case last.Result == status.Failed, last.BacksOff():
		s.Next = "retry"
		when, _, _ := unstructured.NestedString(st, "ansible", "nextRetry")
		if t, err := time.Parse(time.RFC3339, when); err == nil {
			at(t)
		}
	case last.RequeueAfter > 0:
		s.Next = "requeue"
		at(last.Finished.Add(last.RequeueAfter))
	}
}

// isDue reports whether a run is due after last, whether or not the object is paused.
func isDue(obj *unstructured.Unstructured, last *status.Run) bool {
	set, _ := annotated(obj, settings{}, false)
	observed, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	return last.Result == status.Interrupted && !last.BacksOff() || set.requested != "" && set.requested != last.Handled && !last.LostOften() ||
		observed != obj.GetGeneration() && last.Generation != obj.GetGeneration() && !changeWaits(last)
}

// FailedError is the error of a run that failed.
type FailedError struct{ Reason, Message string }

func (e FailedError) Error() string {
	if e.Message == "" {
		return "failed: " + e.Reason
	}
	return "failed: " + e.Reason + ": " + e.Message
}

// Settled reports whether the current state of the object, including a request for a run, has been
// reconciled. If not, waitsFor says what the object waits for. A [FailedError] says that the last run failed.
func Settled(obj *unstructured.Unstructured, now time.Time) (done bool, waitsFor string, err error) {
	st, _ := obj.Object["status"].(map[string]any)
	record := status.Read(st)
	s := Summarize(obj, now)
	last := record.Last
	observed, _ := st["observedGeneration"].(int64)
	paused := map[bool]string{true: ", and it is paused"}[s.Next == "paused"]
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return false, "", errors.New("it is being deleted")
	case s.Active != nil:
		return false, fmt.Sprintf("run %s is in progress since %s: %s", s.Active.ID, s.Active.Started.UTC().Format(time.RFC3339), s.Active.Cause), nil
	case last == nil:
		// The status has no record of runs, perhaps only not yet.
		switch {
		case observed != s.Generation:
			return false, "no run of the object as it is now is recorded" + paused, nil
		case s.Ready == "False":
			return true, "", FailedError{s.Reason, s.Message}
		}
		return s.Ready == "True", "Ready is " + cmp.Or(s.Ready, "not set"), nil
	case isDue(obj, last):
		return false, "a run is due" + paused, nil
	case last.Wait != nil:
		return false, "it " + text.Plain(last.Wait.String()), nil
	case last.BacksOff():
		return false, "the last run was interrupted, and is repeated" + paused, nil
	case last.Result == status.Failed:
		message, _, _ := unstructured.NestedString(st, "ansible", "lastRun", "message")
		return true, "", FailedError{last.Reason, text.Plain(cmp.Or(message, s.Message))}
	}
	return true, "", nil
}
