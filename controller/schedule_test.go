package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	const fp, id = "same", "id"
	// j returns a delay, lengthened by the jitter for the record's ID.
	j := func(d time.Duration) time.Duration { return jitter(d, id) }
	run := func(result status.Result, ago time.Duration, edit ...func(*status.Run)) *status.Run {
		r := &status.Run{ID: id, Cause: "changed", Generation: 1, Fingerprint: fp, Result: result, Finished: now.Add(-ago), Attempts: 1}
		for _, e := range edit {
			e(r)
		}
		return r
	}
	finalizer := func(r *status.Run) { r.Cause = string(causeDeleted) }
	requeue := func(d time.Duration) func(*status.Run) { return func(r *status.Run) { r.RequeueAfter = d } }
	handled := func(token string) func(*status.Run) { return func(r *status.Run) { r.Handled = token } }
	parked := func(since, until time.Duration) func(*status.Run) {
		return func(r *status.Run) { r.Wait = &status.Wait{Since: now.Add(since), Until: now.Add(until)} }
	}
	other := func(r *status.Run) { r.Fingerprint = "other" }
	permanent := func(r *status.Run) { r.Permanent = true }
	cancelled := func(r *status.Run) { r.Reason = status.ReasonCancelled }
	disrupted := func(r *status.Run) { r.Reason = status.ReasonDisrupted }
	noMemory := func(r *status.Run) { r.Reason = status.ReasonNoMemory }
	lost := func(n int64) func(*status.Run) {
		return func(r *status.Run) { r.Cause, r.Reason, r.Losses = string(causeInterrupted), status.ReasonLost, n }
	}
	changed := func(r *status.Run) { r.Cause = string(causeChanged) }
	older := func(r *status.Run) { r.Generation = 0 }
	check := func(r *status.Run) { r.Mode = status.ModeCheck }
	drifted := func(r *status.Run) { r.Mode, r.Drifted = status.ModeCheck, true }
	const onlyCheck, both = watches.ModeCheck, watches.ModeCheckThenApply
	usual := retry{min: time.Second, max: time.Minute}
	stalling, continuing := usual, usual
	stalling.most, stalling.stalls, continuing.most = 3, true, 3
	attempts := func(n int64) func(*status.Run) { return func(r *status.Run) { r.Attempts = n } }

	tests := []struct {
		name string
		in   situation // fingerprint, generation, retry are filled in below
		want plan
	}{
		{"never run", situation{}, plan{cause: causeCreated}},
		{"run before, and not recorded", situation{firstSeen: &firstSeen{generation: 1}}, plan{cause: causeRestart}},
		{"run before, and changed since", situation{firstSeen: &firstSeen{generation: 2}}, plan{cause: causeChanged}},
		{"run before, and a dependent changes", situation{firstSeen: &firstSeen{generation: 1}, dependent: true}, plan{cause: causeDependent}},
		{"run before, asked for", situation{firstSeen: &firstSeen{generation: 1}, requested: "b"}, plan{cause: causeManual}},
		{"run before, asked for earlier", situation{firstSeen: &firstSeen{generation: 1, requested: "b"}, requested: "b"}, plan{cause: causeRestart}},
		{"run before, deleted", situation{firstSeen: &firstSeen{generation: 1}, deleting: true}, plan{cause: causeDeleted}},
		{"run before, paused", situation{firstSeen: &firstSeen{generation: 1}, paused: forEver()}, plan{held: causeRestart}},
		{"unchanged, no period", situation{last: run(status.Succeeded, time.Hour)}, plan{}},
		{"unchanged, period not over", situation{last: run(status.Succeeded, time.Minute), period: time.Hour},
			plan{wait: j(time.Hour) - time.Minute}},
		{"unchanged, period over", situation{last: run(status.Succeeded, 2*time.Hour), period: time.Hour}, plan{cause: causePeriod}},
		{"period over, jitter not", situation{last: run(status.Succeeded, time.Hour), period: time.Hour},
			plan{wait: j(time.Hour) - time.Hour}},
		{"spec changed", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Fingerprint = "other"; r.Generation = 0 })},
			plan{cause: causeChanged}},
		{"content changed", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Fingerprint = "other" })},
			plan{cause: causeContent}},
		{"the object changed, in the same generation", situation{last: run(status.Succeeded, 0, other), itself: true}, plan{cause: causeChanged}},
		{"in a loop, the role has changed its object's annotations", situation{last: run(status.Succeeded, time.Second, other), itself: true, own: true, loops: loopRuns},
			plan{wait: loopPause - time.Second}},
		{"new generation of the same inputs", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Generation = 9 })}, plan{}},
		{"asked for", situation{last: run(status.Succeeded, time.Second), requested: "b"}, plan{cause: causeManual}},
		{"asked for, failed, backoff not over", situation{last: run(status.Failed, time.Second, attempts(9), handled("a")), requested: "b"}, plan{cause: causeManual}},
		{"asked for, other content", situation{last: run(status.Succeeded, time.Hour, other), requested: "b"}, plan{cause: causeManual}},
		{"asked for and handled", situation{last: run(status.Succeeded, time.Hour, handled("a")), requested: "a"}, plan{}},
		{"asked for while paused", situation{last: run(status.Succeeded, time.Hour), requested: "b", paused: forEver()}, plan{held: causeManual}},
		{"asked for while the finalizer waits", situation{last: run(status.Failed, 0, finalizer, attempts(2)), requested: "b", deleting: true}, plan{cause: causeDeleted}},
		{"a change by others", situation{last: run(status.Succeeded, 2*time.Second), dependent: true, effects: loopRuns - 1}, plan{cause: causeDependent}},
		{"a change by others in a loop", situation{last: run(status.Succeeded, 2*time.Second), dependent: true, effects: loopRuns}, plan{wait: j(loopPause) - 2*time.Second}},
		{"a change by others in a loop, period over", situation{last: run(status.Succeeded, 2*time.Minute), dependent: true, effects: loopRuns, period: time.Minute}, plan{cause: causePeriod}},
		{"no room for the run, as often as may be", situation{last: run(status.Failed, time.Hour, attempts(9), func(r *status.Run) { r.Reason = status.ReasonNotRun }), retry: stalling}, plan{cause: causeRetry}},
		{"interrupted", situation{last: run(status.Interrupted, 0)}, plan{cause: causeInterrupted}},
		{"ended by the cluster for the third time", situation{last: run(status.Interrupted, time.Second, disrupted), blocked: 3},
			plan{wait: j(4*time.Second) - time.Second}},
		{"ended by the cluster, backoff over", situation{last: run(status.Interrupted, time.Minute, disrupted), blocked: 3, period: time.Second}, plan{cause: causeInterrupted}},
		{"ended by the cluster, changed since", situation{last: run(status.Interrupted, 0, disrupted, other), blocked: 3}, plan{cause: causeContent}},
		{"finalizer ended by the cluster", situation{last: run(status.Interrupted, 2*time.Second, disrupted, finalizer), blocked: 1, deleting: true}, plan{cause: causeDeleted}},
		{"lost for the second time", situation{last: run(status.Interrupted, 0, lost(2))}, plan{cause: causeInterrupted}},
		{"lost for the third time, whatever the run before it had", situation{last: run(status.Interrupted, time.Second, lost(3), other)},
			plan{wait: j(4*time.Second) - time.Second}},
		{"lost for the third time, backoff over", situation{last: run(status.Interrupted, 5*time.Second, lost(3), other)}, plan{cause: causeInterrupted}},
		{"lost a million times", situation{last: run(status.Interrupted, 0, lost(1_000_000)), retry: stalling}, plan{wait: j(time.Minute)}},
		{"lost for the third time, the clock went back", situation{last: run(status.Interrupted, -48*time.Hour, lost(3))}, plan{wait: j(4 * time.Second)}},
		{"lost for the third time, the period is no reason to run", situation{last: run(status.Interrupted, time.Second, lost(3)), period: time.Second, dependent: true},
			plan{wait: j(4*time.Second) - time.Second}},
		{"lost for the third time, asked for", situation{last: run(status.Interrupted, time.Second, lost(3)), requested: "b"}, plan{wait: j(4*time.Second) - time.Second}},
		{"lost for the third time, the spec changed", situation{last: run(status.Interrupted, 0, lost(3), older, other)}, plan{cause: causeChanged}},
		{"lost for the fourth time, after the spec changed, and it changed again", situation{last: run(status.Interrupted, time.Second, lost(4), older, other, changed)},
			plan{wait: j(8*time.Second) - time.Second}},
		{"lost for the third time, the spec is as before those runs", situation{last: run(status.Interrupted, 0, lost(3), older)}, plan{cause: causeChanged}},
		{"lost for the third time, deleted", situation{last: run(status.Interrupted, 0, lost(3)), deleting: true}, plan{cause: causeDeleted}},
		{"lost for the third time, paused", situation{last: run(status.Interrupted, time.Minute, lost(3)), paused: forEver()}, plan{held: causeInterrupted}},
		{"finalizer lost for the third time", situation{last: run(status.Interrupted, time.Second, lost(3), finalizer, other), deleting: true},
			plan{wait: j(4*time.Second) - time.Second}},
		{"finalizer lost for the third time, the spec changed", situation{last: run(status.Interrupted, time.Second, lost(3), finalizer, older), deleting: true},
			plan{wait: j(4*time.Second) - time.Second}},
		{"finalizer lost for the third time, backoff over", situation{last: run(status.Interrupted, 5*time.Second, lost(3), finalizer), deleting: true}, plan{cause: causeDeleted}},
		{"a success is not lost", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Losses = 9 })}, plan{}},
		{"failed, backoff not over", situation{last: run(status.Failed, time.Second, attempts(3))},
			plan{wait: j(4*time.Second) - time.Second}},
		{"failed, backoff over", situation{last: run(status.Failed, time.Minute, attempts(3))}, plan{cause: causeRetry}},
		{"failed often, backoff capped", situation{last: run(status.Failed, 0, attempts(1000))}, plan{wait: j(time.Minute)}},
		{"environment changed", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Fingerprint = "other" }), environment: true},
			plan{cause: causeEnvironment}},
		{"failed, inputs changed: at once", situation{last: run(status.Failed, 0, attempts(9), func(r *status.Run) { r.Fingerprint = "other" })},
			plan{cause: causeContent}},
		{"failed, the period is no reason to wait", situation{last: run(status.Failed, time.Hour), period: 10 * time.Hour}, plan{cause: causeRetry}},
		{"failed as often as may be", situation{last: run(status.Failed, time.Hour, attempts(3)), retry: stalling, period: time.Second},
			plan{wait: time.Minute}},
		{"failed once less", situation{last: run(status.Failed, time.Hour, attempts(2)), retry: stalling}, plan{cause: causeRetry}},
		{"failed as often as may be, inputs changed", situation{last: run(status.Failed, 0, attempts(3), other), retry: stalling}, plan{cause: causeContent}},
		{"failed as often as may be, asked for", situation{last: run(status.Failed, 0, attempts(3)), retry: stalling, requested: "b"}, plan{cause: causeManual}},
		{"failed as often as may be, deleted", situation{last: run(status.Failed, 0, attempts(3)), retry: stalling, deleting: true}, plan{cause: causeDeleted}},
		{"failed as often as may be, a dependent changes", situation{last: run(status.Failed, time.Hour, attempts(3)), retry: stalling, dependent: true},
			plan{cause: causeDependent}},
		{"failed as often as may be, a dependent changes at once", situation{last: run(status.Failed, 0, attempts(3)), retry: stalling, dependent: true},
			plan{wait: j(time.Minute)}},
		{"failed as often as may be, and goes on", situation{last: run(status.Failed, 0, attempts(3)), retry: continuing}, plan{wait: j(time.Minute)}},
		{"finalizer failed as often as may be", situation{last: run(status.Failed, 0, finalizer, attempts(3)), retry: stalling, deleting: true},
			plan{wait: j(time.Minute)}},
		{"a fault of the content", situation{last: run(status.Failed, time.Hour, permanent), period: time.Second, dependent: true}, plan{wait: time.Minute}},
		{"a fault of the content, looked at often", situation{last: run(status.Failed, time.Hour, permanent), retry: retry{min: 1, max: 5 * time.Second}},
			plan{wait: 5 * time.Second}},
		{"a fault of the content, which changes", situation{last: run(status.Failed, 0, permanent, other)}, plan{cause: causeContent}},
		{"the finalizer failed, and the object was changed", situation{last: run(status.Failed, 0, finalizer, attempts(3), other), deleting: true}, plan{cause: causeDeleted}},
		{"the finalizer failed, and has changed the object", situation{last: run(status.Failed, 0, finalizer, attempts(3), other), deleting: true, own: true},
			plan{wait: j(4 * time.Second)}},
		{"a fault of the finalizer's content", situation{last: run(status.Failed, 0, finalizer, permanent), deleting: true}, plan{wait: j(time.Minute)}},
		{"cancelled", situation{last: run(status.Failed, time.Hour, cancelled), period: time.Second, dependent: true}, plan{wait: time.Minute}},
		{"cancelled, and the request with it", situation{last: run(status.Failed, time.Hour, cancelled, handled("a")), requested: "a"}, plan{wait: time.Minute}},
		{"cancelled, asked for", situation{last: run(status.Failed, 0, cancelled), requested: "b"}, plan{cause: causeManual}},
		{"cancelled finalizer", situation{last: run(status.Failed, 0, finalizer, cancelled), deleting: true}, plan{wait: j(time.Second)}},
		{"requeue_after not over", situation{last: run(status.Succeeded, time.Second, requeue(time.Minute)), period: 5 * time.Second},
			plan{wait: time.Minute - time.Second}},
		{"requeue_after over", situation{last: run(status.Succeeded, 2*time.Minute, requeue(time.Minute)), period: time.Hour},
			plan{cause: causeRequeueAfter}},
		{"failed, requeue_after is longer", situation{last: run(status.Failed, time.Second, requeue(time.Hour))},
			plan{wait: j(time.Hour) - time.Second}},
		{"waits", situation{last: run(status.Succeeded, time.Minute, parked(0, time.Hour)), nextLook: now.Add(7 * time.Second), period: time.Second},
			plan{wait: 7 * time.Second}},
		{"waits, a look is due", situation{last: run(status.Succeeded, time.Minute, parked(0, time.Hour))}, plan{wait: minLook}},
		{"waits, the time is over before the next look", situation{last: run(status.Succeeded, time.Minute, parked(0, time.Millisecond*300))},
			plan{wait: 300 * time.Millisecond}},
		{"waits, the clock went back", situation{last: run(status.Succeeded, 0, parked(time.Hour, time.Hour+time.Minute)), nextLook: now.Add(time.Hour)},
			plan{wait: time.Minute}},
		{"what it waits for is there", situation{last: run(status.Succeeded, time.Minute, parked(0, time.Hour)), arrived: true}, plan{cause: causeWaited}},
		{"the time to wait is over", situation{last: run(status.Succeeded, time.Minute, parked(-time.Hour, 0))}, plan{cause: causeWaited}},
		{"waits, and a dependent changes", situation{last: run(status.Succeeded, time.Minute, parked(0, time.Hour)), dependent: true},
			plan{cause: causeDependent}},
		{"waits, and the spec changes", situation{last: run(status.Succeeded, 0, parked(0, time.Hour), func(r *status.Run) { r.Fingerprint = "other"; r.Generation = 0 })},
			plan{cause: causeChanged}},
		{"the finalizer waits", situation{last: run(status.Succeeded, 0, finalizer, parked(0, time.Hour)), deleting: true, dependent: true}, plan{wait: minLook}},
		{"what the finalizer waits for is there", situation{last: run(status.Succeeded, 0, finalizer, parked(0, time.Hour)), deleting: true, arrived: true},
			plan{cause: causeDeleted}},
		{"clock went back", situation{last: run(status.Succeeded, -48*time.Hour), period: time.Hour}, plan{wait: j(time.Hour)}},
		{"deleted", situation{last: run(status.Succeeded, 0), deleting: true}, plan{cause: causeDeleted}},
		{"deleted, never run", situation{deleting: true}, plan{cause: causeDeleted}},
		{"deleted while failing: at once", situation{last: run(status.Failed, 0, attempts(9)), deleting: true}, plan{cause: causeDeleted}},
		{"finalizer failed, backoff not over", situation{last: run(status.Failed, 0, finalizer, attempts(2)), deleting: true},
			plan{wait: j(2 * time.Second)}},
		{"finalizer failed, backoff over", situation{last: run(status.Failed, time.Hour, finalizer), deleting: true}, plan{cause: causeDeleted}},
		{"finalizer failed, inputs changed: at once", situation{last: run(status.Failed, 0, finalizer,
			func(r *status.Run) { r.Fingerprint = "other" }), deleting: true}, plan{cause: causeDeleted}},
		{"a period beyond all bounds", situation{last: run(status.Succeeded, 0), period: 1<<63 - 1}, plan{wait: j(maxPeriod)}},
		{"finalizer asked for time", situation{last: run(status.Succeeded, 0, finalizer, requeue(time.Minute)), deleting: true},
			plan{wait: time.Minute}},
		{"finalizer success of another process is run again", situation{last: run(status.Succeeded, time.Second, finalizer), deleting: true},
			plan{cause: causeDeleted}},
		{"paused, nothing due", situation{last: run(status.Succeeded, time.Minute), period: time.Hour, paused: forEver()},
			plan{wait: j(time.Hour) - time.Minute}},
		{"paused for ever, period over", situation{last: run(status.Succeeded, 2*time.Hour), period: time.Hour, paused: forEver()},
			plan{held: causePeriod}},
		{"paused for a while, never run", situation{paused: now.Add(time.Minute)}, plan{held: causeCreated, wait: time.Minute}},
		{"the pause is over", situation{paused: now}, plan{cause: causeCreated}},
		{"paused, interrupted", situation{last: run(status.Interrupted, 0), paused: forEver()}, plan{held: causeInterrupted}},
		{"paused with deletion, deleted", situation{last: run(status.Succeeded, 0), deleting: true, paused: now.Add(time.Minute), pausesDeletion: true}, plan{held: causeDeleted, wait: time.Minute}},
		{"pause with deletion is over", situation{last: run(status.Succeeded, 0), deleting: true, paused: now, pausesDeletion: true}, plan{cause: causeDeleted}},
		{"paused, deleted", situation{last: run(status.Succeeded, 0), deleting: true, paused: forEver()}, plan{cause: causeDeleted}},
		{"check: never run", situation{mode: onlyCheck}, plan{cause: causeCreated, check: true}},
		{"check: changed", situation{mode: onlyCheck, last: run(status.Succeeded, 0, drifted, other)}, plan{cause: causeContent, check: true}},
		{"check: period over, drifted", situation{mode: onlyCheck, last: run(status.Succeeded, 2*time.Hour, drifted), period: time.Hour},
			plan{cause: causePeriod, check: true}},
		{"check: drifted, no period", situation{mode: onlyCheck, last: run(status.Succeeded, time.Hour, drifted)}, plan{}},
		{"check: failed", situation{mode: onlyCheck, last: run(status.Failed, time.Hour, check)}, plan{cause: causeRetry, check: true}},
		{"check: asked for", situation{mode: onlyCheck, last: run(status.Succeeded, 0, check), requested: "b"}, plan{cause: causeManual, check: true}},
		{"check: deleted", situation{mode: onlyCheck, last: run(status.Succeeded, 0, drifted), deleting: true}, plan{cause: causeDeleted}},
		{"check: paused", situation{mode: onlyCheck, paused: forEver()}, plan{held: causeCreated}},
		{"both: never run", situation{mode: both}, plan{cause: causeCreated}},
		{"both: changed since a check", situation{mode: both, last: run(status.Succeeded, 0, check, other)}, plan{cause: causeContent}},
		{"both: period over", situation{mode: both, last: run(status.Succeeded, 2*time.Hour), period: time.Hour}, plan{cause: causePeriod, check: true}},
		{"both: nothing found", situation{mode: both, last: run(status.Succeeded, time.Minute, check), period: time.Hour},
			plan{wait: j(time.Hour) - time.Minute}},
		{"both: drifted", situation{mode: both, last: run(status.Succeeded, time.Second, drifted), period: time.Hour}, plan{cause: causeDrift}},
		{"both: drifted just now", situation{mode: both, last: run(status.Succeeded, 0, drifted)}, plan{wait: time.Millisecond}},
		{"both: drifted, paused", situation{mode: both, last: run(status.Succeeded, time.Second, drifted), paused: forEver()}, plan{held: causeDrift}},
		{"both: the check failed", situation{mode: both, last: run(status.Failed, time.Second, check, permanent)}, plan{cause: causeDrift}},
		{"both: the check was cancelled", situation{mode: both, last: run(status.Failed, time.Hour, check, cancelled)}, plan{wait: time.Minute}},
		{"both: the check had no memory", situation{mode: both, last: run(status.Failed, time.Hour, check, noMemory)}, plan{cause: causeRetry, check: true}},
		{"both: the check was interrupted", situation{mode: both, last: run(status.Interrupted, 0, check)}, plan{cause: causeInterrupted, check: true}},
		{"both: a run was interrupted", situation{mode: both, last: run(status.Interrupted, 0)}, plan{cause: causeInterrupted}},
		{"both: a check was interrupted by a change", situation{mode: both, last: run(status.Interrupted, 0, check, other)}, plan{cause: causeInterrupted}},
		{"both: a run failed", situation{mode: both, last: run(status.Failed, time.Hour)}, plan{cause: causeRetry}},
		{"both: a dependent changes", situation{mode: both, last: run(status.Succeeded, time.Hour, check), dependent: true}, plan{cause: causeDependent}},
		{"apply again: drifted in the same inputs", situation{last: run(status.Succeeded, time.Hour, drifted)}, plan{}},
		{"finalizer interrupted", situation{last: run(status.Interrupted, 0, finalizer), deleting: true}, plan{cause: causeDeleted}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.fingerprint, tt.in.generation = fp, 1
			if tt.in.retry == (retry{}) {
				tt.in.retry = usual
			}
			must.Be(t, "what was got", tt.want, decide(now, tt.in), cmp.AllowUnexported(plan{}))
		})
	}
}

func TestRetry(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		watch watches.Retry
		want  []time.Duration
	}{
		"the flags'":                {watches.Retry{}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}},
		"all of the watch's":        {watches.Retry{Initial: 2 * s, Max: 20 * s, Factor: 3}, []time.Duration{2 * s, 6 * s, 18 * s, 20 * s}},
		"equal":                     {watches.Retry{Initial: 3 * s, Factor: 1}, []time.Duration{3 * s, 3 * s, 3 * s}},
		"longer than the flags'":    {watches.Retry{Initial: 60 * s}, []time.Duration{60 * s, 60 * s}},
		"shorter than the flags'":   {watches.Retry{Max: s / 2}, []time.Duration{s / 2, s / 2}},
		"at the longest in the end": {watches.Retry{MaxAttempts: 3, OnExhausted: watches.OnExhaustedContinue}, []time.Duration{s, 2 * s, 10 * s}},
	} {
		r := retryOf(tt.watch, s, 10*s)
		var got []time.Duration
		for n := range tt.want {
			got = append(got, r.delay(int64(n+1)))
		}
		must.Be(t, name, tt.want, got)
		if d := r.delay(1_000_000); d != tt.want[len(tt.want)-1] {
			t.Errorf("%s: after a million failures %s", name, d)
		}
	}
}

func TestJitter_NeverShortensAndStaysWithinATenth(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		d := jitter(time.Hour, string(rune('a'+i%26))+string(rune(i)))
		if d < time.Hour || d > time.Hour+6*time.Minute {
			t.Fatalf("jitter made an hour %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 100 {
		t.Errorf("1000 objects share %d periods", len(seen))
	}
	first := jitter(time.Hour, "x")
	if again := jitter(time.Hour, "x"); again != first {
		t.Error("jitter is not repeatable")
	}
}

// Whether an object without a recorded run counts as run before.
func TestReconciler_RanBefore(t *testing.T) {
	finalizer := func(w *watches.Watch) { w.Finalizer = &watches.Finalizer{Name: "example.com/it"} }
	unmanaged := func(w *watches.Watch) { w.ManageStatus = false }
	is, ended := status.Record{}, status.Record{Ended: status.Failed, EndedGeneration: 3}
	for name, tc := range map[string]struct {
		edits     []func(*watches.Watch)
		record    status.Record
		finalizer bool
		want      bool
	}{
		"new":                                 {nil, is, false, false},
		"new, its first run waits":            {[]func(*watches.Watch){finalizer}, is, true, false},
		"its conditions say so":               {nil, ended, false, true},
		"recorded":                            {nil, status.Record{Last: &status.Run{}}, false, false},
		"no status, no finalizer":             {[]func(*watches.Watch){unmanaged}, is, false, true},
		"no status, the finalizer is missing": {[]func(*watches.Watch){unmanaged, finalizer}, is, false, false},
		"no status, the finalizer is there":   {[]func(*watches.Watch){unmanaged, finalizer}, is, true, true},
	} {
		r := &reconciler{watch: watchOf(schema.GroupVersionKind{}, tc.edits...), opts: &Options{}, res: resource{hasStatus: true}}
		obj := object(r.gvk, "", "it", nil)
		obj.SetGeneration(5)
		if tc.finalizer {
			obj.SetFinalizers([]string{"example.com/it"})
		}
		must.Be(t, name, tc.want, r.ranBefore(obj, tc.record))
		if of := r.firstSeenOf(obj, tc.record).generation; of != 5 && of != tc.record.EndedGeneration {
			t.Errorf("%s: generation %d", name, of)
		}
	}
}
