package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/controller/status"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	const fp, id = "same", "id"
	// j is a delay as jitter lengthens it for the record's ID.
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
	attempts := func(n int64) func(*status.Run) { return func(r *status.Run) { r.Attempts = n } }

	tests := []struct {
		name string
		in   situation // fingerprint, generation, retry are filled in below
		want plan
	}{
		{"never run", situation{}, plan{cause: causeCreated}},
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
		{"new generation of the same inputs", situation{last: run(status.Succeeded, 0, func(r *status.Run) { r.Generation = 9 })}, plan{}},
		{"asked for", situation{last: run(status.Succeeded, time.Second), requested: "b"}, plan{cause: causeManual}},
		{"asked for, failed, backoff not over", situation{last: run(status.Failed, time.Second, attempts(9), handled("a")), requested: "b"}, plan{cause: causeManual}},
		{"asked for and handled", situation{last: run(status.Succeeded, time.Hour, handled("a")), requested: "a"}, plan{}},
		{"asked for while paused", situation{last: run(status.Succeeded, time.Hour), requested: "b", paused: forEver()}, plan{held: causeManual}},
		{"asked for while the finalizer waits", situation{last: run(status.Failed, 0, finalizer, attempts(2)), requested: "b", deleting: true}, plan{cause: causeDeleted}},
		{"interrupted", situation{last: run(status.Interrupted, 0)}, plan{cause: causeInterrupted}},
		{"failed, backoff not over", situation{last: run(status.Failed, time.Second, attempts(3))},
			plan{wait: j(4*time.Second) - time.Second}},
		{"failed, backoff over", situation{last: run(status.Failed, time.Minute, attempts(3))}, plan{cause: causeRetry}},
		{"failed often, backoff capped", situation{last: run(status.Failed, 0, attempts(1000))}, plan{wait: j(time.Minute)}},
		{"failed, inputs changed: at once", situation{last: run(status.Failed, 0, attempts(9), func(r *status.Run) { r.Fingerprint = "other" })},
			plan{cause: causeContent}},
		{"failed, the period is no reason to wait", situation{last: run(status.Failed, time.Hour), period: 10 * time.Hour}, plan{cause: causeRetry}},
		{"requeue_after not over", situation{last: run(status.Succeeded, time.Second, requeue(time.Minute)), period: 5 * time.Second},
			plan{wait: j(time.Minute) - time.Second}},
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
			plan{wait: j(time.Minute)}},
		{"finalizer success of another process is run again", situation{last: run(status.Succeeded, time.Second, finalizer), deleting: true},
			plan{cause: causeDeleted}},
		{"paused, nothing due", situation{last: run(status.Succeeded, time.Minute), period: time.Hour, paused: forEver()},
			plan{wait: j(time.Hour) - time.Minute}},
		{"paused for ever, period over", situation{last: run(status.Succeeded, 2*time.Hour), period: time.Hour, paused: forEver()},
			plan{held: causePeriod}},
		{"paused for a while, never run", situation{paused: now.Add(time.Minute)}, plan{held: causeCreated, wait: time.Minute}},
		{"the pause is over", situation{paused: now}, plan{cause: causeCreated}},
		{"paused, interrupted", situation{last: run(status.Interrupted, 0), paused: forEver()}, plan{held: causeInterrupted}},
		{"paused, deleted", situation{last: run(status.Succeeded, 0), deleting: true, paused: forEver()}, plan{cause: causeDeleted}},
		{"finalizer interrupted", situation{last: run(status.Interrupted, 0, finalizer), deleting: true}, plan{cause: causeDeleted}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.fingerprint, tt.in.generation = fp, 1
			tt.in.retry = retry{min: time.Second, max: time.Minute}
			if diff := cmp.Diff(tt.want, decide(now, tt.in), cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
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
