package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

const (
	someID          = "0b1c2d3e-4f50-4162-8374-8596a7b8c9da"
	someFingerprint = "00112233445566778899aabbccddeeff"
)

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }

func success(gen int64) Run {
	return Run{ID: someID, Cause: "changed", Generation: gen, Fingerprint: someFingerprint, Started: at(1), Finished: at(2),
		Result: Succeeded, Reason: "Succeeded", Completed: time.Date(2026, 1, 2, 3, 4, 1, 123400000, time.UTC),
		Localhost: Counts{OK: 3, Changed: 1}, Counts: Counts{OK: 3, Changed: 1}}
}

func failure(gen, attempts int64) Run {
	return Run{ID: someID, Cause: "changed", Generation: gen, Fingerprint: someFingerprint, Started: at(1), Finished: at(2),
		Result: Failed, Reason: "TaskFailed", Message: "boom\ntask: x", Attempts: attempts,
		Completed: at(2), FailedTask: &Task{Name: "x", Host: "localhost", Path: "main.yml:3"}}
}

// order shows ansible-operator's conditions in their order, and Rolewright's separately.
func order(st map[string]any) string {
	var theirs, added []string
	for _, item := range st["conditions"].([]any) {
		c := item.(map[string]any)
		word := fmt.Sprintf("%.1s=%v/%v", c["type"], c["status"], c["reason"])
		switch c["type"] {
		case Running, Successful, Failure:
			theirs = append(theirs, word)
		default:
			added = append(added, fmt.Sprintf("%v=%v/%v@%v", c["type"], c["status"], c["reason"], c["observedGeneration"]))
		}
	}
	return strings.Join(theirs, " ") + " | " + strings.Join(added, " ")
}

// Order and values are those of ansible-operator over the life of an object, except for the two reasons that contradicted
// their status.
func TestStatus_ConditionsOverTheLifeOfAnObject(t *testing.T) {
	st := map[string]any(nil)
	active := func(gen int64) Active { return Active{ID: someID, Cause: "changed", Generation: gen, Started: at(0)} }
	steps := []struct {
		name string
		do   func(map[string]any) map[string]any
		want string
	}{
		{"first start", func(s map[string]any) map[string]any { return Begin(s, active(1), false, at(0)) },
			"R=True/Running | Ready=Unknown/RunInProgress@1 Reconciling=True/RunInProgress@1"},
		{"first success", func(s map[string]any) map[string]any { return Conclude(s, success(1), time.Hour, at(2)) },
			"R=True/Successful S=True/Successful F=False/ | Ready=True/RunSucceeded@1 Reconciling=False/RunSucceeded@1 Stalled=False/RunSucceeded@1"},
		{"start of a periodic run leaves Ready", func(s map[string]any) map[string]any { return Begin(s, active(1), false, at(3)) },
			"F=False/ S=False/Running R=True/Running | Ready=True/RunSucceeded@1 Reconciling=True/RunInProgress@1 Stalled=False/RunSucceeded@1"},
		{"second success", func(s map[string]any) map[string]any { return Conclude(s, success(1), time.Hour, at(4)) },
			"R=True/Successful S=True/Successful F=False/ | Ready=True/RunSucceeded@1 Reconciling=False/RunSucceeded@1 Stalled=False/RunSucceeded@1"},
		{"start for a new generation", func(s map[string]any) map[string]any { return Begin(s, active(2), false, at(5)) },
			"F=False/ S=False/Running R=True/Running | Ready=Unknown/RunInProgress@2 Reconciling=True/RunInProgress@2 Stalled=False/RunSucceeded@1"},
		{"first failure", func(s map[string]any) map[string]any { return Conclude(s, failure(2, 1), time.Second, at(6)) },
			"R=False/Failed F=True/Failed S=False/ | Ready=False/TaskFailed@2 Reconciling=True/RetryScheduled@2 Stalled=False/RetryScheduled@2"},
		{"start after a failure", func(s map[string]any) map[string]any { return Begin(s, active(2), false, at(7)) },
			"F=True/Failed S=False/ R=True/Running | Ready=False/TaskFailed@2 Reconciling=True/RunInProgress@2 Stalled=False/RetryScheduled@2"},
		{"second failure", func(s map[string]any) map[string]any { return Conclude(s, failure(2, 2), time.Second, at(8)) },
			"S=False/ R=False/Failed F=True/Failed | Ready=False/TaskFailed@2 Reconciling=True/RetryScheduled@2 Stalled=False/RetryScheduled@2"},
		{"start after failures", func(s map[string]any) map[string]any { return Begin(s, active(2), false, at(9)) },
			"S=False/ F=True/Failed R=True/Running | Ready=False/TaskFailed@2 Reconciling=True/RunInProgress@2 Stalled=False/RetryScheduled@2"},
		{"permanent failure", func(s map[string]any) map[string]any {
			r := failure(2, 3)
			r.Reason, r.Permanent = "PlaybookInvalid", true
			return Conclude(s, r, 0, at(10))
		}, "S=False/ R=False/Failed F=True/Failed | Ready=False/PlaybookInvalid@2 Reconciling=False/RunFailed@2 Stalled=True/PlaybookInvalid@2"},
		{"start of a run that was asked for", func(s map[string]any) map[string]any { return Begin(s, active(2), false, at(11)) },
			"S=False/ F=True/Failed R=True/Running | Ready=False/PlaybookInvalid@2 Reconciling=True/RunInProgress@2 Stalled=False/RunInProgress@2"},
		{"the last failure that may be", func(s map[string]any) map[string]any { return Conclude(s, failure(2, 4), 0, at(11)) },
			"S=False/ R=False/Failed F=True/Failed | Ready=False/TaskFailed@2 Reconciling=False/RunFailed@2 Stalled=True/RetriesExhausted@2"},
		{"cancelled", func(s map[string]any) map[string]any {
			r := failure(2, 5)
			r.Reason = ReasonCancelled
			return Conclude(s, r, 0, at(11))
		}, "S=False/ R=False/Failed F=True/Failed | Ready=False/Cancelled@2 Reconciling=False/RunFailed@2 Stalled=True/Cancelled@2"},
		{"finalizer run", func(s map[string]any) map[string]any { return Begin(s, active(3), true, at(11)) },
			"S=False/ F=True/Failed R=True/Running | Ready=False/FinalizerRun@3 Reconciling=True/FinalizerRun@3 Stalled=False/FinalizerRun@3"},
		{"interrupted", func(s map[string]any) map[string]any {
			return Conclude(s, Run{ID: "r", Generation: 3, Result: Interrupted, Message: "Run r was interrupted"}, 0, at(12))
		}, "S=False/ F=True/Failed R=False/RunInterrupted | Ready=False/FinalizerRun@3 Reconciling=True/RunInterrupted@3 Stalled=False/FinalizerRun@3"},
		{"ended by the cluster", func(s map[string]any) map[string]any {
			return Conclude(s, Run{ID: "r", Generation: 3, Result: Interrupted, Reason: ReasonDisrupted, Message: "Run r was interrupted: Evicted; it is repeated"}, 4*time.Second, at(13))
		}, "S=False/ F=True/Failed R=False/RunInterrupted | Ready=False/FinalizerRun@3 Reconciling=True/RunInterrupted@3 Stalled=False/FinalizerRun@3"},
		{"lost again", func(s map[string]any) map[string]any {
			return Conclude(s, Run{ID: "r", Generation: 3, Result: Interrupted, Reason: ReasonLost, Losses: 3, Message: "Run r was lost; it is retried"}, 4*time.Second, at(14))
		}, "S=False/ F=True/Failed R=False/RunInterrupted | Ready=False/FinalizerRun@3 Reconciling=True/RunInterrupted@3 Stalled=False/FinalizerRun@3"},
	}
	for _, step := range steps {
		st = step.do(st)
		if got := order(st); got != step.want {
			t.Fatalf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
		if _, there := mapAt(st, "ansible")["nextRetry"]; there != (strings.Contains(step.want, "Reconciling=True/RetryScheduled") || strings.Contains(step.want, "R=False/RunInterrupted") && step.name != "interrupted") {
			t.Errorf("%s: the time of the next retry is there: %v", step.name, there)
		}
	}
	if _, c := readConditions(st, 3, at(14)).find(Reconciling); c["message"] != "Run r was lost; it is retried after 4s" {
		t.Errorf("after the third loss, the message is %q", c["message"])
	}
}

// Ready shows its generation even if the schema keeps only observedGeneration of the status.
func TestBegin_LeavesReadyWhereTheSchemaPrunesItsGeneration(t *testing.T) {
	st := Conclude(nil, success(1), 0, at(2))
	for _, item := range st["conditions"].([]any) {
		delete(item.(map[string]any), "observedGeneration")
	}
	for generation, want := range map[int64]string{1: "True", 2: "Unknown"} {
		_, ready := readConditions(Begin(st, Active{ID: someID, Cause: "period", Generation: generation}, false, at(3)), 0, at(3)).find(Ready)
		must.Be(t, fmt.Sprint("Ready of generation ", generation), any(want), ready["status"])
	}
	delete(st, "ansible")
	must.Be(t, "generation of the run that has ended", int64(1), Read(st).EndedGeneration)
}

// A loop is reported while it lasts, and leaves nothing behind.
func TestStatus_LoopingLastsAsLongAsTheLoop(t *testing.T) {
	loop, cut := success(1), success(1)
	loop.Loop, cut.Result = "It was run 10 times", Interrupted
	st := map[string]any(nil)
	for i, step := range []struct {
		run  Run
		want bool
	}{{success(1), false}, {loop, true}, {cut, true}, {success(1), false}} {
		st = Conclude(Begin(st, Active{ID: someID, Generation: 1}, false, at(i)), step.run, 0, at(i))
		if got := strings.Contains(order(st), "Looping=True/TriggeredByOwnEffects@1"); got != step.want || strings.Contains(order(st), "Looping") != step.want {
			t.Errorf("run %d: %s", i, order(st))
		}
	}
}

// A check keeps the conditions of the last applied run. An applied run removes the conditions of a check.
func TestStatus_ConditionsOfChecks(t *testing.T) {
	st := map[string]any(nil)
	active := Active{ID: someID, Cause: "period", Mode: ModeCheck, Generation: 2, Started: at(0)}
	check := func(r Run) Run {
		r.Mode, r.Drifted, r.Drift = ModeCheck, r.Counts.Changed > 0, "1 task"
		return r
	}
	unchanged := check(success(2))
	unchanged.Drifted = false
	const failed = "S=False/ R=False/Failed F=True/Failed | Ready=False/TaskFailed@1 Reconciling="
	for _, step := range []struct {
		name string
		do   func(map[string]any) map[string]any
		want string
	}{
		{"before anything was applied", func(s map[string]any) map[string]any {
			return Conclude(Begin(s, active, false, at(0)), check(success(2)), 0, at(1))
		},
			" | Drifted=True/ChangesFound@2 Ready=Unknown/CheckMode@2 Reconciling=False/CheckMode@2"},
		{"applied", func(s map[string]any) map[string]any { return Conclude(s, failure(1, 1), time.Second, at(2)) },
			"F=True/Failed S=False/ | Ready=False/TaskFailed@1 Reconciling=True/RetryScheduled@1 Stalled=False/RetryScheduled@1"},
		{"run again", func(s map[string]any) map[string]any {
			return Conclude(Begin(s, Active{ID: someID, Generation: 1}, false, at(2)), failure(1, 1), time.Second, at(2))
		}, failed + "True/RetryScheduled@1 Stalled=False/RetryScheduled@1"},
		{"drifted", func(s map[string]any) map[string]any {
			return Conclude(Begin(s, active, false, at(3)), check(success(2)), 0, at(4))
		},
			failed + "False/CheckMode@2 Stalled=False/RetryScheduled@1 Drifted=True/ChangesFound@2"},
		{"interrupted", func(s map[string]any) map[string]any {
			return Conclude(s, check(Run{
				ID: someID, Cause: "period", Generation: 2, Started: at(4), Finished: at(5), Result: Interrupted, Reason: "Interrupted",
			}), 0, at(5))
		}, failed + "False/CheckMode@2 Stalled=False/RetryScheduled@1 Drifted=True/ChangesFound@2"},
		{"nothing to change", func(s map[string]any) map[string]any { return Conclude(s, unchanged, 0, at(5)) },
			failed + "False/CheckMode@2 Stalled=False/RetryScheduled@1 Drifted=False/NoChanges@2"},
		{"no answer", func(s map[string]any) map[string]any { return Conclude(s, check(failure(2, 1)), 0, at(6)) },
			failed + "False/CheckMode@2 Stalled=False/RetryScheduled@1 Drifted=Unknown/TaskFailed@2"},
		{"applied again", func(s map[string]any) map[string]any { return Conclude(s, success(2), 0, at(7)) },
			"R=True/Successful S=True/Successful F=False/ | Ready=True/RunSucceeded@2 Reconciling=False/RunSucceeded@2 Stalled=False/RunSucceeded@2"},
	} {
		st = step.do(st)
		if got := order(st); got != step.want {
			t.Fatalf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
		if last := Read(st).Last; last == nil || last.Drifted != strings.Contains(step.want, "Drifted=True") && last.Result != Interrupted {
			t.Errorf("%s: read back: %+v", step.name, last)
		}
		if _, there := st["observedGeneration"]; there && step.name == "before anything was applied" {
			t.Error("a check counts as seen")
		}
	}
}

func TestConclude_SuccessIsTheIncumbents(t *testing.T) {
	st := Conclude(Begin(nil, Active{ID: someID, Generation: 1}, false, at(0)), success(1), 0, at(2))
	want := []any{
		map[string]any{"type": "Running", "status": "True", "reason": "Successful", "message": "Awaiting next reconciliation",
			"lastTransitionTime": "2026-01-02T03:04:00Z",
			"ansibleResult": map[string]any{"ok": int64(3), "changed": int64(1), "skipped": int64(0), "failures": int64(0),
				"completion": "2026-01-02T03:04:01.1234+00:00"}},
		map[string]any{"type": "Successful", "status": "True", "reason": "Successful", "message": "Last reconciliation succeeded",
			"lastTransitionTime": "2026-01-02T03:04:02Z"},
		map[string]any{"type": "Failure", "status": "False", "reason": "", "message": "", "lastTransitionTime": "2026-01-02T03:04:02Z"},
	}
	var got []any
	for _, item := range st["conditions"].([]any) {
		switch item.(map[string]any)["type"] {
		case Running, Successful, Failure:
			got = append(got, item)
		}
	}
	must.Be(t, "conditions", want, got)
}

// What others wrote is kept as it was, whatever it is.
func TestConclude_KeepsForeignContent(t *testing.T) {
	const foreign = `{
	  "conditions": [
	    {"type": "Database", "status": "True", "severity": "Low", "weight": 1.5, "lastTransitionTime": "2020-01-01T00:00:00.123456Z", "nested": {"a": [1, null]}},
	    "not a condition", 7, null,
	    {"type": "Ready", "status": "False", "reason": "SetByTheRole", "message": "mine", "probe": 1},
	    {"status": "True"}
	  ],
	  "nodes": ["a", "b"], "ratio": 0.25, "ansible": {"note": "from a role"}
	}`
	var before map[string]any
	must.Do(t, json.Unmarshal([]byte(foreign), &before))
	original := clone(before)
	after := Conclude(Begin(before, Active{ID: someID, Generation: 1}, false, at(0)), failure(1, 1), 0, at(2))
	if diff := cmp.Diff(original, before); diff != "" {
		t.Errorf("the argument was changed (-was +is):\n%s", diff)
	}
	was, is := original["conditions"].([]any), after["conditions"].([]any)
	if diff := cmp.Diff(was, is[:len(was)]); diff != "" {
		t.Errorf("foreign conditions (-was +is):\n%s", diff)
	}
	for _, key := range []string{"nodes", "ratio"} {
		if diff := cmp.Diff(original[key], after[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	if after["ansible"].(map[string]any)["note"] != "from a role" {
		t.Error("foreign content of status.ansible was lost")
	}
}

func TestConclude_RecordReadsBack(t *testing.T) {
	for name, run := range map[string]Run{
		"success": success(7),
		"failure": failure(7, 4),
		"requeue": func() Run { r := success(7); r.RequeueAfter = 90 * time.Second; return r }(),
	} {
		t.Run(name, func(t *testing.T) {
			st := Conclude(nil, run, 0, at(2))
			data := must.Get(json.Marshal(st))(t)
			var read map[string]any
			must.Do(t, json.Unmarshal(data, &read))
			got := Read(read)
			if got.Last == nil {
				t.Fatalf("no record in %s", data)
			}
			want := run
			want.Message = ""
			want.Counts, want.Localhost, want.Completed, want.FailedTask = Counts{}, Counts{}, time.Time{}, nil
			must.Be(t, "what was got", Record{Last: &want}, got)
		})
	}
}

func TestResume_IsIdempotent(t *testing.T) {
	st := Conclude(nil, success(1), 0, at(2))
	once := Resume(st, success(1), 3, 0, at(5))
	if diff := cmp.Diff(once, Resume(once, success(1), 3, 0, at(9))); diff != "" {
		t.Errorf("a second look changed the status:\n%s", diff)
	}
	if once["observedGeneration"] != int64(3) {
		t.Errorf("observedGeneration = %v", once["observedGeneration"])
	}
}

// When an object is no longer held back, its status is as the last run has left it.
func TestResume_AsTheLastRunHasLeftIt(t *testing.T) {
	check := success(1)
	check.Mode, check.Drifted, check.Drift = ModeCheck, true, "a file"
	parked := success(1)
	parked.Wait = &Wait{APIVersion: "v1", Kind: "Pod", Name: "it", For: "exists", Since: at(1), Until: at(9)}
	notYet := success(1)
	notYet.Reason, notYet.Message = saysNotYet, "1 of 3"
	for name, run := range map[string]Run{"success": success(1), "failure": failure(1, 2), "check": check, "parked": parked, "not yet": notYet} {
		before := Conclude(map[string]any{}, run, time.Minute, at(2))
		after := Resume(Stuck(before, 1, false, "add the finalizer: no", at(3)), run, 1, time.Minute, at(2))
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s (- was, + is):\n%s", name, diff)
		}
	}
}

func TestMinimal_KeepsForeignContentAndShortensOurs(t *testing.T) {
	before := map[string]any{"keep": "me", "ansible": map[string]any{"activeRun": map[string]any{"id": "r"}}}
	run := failure(1, 1)
	run.Message = strings.Repeat("é", 500)
	got := Minimal(before, Conclude(before, run, 0, at(2)))
	data := must.Get(json.Marshal(got))(t)
	if len(data) > 1500 || got["keep"] != "me" || mapAt(got, "ansible")["activeRun"] != nil || strings.Contains(string(data), "�") {
		t.Errorf("minimal status is %s", data)
	}
}

// A status that cannot keep the record of a run does not keep that of an earlier one as if it were the last.
func TestMinimalAndLegacy_KeepNoOutdatedRecord(t *testing.T) {
	before := Conclude(nil, failure(1, 1), time.Minute, at(2))
	active := Active{ID: someID, Cause: "changed", Generation: 2, Started: at(3)}
	next := failure(2, 1)
	next.Started, next.Finished = at(3), at(4)
	for name, form := range map[string]func(before, after map[string]any) map[string]any{"minimal": Minimal, "legacy": Legacy} {
		running := form(before, Begin(before, active, false, at(3)))
		must.Be(t, name+" form of a run in progress", Record{}, Read(running))
		ended := form(running, Conclude(running, next, 0, at(4)))
		got := Read(ended)
		if got.Last != nil || got.Ended != Failed || mapAt(ended, "ansible")[nextRetry] != nil {
			t.Errorf("%s form of an ended run: %v", name, ended)
		}
		if got := Read(form(before, Hold(before, 2, "changed", time.Time{}, nil, at(3)))); got.Last == nil {
			t.Errorf("%s form of a held run has lost the record of the last one", name)
		}
	}
	if got := Minimal(before, Conclude(before, next, 0, at(4)))["observedGeneration"]; got != int64(2) {
		t.Errorf("observed generation %v, want that of the conditions", got)
	}
}

// A run that differs only in ID, cause and time says nothing new. One that has changed something does.
func TestRepeats(t *testing.T) {
	run := Run{
		ID: "11111111-1111-1111-1111-111111111111", Cause: "created", Generation: 1, Result: Succeeded, Reason: "Succeeded",
		Started: time.Unix(10, 0), Finished: time.Unix(11, 0), Counts: Counts{OK: 2},
	}
	before := Conclude(Begin(nil, Active{}, false, run.Started), run, 0, run.Finished)
	run.ID, run.Cause, run.Started, run.Finished = "22222222-2222-2222-2222-222222222222", "period", time.Unix(20, 0), time.Unix(22, 0)
	if after := Conclude(before, run, 0, run.Finished); !Repeats(before, after) {
		t.Errorf("the same again counts as new: %v, %v", before, after)
	}
	for name, change := range map[string]func(*Run){
		"changed": func(r *Run) { r.Counts.Changed = 1 }, "generation": func(r *Run) { r.Generation = 2 }, "warning": func(r *Run) { r.Warnings = []string{"x"} },
		"failed": func(r *Run) { r.Result = Failed },
	} {
		next := run
		change(&next)
		if Repeats(before, Conclude(before, next, 0, next.Finished)) {
			t.Errorf("%s: counts as the same", name)
		}
	}
}

// A merge patch removes what a run in progress no longer has.
func TestProgress_RemovesWhatIsOver(t *testing.T) {
	active := Progress(Active{ID: "1", TasksStarted: 2, Task: Task{Name: "b"}})["ansible"].(map[string]any)[partActive].(map[string]any)
	for _, m := range []struct {
		of  map[string]any
		key string
	}{{active, "waiting"}, {active["task"].(map[string]any), "role"}, {active["task"].(map[string]any), "host"}, {active["task"].(map[string]any), "path"}} {
		if is, has := m.of[m.key]; !has || is != nil {
			t.Errorf("%s is %v (%t), want null", m.key, is, has)
		}
	}
}
