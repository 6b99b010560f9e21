package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// Another controller reverts what each run does. After ten runs, the object says so, and further changes wait.
func TestLoops_AreSlowedDown(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
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
	want := fmt.Sprintf("# HELP rolewright_loops_total Runs started by changes of other clients or of the object's own role, counted from the tenth such run in a row.\n"+
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

// A role that changes the spec of its own object in each run is slowed down too, or its annotations if they are inputs, and
// the object says so. Edits by others are never slowed down, and do not count if they come while such a role runs.
func TestLoops_OfOneRole(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var mu sync.Mutex
	runs := map[string]int{}
	ran := func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return runs[name]
	}
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		name := nameIn(req)
		mu.Lock()
		runs[name]++
		n := runs[name]
		mu.Unlock()
		set := func(c client.Client, patch string) error {
			return c.Patch(ctx, object(gvk, ns, name, nil), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, patch, n)))
		}
		own, err := asRun(req)
		err = errors.Join(err, os.MkdirAll(filepath.Join(req.Dir, "artifacts", req.ID), 0o700)) // what is remembered of the run
		if name == "edited" && n <= loopRuns+2 {
			err = errors.Join(err, set(c, `{"spec":{"edit":%d}}`))
		}
		if err == nil && (name == "edited" && n <= loopRuns+2 || name == "alone" && n <= loopRuns+1) {
			err = set(own, `{"spec":{"n":%d}}`)
		}
		if err == nil && name == "stamped" && n <= loopRuns+1 {
			err = set(own, `{"metadata":{"annotations":{"n":"%d"}}}`)
		}
		return succeeded(), err
	}}
	w := watchOf(gvk)
	w.WatchAnnotationsChanges = true
	start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
	alone, edited := create(t, c, object(gvk, ns, "alone", nil)), create(t, c, object(gvk, ns, "edited", nil))
	stamped := create(t, c, object(gvk, ns, "stamped", nil))
	eventually(t, "the object says so", func() bool {
		looping := condition(get(t, c, alone), status.Looping)
		text := fmt.Sprint(looping["message"])
		return looping["status"] == "True" && strings.Contains(text, "10 times in a row because its own role changes it, the last time: ") && strings.Contains(text, "spec.n")
	})
	eventually(t, "the other one has run for each edit", func() bool { return ran("edited") == loopRuns+3 })
	eventually(t, "the one whose annotations change says so, too", func() bool {
		return strings.Contains(fmt.Sprint(condition(get(t, c, stamped), status.Looping)["message"]), "its own role changes it")
	})
	for name, o := range map[string]*unstructured.Unstructured{"alone": alone, "stamped": stamped} {
		must.Be(t, "runs before it waits", loopRuns+1, ran(name))
		update(t, c, o, func(o map[string]any) {
			if name == "stamped" {
				_ = unstructured.SetNestedField(o, "b", "metadata", "annotations", "a")
			} else {
				o["spec"] = map[string]any{"a": "b"}
			}
		})
		eventually(t, "an edit starts a run at once", func() bool {
			return ran(name) == loopRuns+2 && len(condition(get(t, c, o), status.Looping)) == 0
		})
	}
	must.Be(t, "Looping of the one that is edited", 0, len(condition(get(t, c, edited), status.Looping)))
}

// Only runs count that were started by others' changes, and that follow each other closely.
func TestLoops_AreRunsInARow(t *testing.T) {
	at := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	n := 0
	var last *status.Run
	for i, step := range []struct {
		cause  cause
		result status.Result
		pause  time.Duration
		want   int
		own    bool
	}{
		{causeCreated, status.Succeeded, 0, 0, false},
		{causeDependent, status.Succeeded, time.Second, 1, false},
		{causeDependent, status.Succeeded, loopPause, 2, false},
		{causeDependent, status.Succeeded, 3 * loopPause, 1, false},
		{causeReference, status.Succeeded, time.Second, 2, false}, {causeTrigger, status.Succeeded, time.Second, 3, false},
		{causeReference, status.Failed, time.Second, 4, false}, {causeTrigger, status.Failed, time.Second, 5, false},
		{causeRetry, status.Failed, time.Second, 0, false},
		{causeDependent, status.Failed, time.Second, 1, false},
		{causeDependent, status.Interrupted, time.Second, 0, false},
		{causeDependent, status.Succeeded, time.Second, 1, false},
		{causeChanged, status.Succeeded, time.Second, 0, false},
		{causeChanged, status.Succeeded, time.Second, 1, true}, {causeChanged, status.Failed, time.Second, 2, true}, {causeDependent, status.Succeeded, time.Second, 3, true},
	} {
		at = at.Add(step.pause)
		run := status.Run{Cause: string(step.cause), Result: step.result, Started: at, Finished: at}
		n = loops(n, last, run, step.own, false)
		must.Be(t, string(step.cause), step.want, n)
		if last = &run; i == 0 {
			must.Be(t, "without a run before", 1, loops(0, nil, status.Run{Cause: string(causeDependent), Result: status.Succeeded}, false, false))
		}
	}
}

// A periodic run that finds such a change does not reset the count. Otherwise the loop would begin again in each period.
func TestLoops_OutliveRunsByTime(t *testing.T) {
	for c, want := range map[cause]int{causePeriod: loopRuns, causeRetry: loopRuns, causeManual: 0, causeContent: 0} {
		run := status.Run{Cause: string(c), Result: status.Succeeded}
		must.Be(t, "after "+string(c), want, loops(loopRuns, &status.Run{}, run, false, true))
		must.Be(t, "where nothing was changed, after "+string(c), 0, loops(loopRuns, &status.Run{}, run, false, false))
	}
}

// Objects in another namespace may name an owner that their writers may not touch. Their changes are counted separately,
// so that changes of what the owner has in its own namespace do not wait for them, and do not count as a loop because of
// the runs between them.
func TestLoops_CountOtherNamespacesApart(t *testing.T) {
	at := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	m := &memory{}
	run := func(pause time.Duration, why cause, changed, otherNamespace bool) int {
		at = at.Add(pause)
		is := status.Run{Cause: string(why), Result: status.Succeeded, Started: at, Finished: at}
		n := m.countLoops(is, false, changed, otherNamespace)
		m.last = &is
		return n
	}
	for n := range loopRuns {
		must.Be(t, "runs in a row for another namespace", n+1, run(time.Second, causeDependent, false, true))
	}
	for range loopRuns {
		for range 12 {
			run(loopPause, causeDependent, false, true)
		}
		must.Be(t, "runs in a row, one an hour", 1, run(time.Second, causeDependent, true, false))
	}
	must.Be(t, "runs in a row for the namespace itself", 2, run(time.Second, causeDependent, true, false))
	r := &reconciler{objects: newObjects(), opts: &Options{}}
	s := &scope{memory: m, object: object(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "ns", "one", nil)}
	s.key = client.ObjectKeyFromObject(s.object)
	r.objects.noteDependentChange(s.key, "", "configmaps elsewhere/one was changed", true, at)
	must.Be(t, "what the pause goes by", true, r.situation(s).effects >= loopRuns)
	r.objects.noteDependentChange(s.key, "", "configmaps ns/one was changed", false, at)
	must.Be(t, "what the pause goes by with a change in the namespace", 2, r.situation(s).effects)
	run(time.Second, causeChanged, true, false)
	must.Be(t, "both after another cause", 0, m.loops+m.otherNamespaceLoops)
}
