package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/test/must"
)

// What a list shows of an object, and of what waits for it, comes from the status that the operator writes.
func TestSummarize(t *testing.T) {
	now := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	run := status.Run{
		ID: "11111111-1111-1111-1111-111111111111", Cause: "changed", Generation: 2, Fingerprint: strings.Repeat("ab", 16), Handled: "one",
		Started: now.Add(-time.Minute), Finished: now.Add(-30 * time.Second), Result: status.Succeeded, Reason: "Succeeded",
	}
	with := func(change func(*status.Run)) *status.Run { r := run; change(&r); return &r }
	fails := func(r *status.Run) { r.Result, r.Reason, r.Message = status.Failed, "TaskFailed", "no \x1b[31mroom" }
	failed := with(fails)
	check := with(func(r *status.Run) { r.Mode = status.ModeCheck })
	interrupted := with(func(r *status.Run) { r.Result, r.Reason = status.Interrupted, "Lost" })
	lostOften := with(func(r *status.Run) {
		r.Cause, r.Result, r.Reason, r.Losses = string(causeInterrupted), status.Interrupted, status.ReasonLost, 3
	})
	lostAfterChange := with(func(r *status.Run) { r.Result, r.Reason, r.Losses = status.Interrupted, status.ReasonLost, 4 })
	disrupted := with(func(r *status.Run) { r.Result, r.Reason = status.Interrupted, status.ReasonDisrupted })
	waits := with(func(r *status.Run) {
		r.Wait = &status.Wait{APIVersion: "v1", Kind: "Pod", Namespace: "one", Name: "p", For: "condition=Ready", Since: now.Add(-time.Minute), Until: now.Add(time.Hour)}
	})
	active := &status.Active{ID: "22222222-2222-2222-2222-222222222222", Cause: "period", Generation: 2, Started: now}
	const paused, at = ownPrefix + "paused", ownPrefix + "reconcile-at"
	for name, tc := range map[string]struct {
		last        *status.Run
		retry       time.Duration
		active      *status.Active
		generation  int64
		annotations map[string]any
		ready, next string
		in          time.Duration
		done        bool
		waitsFor    string
		failure     string
	}{
		"new":        {generation: 1, waitsFor: "no run of the object"},
		"first run":  {generation: 2, active: active, ready: "Unknown/RunInProgress", next: "running", waitsFor: ": period"},
		"settled":    {generation: 2, last: &run, ready: "True/RunSucceeded", done: true},
		"runs again": {generation: 2, last: &run, active: active, ready: "True/RunSucceeded", next: "running", waitsFor: "in progress"},
		"changed":    {generation: 3, last: &run, ready: "Unknown/" + generationChanged, next: "due", waitsFor: "is due"},
		"handled":    {generation: 2, last: &run, annotations: map[string]any{at: "one"}, ready: "True/RunSucceeded", done: true},
		"asked for":  {generation: 2, last: &run, annotations: map[string]any{at: "two"}, ready: "True/RunSucceeded", next: "due", waitsFor: "is due"},
		"asked for in a pause": {
			generation: 2, last: &run, annotations: map[string]any{at: "two", paused: "true"}, ready: "True/RunSucceeded", next: "paused", waitsFor: "due, and it is paused",
		},
		"paused": {generation: 3, last: &run, annotations: map[string]any{paused: "true"}, ready: "Unknown/" + generationChanged, next: "paused", waitsFor: "due, and it is paused"},
		"paused for a while": {
			generation: 2, last: &run, annotations: map[string]any{paused: "2026-05-06T19:00:00Z"}, ready: "True/RunSucceeded", next: "paused", in: time.Hour, done: true,
		},
		"will be repeated":        {generation: 2, last: failed, retry: time.Minute, ready: "False/TaskFailed", next: "retry", in: 30 * time.Second, done: true, failure: "failed: TaskFailed: no room"},
		"stalled":                 {generation: 2, last: failed, ready: "False/TaskFailed", next: "stalled", done: true, failure: "no room"},
		"was fixed":               {generation: 3, last: failed, ready: "Unknown/" + generationChanged, next: "due", waitsFor: "is due"},
		"interrupted":             {generation: 2, last: interrupted, next: "due", waitsFor: "is due"},
		"lost often":              {generation: 2, last: lostOften, retry: time.Minute, annotations: map[string]any{at: "two"}, next: "retry", in: 30 * time.Second, waitsFor: "is repeated"},
		"lost often, and changed": {generation: 3, last: lostOften, retry: time.Minute, next: "due", waitsFor: "is due"},
		"lost after a change, and changed": {
			generation: 3, last: lostAfterChange, retry: time.Minute, next: "retry", in: 30 * time.Second, waitsFor: "is repeated",
		},
		"ended by the cluster": {generation: 2, last: disrupted, retry: time.Minute, next: "retry", in: 30 * time.Second, waitsFor: "is repeated"},
		"waits":                {generation: 2, last: waits, ready: "False/Waiting", next: "waiting", in: time.Hour, waitsFor: "waits for Pod one/p: condition=Ready"},
		"checked":              {generation: 2, last: check, ready: "Unknown/CheckMode", done: true},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "it", "generation": tc.generation, "annotations": tc.annotations},
		}}
		var st map[string]any
		if tc.last != nil {
			st = status.Conclude(nil, *tc.last, tc.retry, now)
		}
		if tc.active != nil {
			st = status.Begin(st, *tc.active, false, now)
		}
		if st != nil {
			obj.Object["status"] = st
		}
		s := Summarize(obj, now)
		must.Be(t, name+": ready", tc.ready, strings.Trim(s.Ready+"/"+s.Reason, "/"))
		must.Be(t, name+": next", tc.next, s.Next)
		in := time.Duration(0)
		if s.At != nil {
			in = s.At.Sub(now)
		}
		must.Be(t, name+": at", tc.in, in)
		done, waitsFor, err := Settled(obj, now)
		must.Be(t, name+": done", tc.done, done)
		if !strings.Contains(waitsFor, tc.waitsFor) || tc.waitsFor == "" && waitsFor != "" {
			t.Errorf("%s: it waits for %q, want %q", name, waitsFor, tc.waitsFor)
		}
		if failed := (FailedError{}); errors.As(err, &failed) != (tc.failure != "") || tc.failure != "" && !strings.Contains(err.Error(), tc.failure) {
			t.Errorf("%s: %v, want %q", name, err, tc.failure)
		}
	}
}

// Whatever an object contains, none of it reaches the terminal as a control sequence.
func TestSummarize_OfAHostileStatus(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "it", "generation": int64(1)},
		"status": map[string]any{
			"conditions": []any{"odd", map[string]any{"type": "Ready", "status": "\x1b]0;title\aTrue", "reason": "a\nb", "message": "\x1b[2J\u202ehidden", "observedGeneration": "x"}},
			"ansible":    map[string]any{"lastRun": int64(5), "nextRetry": []any{}},
		},
	}}
	s := Summarize(obj, time.Now())
	must.Be(t, "summary", "True a b hidden", s.Ready+" "+s.Reason+" "+s.Message)
}
