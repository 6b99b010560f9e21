package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// Another controller changes back what each run does: after ten runs the object says so, and
// further changes wait.
func TestLoops_AreSlowedDown(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns, c := testenv.Namespace(t, cfg), clientOf(t, cfg)
	gvk := testenv.CRD(t, cfg)
	child := configMap(ns, "child")
	exec := writing(child)
	reg := prometheus.NewRegistry()
	opts := owning(watchOf(gvk))
	opts.Metrics = must.Get(metrics.New(reg))(t)
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "one", nil))
	awaitCondition(t, c, obj, status.Ready, "True")
	o.awaitWatch("configmaps.v1.")
	for n := range loopRuns {
		update(t, c, child, func(o map[string]any) { o["data"] = map[string]any{"key": fmt.Sprint(n)} })
		eventually(t, "a run for the change", func() bool {
			return exec.count() == n+2 && !hasActiveRun(get(t, c, obj).Object["status"].(map[string]any))
		})
	}
	eventually(t, "the object says so", func() bool {
		is := get(t, c, obj)
		looping := condition(is, status.Looping)
		text := fmt.Sprint(looping["message"])
		return looping["status"] == "True" && strings.Contains(text, "10 times in a row") && strings.Contains(text, "configmaps "+ns+"/child was changed") &&
			strings.Contains(fmt.Sprint(is.Object["status"].(map[string]any)["ansible"]), text)
	})
	awaitEvents(t, c, ns, status.ReasonLoop)
	want := fmt.Sprintf("# HELP rolewright_loops_total Runs of a loop: that changes by others have started, after ten such runs of the object in a row.\n"+
		"# TYPE rolewright_loops_total counter\nrolewright_loops_total{group=%q,kind=%q,version=%q} 1\n", gvk.Group, gvk.Kind, gvk.Version)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "rolewright_loops_total"); err != nil {
		t.Error(err)
	}
	update(t, c, child, func(o map[string]any) { o["data"] = map[string]any{"key": "again"} })
	quiet(t, exec, loopRuns+1, "the next change waits")
	update(t, c, obj, func(o map[string]any) { o["spec"] = map[string]any{"a": "b"} })
	eventually(t, "another cause ends it", func() bool {
		is := get(t, c, obj)
		return exec.count() == loopRuns+2 && !hasActiveRun(is.Object["status"].(map[string]any)) && len(condition(is, status.Looping)) == 0
	})
}

// Only runs count that changes by others have started, one soon after the other.
func TestLoops_AreRunsInARow(t *testing.T) {
	at := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	n := 0
	var last *status.Run
	for i, step := range []struct {
		cause  cause
		result status.Result
		pause  time.Duration
		want   int
	}{
		{causeCreated, status.Succeeded, 0, 0},
		{causeDependent, status.Succeeded, time.Second, 1},
		{causeDependent, status.Succeeded, loopPause, 2},
		{causeDependent, status.Succeeded, 3 * loopPause, 1},
		{causeReference, status.Succeeded, time.Second, 2}, {causeTrigger, status.Succeeded, time.Second, 3},
		{causeReference, status.Failed, time.Second, 4}, {causeTrigger, status.Failed, time.Second, 5},
		{causeRetry, status.Failed, time.Second, 0},
		{causeDependent, status.Failed, time.Second, 1},
		{causeDependent, status.Interrupted, time.Second, 0},
		{causeDependent, status.Succeeded, time.Second, 1},
		{causeChanged, status.Succeeded, time.Second, 0},
	} {
		at = at.Add(step.pause)
		run := status.Run{Cause: string(step.cause), Result: step.result, Started: at, Finished: at}
		n = loops(n, last, run)
		must.Be(t, string(step.cause), step.want, n)
		if last = &run; i == 0 {
			must.Be(t, "without a run before", 1, loops(0, nil, status.Run{Cause: string(causeDependent), Result: status.Succeeded}))
		}
	}
}
