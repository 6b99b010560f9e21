package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// A pause lets the run in progress end and no other run begin, neither for changes nor after a restart. When it is over,
// the object runs once for all changes. An object that is deleted is finalized even during a pause.
func TestPause_FinishesTheRunAndBeginsNone(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	release := make(chan struct{})
	exec := until(release)
	opts := Options{
		RunnerRoot: t.TempDir() + "/runner",
		Watches: []watches.Watch{watchOf(gvk, withFinalizer, func(w *watches.Watch) {
			period := time.Second
			w.ReconcilePeriod = &period
		})},
	}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	eventually(t, "the run is in progress", func() bool { return exec.count() == 1 })
	edit := func(size int64, annotations map[string]any) {
		t.Helper()
		update(t, c, obj, func(is map[string]any) {
			is["metadata"].(map[string]any)["annotations"] = annotations
			is["spec"] = map[string]any{"size": size}
		})
	}
	paused := map[string]any{ownPrefix + "paused": "true"}
	edit(2, paused)
	close(release)
	held := func(size int64) {
		t.Helper()
		eventually(t, "the status says what is held back", func() bool {
			is := get(t, c, obj)
			r := condition(is, status.Reconciling)
			return r["reason"] == "Paused" && r["observedGeneration"] == is.GetGeneration() && is.Object["spec"].(map[string]any)["size"] == size
		})
		settle()
		if n := exec.count(); n != 1 {
			t.Fatalf("%d runs, want the one in progress", n)
		}
		is := get(t, c, obj)
		if last, _ := lastRun(is.Object["status"].(map[string]any)); last.Result != status.Succeeded || last.Generation != 1 {
			t.Errorf("the run in progress ended as %+v", last)
		}
	}
	held(2)
	edit(4, paused)
	held(4)
	o.stop()
	o = start(t, cfg, exec, opts)
	held(4)
	writes := o.count("PATCH status")
	settle()
	if more := o.count("PATCH status") - writes; more > 0 {
		t.Errorf("%d more writes of a status that says it already", more)
	}
	if reads := o.count("GET custom resource"); reads > 0 {
		t.Errorf("%d reads of an object whose status says already what is held back", reads)
	}

	edit(3, nil)
	awaitCondition(t, c, obj, status.Ready, "True")
	awaitCondition(t, c, obj, status.Reconciling, "False")

	ran := exec.count()
	edit(3, paused)
	eventually(t, "the pause is known", func() bool {
		before := exec.count()
		settle()
		return exec.count() == before
	})
	if ran == 1 {
		t.Error("what changed was not run")
	}
	edit(3, map[string]any{ownPrefix + "paused": "true", ownPrefix + "reconcile-at": "now"})
	eventually(t, "the status says that the run that was asked for is held back", func() bool {
		return strings.HasPrefix(fmt.Sprint(condition(get(t, c, obj), status.Reconciling)["message"]), "manual: the object has the annotation \"paused\"")
	})
	edit(3, map[string]any{ownPrefix + "paused": "true", ownPrefix + "pause-deletion": "true"})
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	eventually(t, "the status says that the deletion is held back", func() bool {
		return strings.HasPrefix(fmt.Sprint(condition(get(t, c, obj), status.Reconciling)["message"]), "deleted: the object has the annotation \"paused\"; no run starts")
	})
	edit(3, paused)
	eventually(t, "the object is finalized", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
	})
}

// A pause with a time ends by itself. Changes that were reverted meanwhile do not run.
func TestPause_HoldsPruneOnDeleteBack(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	child := configMap(testenv.Namespace(t, cfg), "child")
	reg := prometheus.NewPedanticRegistry()
	opts := owning(watchOf(gvk, func(w *watches.Watch) { w.PruneOnDelete = true }))
	opts.Metrics = must.Get(metrics.New(reg))(t)
	start(t, cfg, writing(child), opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	update(t, c, obj, func(is map[string]any) {
		is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "paused": "true", ownPrefix + "pause-deletion": "true"}
	})
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	eventually(t, "the status says what is held back", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	settle()
	get(t, c, child)
	must.Be(t, "age of a deletion that is paused", 0.0, gauge(t, reg, "rolewright_deletion_oldest_seconds"))
	annotate(t, c, obj, "paused", "false")
	for _, gone := range []*unstructured.Unstructured{obj, child} {
		eventually(t, gone.GetKind()+" is gone", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(gone), gone.DeepCopy()))
		})
	}
}

func TestPause_EndsByItself(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	began := make(chan time.Time, 16)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		began <- time.Now()
		return succeeded(), nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := object(gvk, ns, "it", map[string]any{"size": int64(1)})
	obj.SetAnnotations(map[string]string{ownPrefix + "paused": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	create(t, c, obj)
	eventually(t, "it is held back", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	if n := exec.count(); n != 0 {
		t.Errorf("%d runs of a paused object", n)
	}

	pause := func(size int64, end time.Time) {
		update(t, c, obj, func(is map[string]any) {
			is["spec"] = map[string]any{"size": size}
			is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "paused": end.UTC().Format(time.RFC3339)}
		})
	}
	end := time.Now().Add(3 * time.Second).Truncate(time.Second)
	pause(1, end)
	awaitCondition(t, c, obj, status.Ready, "True")
	if at := <-began; at.Before(end) {
		t.Errorf("a run began at %s, within the pause until %s", at, end)
	}

	pause(2, time.Now().Add(time.Hour))
	eventually(t, "the change is held back", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	pause(1, time.Now().Add(-time.Hour))
	awaitCondition(t, c, obj, status.Reconciling, "False")
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1: the change was undone during the pause", n)
	}
}

// If a paused change of a stalled object is reverted, the status no longer mentions it.
func TestPause_OfAStalledObject(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) { return failed("the disk is full"), nil }}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.Retry.MaxAttempts = 1 })}})
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	awaitStalled(t, c, exec, obj, "RetriesExhausted", 1)
	edit := func(size int64, annotations map[string]any) {
		update(t, c, obj, func(is map[string]any) {
			is["spec"] = map[string]any{"size": size}
			is["metadata"].(map[string]any)["annotations"] = annotations
		})
	}
	edit(2, map[string]any{ownPrefix + "paused": "true"})
	eventually(t, "the change is held back", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	edit(1, nil)
	eventually(t, "the failure is what is said", func() bool {
		is := get(t, c, obj)
		r, observed := condition(is, status.Reconciling), is.Object["status"].(map[string]any)["observedGeneration"]
		return r["status"] == "False" && r["reason"] == "RunFailed" && observed == is.GetGeneration()
	})
	awaitStalled(t, c, exec, obj, "RetriesExhausted", 1)
}

// A pause that cannot be read counts as a pause, and the status says what to fix.
func TestPause_ThatCannotBeReadHolds(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := object(gvk, ns, "it", map[string]any{"size": int64(1)})
	obj.SetAnnotations(map[string]string{ownPrefix + "paused": "yes"})
	create(t, c, obj)
	eventually(t, "it is held back", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	warnings, _, _ := unstructured.NestedStringSlice(get(t, c, obj).Object, "status", "ansible", "warnings")
	want := `annotation rolewright.dev/paused: "yes" is neither "true" nor a time, write for example "2026-05-06T18:00:00Z"; the object is paused until it is corrected`
	if len(warnings) != 1 || warnings[0] != want {
		t.Errorf("warnings = %q", warnings)
	}
	settle()
	if n := exec.count(); n != 0 {
		t.Errorf("%d runs of a paused object", n)
	}
	update(t, c, obj, func(is map[string]any) { delete(is["metadata"].(map[string]any), "annotations") })
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if warnings, _, _ := unstructured.NestedStringSlice(is.Object, "status", "ansible", "warnings"); len(warnings) > 0 {
		t.Errorf("warnings that are not true any more: %q", warnings)
	}
}

// If the status may not be written, that is not an error of the paused objects. The log says so once for each, and the
// status says what holds them back once it can be written.
func TestPause_TheStatusIsRefused(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var open atomic.Bool
	var tries atomic.Int64
	faulty := refusing(cfg, http.StatusForbidden, func(req *http.Request) bool {
		if writesStatus(req) {
			tries.Add(1)
		}
		return !open.Load() && writesStatus(req)
	})
	o := start(t, faulty, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk)}, RetryMin: 10 * time.Millisecond, RetryMax: 500 * time.Millisecond})
	obj := object(gvk, ns, "it", map[string]any{})
	obj.SetAnnotations(map[string]string{ownPrefix + "paused": "true"})
	began := time.Now()
	create(t, c, obj)
	eventually(t, "the status is tried again", func() bool { return tries.Load() > 2 })
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was tried three times in %s", took)
	}
	must.Be(t, "lines", 1, strings.Count(o.log(), "Status is refused"))
	must.Be(t, "lines", 1, strings.Count(o.log(), "A run is held back"))
	must.Be(t, "errors", 0, strings.Count(o.log(), "Reconciler error"))
	open.Store(true)
	awaitCondition(t, c, obj, status.Reconciling, "True")
}
