package controller

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// annotate replaces the annotations of obj with one.
func annotate(t *testing.T, c client.Client, obj *unstructured.Unstructured, name, value string) {
	t.Helper()
	update(t, c, obj, func(is map[string]any) {
		is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + name: value}
	})
}

// awaitGone waits until obj is gone.
func awaitGone(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	eventually(t, obj.GetName()+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
	})
}

// awaitStalled waits until obj has stalled for reason after this many runs, and checks that no run follows.
func awaitStalled(t *testing.T, c client.Client, exec *fakeExecutor, obj *unstructured.Unstructured, reason string, runs int) {
	t.Helper()
	eventually(t, "the object has stalled", func() bool {
		s := condition(get(t, c, obj), status.Stalled)
		return exec.count() == runs && s["status"] == "True" && s["reason"] == reason
	})
	quiet(t, exec, runs, "a stalled object is not run")
	is := get(t, c, obj)
	if next, there, _ := unstructured.NestedString(is.Object, "status", "ansible", "nextRetry"); there {
		t.Errorf("a stalled object is to run at %s", next)
	}
}

// After the last attempt, only a change or a request starts a run; a restart of the operator does not. A request is one
// attempt. With other inputs, the count starts again.
func TestStall_AfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) { return failed("the disk is full"), nil }}
	period := time.Second
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Retry.MaxAttempts, w.ReconcilePeriod = 2, &period
	})}}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	awaitStalled(t, c, exec, obj, "RetriesExhausted", 2)
	o.stop()
	start(t, cfg, exec, opts)
	annotate(t, c, obj, "reconcile-at", "a")
	awaitStalled(t, c, exec, obj, "RetriesExhausted", 3)
	awaitEvents(t, c, ns, "RetriesExhausted", "TaskFailed")
	update(t, c, obj, func(is map[string]any) { is["spec"] = map[string]any{"size": int64(2)} })
	awaitStalled(t, c, exec, obj, "RetriesExhausted", 5)
}

// A fault that must happen again with the same inputs is not retried, except once by each operator process, which may
// have come with what was missing.
func TestStall_AtAFaultOfTheContent(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		return runner.Result{ExitCode: 4, Status: "failed", Finished: time.Now(),
			Tail: "ERROR! couldn't resolve module/action 'a.b.c'. This often indicates a misspelling, missing collection, or incorrect module path.\n"}, nil
	}}
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	awaitStalled(t, c, exec, obj, string(runner.PlaybookInvalid), 1)
	update(t, c, obj, func(is map[string]any) { is["spec"] = map[string]any{"size": int64(2)} })
	awaitStalled(t, c, exec, obj, string(runner.PlaybookInvalid), 2)
	o.stop()
	start(t, cfg, exec, opts)
	awaitStalled(t, c, exec, obj, string(runner.PlaybookInvalid), 3)
}

// The run that the annotation cancel names is stopped, and not repeated until something changes, even if annotations are
// inputs. The ID of another run has no effect.
func TestCancel(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec, began := hanging()
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.WatchAnnotationsChanges = true })}})
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	id := (<-began).ID
	annotate(t, c, obj, "cancel", newUID())
	settle()
	if st, _ := get(t, c, obj).Object["status"].(map[string]any); !hasActiveRun(st) {
		t.Error("the ID of another run has stopped the run")
	}
	annotate(t, c, obj, "cancel", id)
	awaitStalled(t, c, exec, obj, status.ReasonCancelled, 1)
	last, _ := lastRun(get(t, c, obj).Object["status"].(map[string]any))
	message, _ := condition(get(t, c, obj), status.Ready)["message"].(string)
	if last.ID != id || last.Result != status.Failed || !strings.Contains(message, "it was cancelled: the annotation rolewright.dev/cancel names this run") || !strings.Contains(message, "Wait for nothing") {
		t.Errorf("record = %+v, message = %q", last, message)
	}
	update(t, c, obj, func(is map[string]any) { is["spec"] = map[string]any{"size": int64(2)} })
	if second := <-began; second.ID == id {
		t.Error("the second run is the first")
	}
}

// finalizing returns an executor whose finalizer runs call do.
func finalizing(do func(ctx context.Context, n int64, req runner.Request) (runner.Result, error)) (*fakeExecutor, *atomic.Int64) {
	var farewells atomic.Int64
	return &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if !strings.HasSuffix(req.Content.Role, "/finalizer") {
			return succeeded(), nil
		}
		return do(ctx, farewells.Add(1), req)
	}}, &farewells
}

// A cancelled finalizer run is repeated. It never removes the finalizer, whatever onFailure says.
func TestCancel_AFinalizerRunIsRepeated(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	began := make(chan string, 1)
	exec, farewells := finalizing(func(ctx context.Context, n int64, req runner.Request) (runner.Result, error) {
		if n > 1 {
			return succeeded(), nil
		}
		began <- req.ID
		<-ctx.Done()
		return cutShort(ctx, req, jobevent.Task{})
	})
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer, func(w *watches.Watch) {
		w.Finalizer.OnFailure, w.Retry.MaxAttempts = watches.OnFailureOrphan, 1
	})}})
	obj := create(t, c, object(gvk, ns, "it", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	annotate(t, c, obj, "cancel", <-began)
	awaitGone(t, c, obj)
	if n := farewells.Load(); n != 2 {
		t.Errorf("%d finalizer runs, want 2", n)
	}
}

// With onFailure: orphan, an object is deleted after the allowed number of failures. Otherwise it stays until its
// finalizer is removed by hand.
func TestOrphan(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		onFailure watches.OnFailure
		runs      int64 // of the finalizer, at least
		events    []string
		changes   bool // its own object
	}{
		"orphan":  {watches.OnFailureOrphan, 2, []string{"Orphaned", "TaskFailed"}, false},
		"changes": {watches.OnFailureOrphan, 2, []string{"Orphaned", "TaskFailed"}, true},
		"retry":   {watches.OnFailureRetry, 4, []string{"TaskFailed"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			exec, farewells := finalizing(func(ctx context.Context, n int64, req runner.Request) (runner.Result, error) {
				if run, err := asRun(req); err != nil {
					return runner.Result{}, err
				} else if patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"farewells":%d}}`, n)); tt.changes {
					return failed("the bucket is not empty"), run.Patch(ctx, object(gvk, ns, "it", nil), patch)
				}
				return failed("the bucket is not empty"), nil
			})
			o := start(t, cfg, exec, Options{RetryMin: 50 * time.Millisecond, RetryMax: 200 * time.Millisecond, Watches: []watches.Watch{
				watchOf(gvk, withFinalizer, func(w *watches.Watch) { w.Finalizer.OnFailure, w.Retry.MaxAttempts = tt.onFailure, 2 }),
			}})
			obj := create(t, c, object(gvk, ns, "it", map[string]any{}))
			awaitCondition(t, c, obj, status.Ready, "True")
			must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
			eventually(t, "the finalizer runs", func() bool { return farewells.Load() >= tt.runs })
			said := "Finalizer run has failed too often"
			if tt.onFailure == watches.OnFailureRetry {
				get(t, c, obj) // the object must still exist
				said = "because of the annotation rolewright.dev/orphan"
				annotate(t, c, obj, "orphan", "true")
			}
			awaitGone(t, c, obj)
			if n := farewells.Load(); n > tt.runs && tt.onFailure == watches.OnFailureOrphan || !strings.Contains(o.log(), said) {
				t.Errorf("%d finalizer runs; the log should say %q", n, said)
			}
			awaitEvents(t, c, ns, tt.events...)
		})
	}
}
