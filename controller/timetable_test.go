package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/calendar"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func expression(t *testing.T, text string) *calendar.Cron {
	t.Helper()
	return must.Get(calendar.Parse(text))(t)
}

// What a schedule starts, and what maintenance windows hold back.
func TestDecide_Schedule(t *testing.T) {
	now := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	const fp = "same"
	day := timetable{cron: expression(t, "0 3 * * *"), zone: time.UTC}
	late := day
	late.delay = 10 * time.Hour
	closed := timetable{windows: []calendar.Window{{Start: expression(t, "0 22 * * *"), Duration: 4 * time.Hour}}, zone: time.UTC}
	open := timetable{windows: []calendar.Window{{Start: expression(t, "0 11 * * *"), Duration: 4 * time.Hour}}, zone: time.UTC}
	night := closed
	night.cron = day.cron
	opens := now.Add(10 * time.Hour)
	held := func(c cause, wait time.Duration) plan { return plan{held: c, until: opens, wait: wait} }
	ago := func(started time.Duration, edit ...func(*status.Run)) *status.Run {
		r := &status.Run{ID: "id", Cause: "changed", Generation: 1, Fingerprint: fp, Result: status.Succeeded, Started: now.Add(-started), Finished: now.Add(-started).Add(time.Minute), Attempts: 1}
		for _, e := range edit {
			e(r)
		}
		return r
	}
	failed := func(r *status.Run) { r.Result = status.Failed }
	other := func(r *status.Run) { r.Fingerprint = "other" }
	requeue := func(d time.Duration) func(*status.Run) { return func(r *status.Run) { r.RequeueAfter = d } }
	for name, tc := range map[string]struct {
		in   situation
		want plan
	}{
		"ran since it fired":                    {situation{last: ago(8 * time.Hour), times: day}, plan{wait: 15 * time.Hour}},
		"fired since":                           {situation{last: ago(10 * time.Hour), times: day}, plan{cause: causeSchedule}},
		"fired during the last run":             {situation{last: ago(9*time.Hour + time.Second), times: day}, plan{cause: causeSchedule}},
		"a run at the very moment":              {situation{last: ago(9 * time.Hour), times: day}, plan{wait: 15 * time.Hour}},
		"fired often while no operator was up":  {situation{last: ago(240 * time.Hour), times: day}, plan{cause: causeSchedule}},
		"the object's delay is not over":        {situation{last: ago(20 * time.Hour), times: late}, plan{wait: time.Hour}},
		"ran within the object's delay":         {situation{last: ago(8 * time.Hour), times: late}, plan{wait: time.Hour}},
		"the clock went back":                   {situation{last: ago(-100 * time.Hour), times: day}, plan{wait: 15 * time.Hour}},
		"a shorter period":                      {situation{last: ago(8 * time.Hour), times: day, period: time.Hour}, plan{cause: causePeriod}},
		"the role asked for a later run":        {situation{last: ago(10*time.Hour, requeue(100*time.Hour)), times: day}, plan{cause: causeSchedule}},
		"a retry waits for no schedule":         {situation{last: ago(10*time.Hour, failed), times: day}, plan{cause: causeRetry}},
		"stalled":                               {situation{last: ago(10*time.Hour, failed, func(r *status.Run) { r.Permanent = true }), times: day}, plan{wait: time.Minute}},
		"checks":                                {situation{last: ago(10 * time.Hour), times: day, mode: watches.ModeCheckThenApply}, plan{cause: causeSchedule, check: true}},
		"paused":                                {situation{last: ago(10 * time.Hour), times: day, paused: forEver()}, plan{held: causeSchedule}},
		"window: fired":                         {situation{last: ago(10 * time.Hour), times: night}, held(causeSchedule, 10*time.Hour)},
		"window: not fired yet":                 {situation{last: ago(8 * time.Hour), times: night}, plan{wait: 15 * time.Hour}},
		"window: period":                        {situation{last: ago(8 * time.Hour), times: closed, period: time.Hour}, held(causePeriod, 10*time.Hour)},
		"window: open":                          {situation{last: ago(8 * time.Hour), times: open, period: time.Hour}, plan{cause: causePeriod}},
		"window: content":                       {situation{last: ago(time.Hour, other), times: closed}, held(causeContent, 10*time.Hour)},
		"window: content, paused":               {situation{last: ago(time.Hour, other), times: closed, paused: forEver()}, plan{held: causeContent}},
		"window: environment":                   {situation{last: ago(time.Hour, other), times: closed, environment: true}, held(causeEnvironment, 10*time.Hour)},
		"window: content, open":                 {situation{last: ago(time.Hour, other), times: open}, plan{cause: causeContent}},
		"window: content, and annotations":      {situation{last: ago(time.Hour, other), times: closed, ofObject: true}, plan{cause: causeContent}},
		"window: content, and a dependent":      {situation{last: ago(time.Hour, other), times: closed, dependent: true}, plan{cause: causeDependent}},
		"window: content, a failure to repeat":  {situation{last: ago(time.Hour, other, failed), times: closed}, plan{cause: causeRetry}},
		"window: content, and asked for":        {situation{last: ago(time.Hour, other), times: closed, requested: "b"}, plan{cause: causeManual}},
		"window: period, the role asked for":    {situation{last: ago(8*time.Hour, requeue(9*time.Hour)), times: night, period: time.Minute}, plan{wait: time.Hour + time.Minute}},
		"window: schedule, the role asked for":  {situation{last: ago(10*time.Hour, requeue(11*time.Hour)), times: night}, held(causeSchedule, time.Hour+time.Minute)},
		"window: spec":                          {situation{last: ago(time.Hour, other, func(r *status.Run) { r.Generation = 0 }), times: closed}, plan{cause: causeChanged}},
		"window: reference":                     {situation{last: ago(time.Hour, other), times: closed, others: causeReference}, plan{cause: causeReference}},
		"window: new":                           {situation{times: closed}, plan{cause: causeCreated}},
		"window: a restart":                     {situation{times: closed, firstSeen: &firstSeen{generation: 1}}, plan{held: causeRestart, until: now.Add(10 * time.Hour), wait: 10 * time.Hour}},
		"window: interrupted":                   {situation{last: ago(time.Hour, func(r *status.Run) { r.Result = status.Interrupted }), times: closed}, plan{cause: causeInterrupted}},
		"window: deleted":                       {situation{last: ago(time.Hour, other), times: closed, deleting: true}, plan{cause: causeDeleted}},
		"window: what a check has found":        {situation{last: ago(time.Hour, func(r *status.Run) { r.Mode, r.Drifted = status.ModeCheck, true }), times: closed, mode: watches.ModeCheckThenApply}, plan{cause: causeDrift}},
		"window: a check, no time to make it":   {situation{last: ago(8 * time.Hour), times: closed, period: time.Hour, mode: watches.ModeCheckThenApply}, held(causePeriod, 10*time.Hour)},
		"window: a dependent in a loop changes": {situation{last: ago(3 * time.Minute), times: closed, period: time.Minute, dependent: true, effects: loopRuns}, held(causePeriod, jitter(loopPause, "id")-2*time.Minute)},
	} {
		tc.in.fingerprint, tc.in.generation, tc.in.retry = fp, 1, retry{min: time.Second, max: time.Minute}
		if got := decide(now, tc.in); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// However often the operator restarts, there is one run for each firing, and one for all firings that were missed.
func TestDecide_ScheduleOverRestarts(t *testing.T) {
	uid := types.UID("7d3bd1ac-7b5b-4f6c-9d36-7e0c8a2f5d11")
	s := situation{fingerprint: "fp", generation: 1, retry: retry{min: time.Second, max: time.Minute}, times: timetableOf(watches.Schedule{
		Cron: expression(t, "0 3 * * *"), Jitter: 30 * time.Minute,
	}, uid)}
	delay := s.times.delay
	if delay <= 0 || delay > 30*time.Minute || delay%time.Second != 0 {
		t.Fatalf("the object's delay is %s", delay)
	}
	first := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s.last = &status.Run{ID: "id", Generation: 1, Fingerprint: "fp", Result: status.Succeeded, Started: first, Finished: first}
	down := func(at time.Time) bool { return at.Day() >= 4 && at.Day() < 7 || at.Day() == 9 && at.Hour() < 5 } // and again
	var runs []string
	for at := first; at.Day() < 12; {
		if down(at) {
			at = at.Add(time.Hour)
			continue
		}
		p := decide(at, s)
		if p.cause != "" {
			runs = append(runs, fmt.Sprintf("%s %s", p.cause, at.Add(-delay).Truncate(time.Hour).Format("02T15:04")))
			s.last = &status.Run{ID: "id", Generation: 1, Fingerprint: "fp", Result: status.Succeeded, Started: at, Finished: at.Add(time.Minute)}
			continue // another operator process, which knows only the record
		}
		at = at.Add(min(p.wait, time.Hour))
	}
	must.Be(t, "runs", []string{
		"schedule 02T03:00", "schedule 03T03:00", "schedule 07T00:00", "schedule 07T03:00", "schedule 08T03:00", "schedule 09T05:00",
		"schedule 10T03:00", "schedule 11T03:00",
	}, runs)
}

// A run that was recorded by a clock that was ahead delays the next run by one whole interval at most.
func TestRecall_OfARunInTheFuture(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ahead := now.Add(48 * time.Hour)
	for name, tc := range map[string]struct {
		last status.Run
		want time.Duration
	}{
		"period": {status.Run{Result: status.Succeeded}, time.Hour},
		"parked": {status.Run{Result: status.Succeeded, Wait: &status.Wait{Since: ahead, Until: ahead.Add(time.Minute)}}, time.Minute},
	} {
		last := tc.last
		last.ID, last.Fingerprint, last.Generation, last.Started, last.Finished = "id", "fp", 1, ahead.Add(-time.Minute), ahead
		m := &memory{}
		m.recall(status.Record{Last: &last}, now)
		at := now
		for p := decide(at, situation{last: m.last, fingerprint: "fp", generation: 1, period: time.Hour}); p.cause == ""; {
			at = at.Add(p.wait)
			p = decide(at, situation{last: m.last, fingerprint: "fp", generation: 1, period: time.Hour})
		}
		if waited := at.Sub(now); waited < tc.want/2 || waited > tc.want*3/2 {
			t.Errorf("%s: the next run starts after %s", name, waited)
		}
	}
}

// yearly returns a schedule that fires once a year, at the minute of at.
func yearly(t *testing.T, at time.Time) *calendar.Cron {
	t.Helper()
	at = at.UTC()
	return expression(t, fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month()))
}

// After a missed firing, an object runs once. A changed watch waits for the window and says until when; a change by the
// object's user does not wait.
func TestSchedule_MissedFiringsAndWindows(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, cfg, &fakeExecutor{}, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	awaitCondition(t, c, obj, status.Ready, "True")
	o.stop()
	updateStatus(t, c, obj, func(st map[string]any) {
		last := st["ansible"].(map[string]any)["lastRun"].(map[string]any)
		for _, field := range []string{"started", "finished"} {
			last[field] = time.Now().Add(-72 * time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		}
		for _, cond := range st["conditions"].([]any) {
			delete(cond.(map[string]any), "ansibleResult") // a later end would be that of a run of ansible-operator
		}
	})
	lastCause := func() string {
		last, _ := lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return last.Cause
	}

	scheduled := watches.Schedule{Cron: yearly(t, time.Now().Add(-24*time.Hour)), Windows: []calendar.Window{
		{Start: yearly(t, time.Now().Add(-240*time.Hour)), Duration: time.Minute},
	}}
	exec := &fakeExecutor{}
	opts.Watches = []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.Schedule = scheduled })}
	o = start(t, cfg, exec, opts)
	settle()
	must.Be(t, "runs while the window is closed", 0, exec.count())
	o.stop()
	withoutWindows := scheduled
	withoutWindows.Windows = nil
	opts.Watches = []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.Schedule = withoutWindows })}
	o = start(t, cfg, exec, opts)
	eventually(t, "the missed firing is made good", func() bool { return lastCause() == "schedule" })
	o.stop()
	o = start(t, cfg, exec, opts)
	settle()
	must.Be(t, "runs for one firing", 1, exec.count())
	o.stop()

	before := opts.Watches
	opts.Watches = []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Schedule, w.Vars = scheduled, map[string]any{"new": true}
	})}
	held := func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "MaintenanceWindow" }
	o = start(t, cfg, exec, opts)
	eventually(t, "the status says what waits", held)
	if said := condition(get(t, c, obj), status.Reconciling)["message"].(string); !strings.HasPrefix(said, "content: no run starts before the maintenance window opens at ") {
		t.Errorf("the status says %q", said)
	}
	writes := o.count("PATCH status")
	settle()
	must.Be(t, "more writes of it", writes, o.count("PATCH status"))
	must.Be(t, "runs outside the window", 1, exec.count())
	o.stop()

	opts.Watches, before = before, opts.Watches
	o = start(t, cfg, exec, opts)
	awaitCondition(t, c, obj, status.Reconciling, "False")
	must.Be(t, "runs of what was taken back", 1, exec.count())
	o.stop()

	opts.Watches = before
	start(t, cfg, exec, opts)
	eventually(t, "the status says it again", held)
	update(t, c, obj, func(is map[string]any) { is["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the changed object runs", func() bool { return lastCause() == "changed" })
	is := awaitCondition(t, c, obj, status.Reconciling, "False")

	e := Explain(is, before[0], opts, time.Now())
	if e.Firing == nil || e.Window == nil || !e.Window.After(time.Now()) || e.At == nil || e.At.Before(*e.Window) || len(e.Held) != 1 ||
		!strings.Contains(e.Held[0], "waits for the maintenance window then") || e.Cause != "schedule" {
		t.Errorf("explained: %+v", e)
	}
}

// A kind is served only while the API that its watch depends on is installed.
func TestKind_EnabledIf(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	api := testenv.CRD(t, cfg)
	crd := crdObject(t, c, api)
	must.Do(t, c.Delete(t.Context(), crd.DeepCopy()))
	eventually(t, "the API is gone", func() bool { return c.List(t.Context(), listOf(api)) != nil })
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.EnabledIf.APIs = append(w.EnabledIf.APIs, api)
	})}})
	waits := `"msg"="Waiting for an API to be installed that enabledIf of the watch names" "gvk"="` + gvk.String() + `" "api"="` + api.String() + `"`
	waiting := func(n int) {
		t.Helper()
		eventually(t, "the log says what is waited for", func() bool { return strings.Count(o.log(), waits) == n })
		if err := o.set.Ready(); err != nil {
			t.Errorf("the operator is not ready: %v", err)
		}
	}
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	waiting(1)
	settle()
	must.Be(t, "runs without the API", 0, exec.count())

	reinstall(t, c, crd)
	awaitCondition(t, c, obj, status.Ready, "True")

	must.Do(t, c.Delete(t.Context(), crdObject(t, c, api)))
	waiting(2)
	create(t, c, object(gvk, ns, "two", map[string]any{}))
	settle()
	must.Be(t, "runs with the API gone again", 1, exec.count())
}
