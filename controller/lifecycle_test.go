package controller

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// There is one worker for all objects. The failing object is due again at once, every time.
func TestReconcile_AFinalizerThatFailsForEverHoldsUpNobody(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var fixed atomic.Bool
	var farewells atomic.Int64
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.HasSuffix(req.Content.Role, "/finalizer") && strings.Contains(string(req.ExtraVars), `"name": "stuck"`) {
			farewells.Add(1)
			if !fixed.Load() {
				return failed("the bucket is not empty"), nil
			}
		}
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, Options{RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.MaxConcurrentReconciles = 1
		withFinalizer(w)
	})}})
	stuck := create(t, c, object(gvk, ns, "stuck", map[string]any{}))
	awaitCondition(t, c, stuck, status.Ready, "True")
	must.Do(t, c.Delete(t.Context(), stuck.DeepCopy()))
	eventually(t, "many failures", func() bool { return farewells.Load() >= 20 })
	for i := range 10 {
		other := create(t, c, object(gvk, ns, fmt.Sprintf("other-%d", i), map[string]any{}))
		awaitCondition(t, c, other, status.Ready, "True")
	}
	eventually(t, "more failures", func() bool { return farewells.Load() >= 100 })
	is := get(t, c, stuck)
	last, _ := lastRun(is.Object["status"].(map[string]any))
	if last.Result != status.Failed || last.Attempts < 50 || !strings.Contains(fmt.Sprint(condition(is, status.Failure)["message"]), "the bucket is not empty") {
		t.Errorf("record = %+v, Failure = %v", last, condition(is, status.Failure))
	}
	if writes, runs := o.count("PATCH status"), int64(exec.count()); writes > 2*runs+5 {
		t.Errorf("%d writes of the status for %d runs, want 2 each", writes, runs)
	}
	fixed.Store(true)
	eventually(t, "the object is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck.DeepCopy()))
	})
}

// Specs and statuses of every shape that a schema without types accepts.
func TestReconcile_ObjectsOfAnyShape(t *testing.T) {
	t.Parallel()
	cfg, _, gvk, ns := installed(t)
	raw := dynamic.NewForConfigOrDie(cfg).Resource(gvk.GroupVersion().WithResource("widgets")).Namespace(ns)
	shapes := map[string]any{
		"null": nil, "text": "text", "number": int64(7), "truth": true, "list": []any{"a", map[string]any{}}, "empty": map[string]any{},
	}
	for name, shape := range shapes {
		for _, field := range []string{"spec", "status"} {
			obj := object(gvk, ns, field+"-"+name, nil)
			obj.Object["spec"] = map[string]any{}
			if field == "spec" {
				obj.Object["spec"] = shape
			}
			made, err := raw.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create %s: %v", obj.GetName(), err)
			}
			if field == "status" {
				made.Object["status"] = shape
				if name == "empty" {
					made.Object["status"] = map[string]any{"conditions": "none", "ansible": []any{}, "observedGeneration": "many"}
				}
				if _, err := raw.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
					t.Fatalf("write the status of %s: %v", obj.GetName(), err)
				}
			}
		}
	}
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	c := clientOf(t, cfg)
	for name := range shapes {
		for _, field := range []string{"spec", "status"} {
			is := awaitCondition(t, c, object(gvk, ns, field+"-"+name, nil), status.Ready, "True")
			if field == "status" {
				continue
			}
			if warnings, _, _ := unstructured.NestedStringSlice(is.Object, "status", "ansible", "warnings"); (len(warnings) > 0) != (name != "empty") {
				t.Errorf("%s: warnings = %q", is.GetName(), warnings)
			}
		}
	}
	quiet(t, exec, 2*len(shapes), "one run for each object")
}

// There are many objects at once, and one of them is due all the time: each object gets its run, and only the restless
// one runs more often.
func TestReconcile_ManyObjectsAndARestlessOne(t *testing.T) {
	t.Parallel()
	const many = 100
	cfg, c, gvk, ns := installed(t)
	restless := object(gvk, ns, "restless", map[string]any{})
	restless.SetAnnotations(map[string]string{ownPrefix + "reconcile-period": "1ms"})
	create(t, c, restless)
	for i := range many {
		create(t, c, object(gvk, ns, fmt.Sprintf("o%d", i), map[string]any{}))
	}
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), `"name": "restless"`) {
			return requeue("1ms"), nil
		}
		return succeeded(), nil
	}}
	began := time.Now()
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.MaxConcurrentReconciles = 2 })}})
	eventually(t, "everybody's first run", func() bool {
		return exec.count()-exec.ranFor("restless") >= many && exec.ranFor("restless") >= 2
	})
	settle()
	took := time.Since(began)
	if n := exec.count() - exec.ranFor("restless"); n != many {
		t.Errorf("%d runs of %d objects that are content with one", n, many)
	}
	if n := exec.ranFor("restless"); time.Duration(n-2)*minPeriod > took {
		t.Errorf("the restless object ran %d times in %s, more often than each %s", n, took, minPeriod)
	}
}

// However often other clients change a dependent during a run, only one more run follows, or two if the watch was behind.
func TestDependents_ChangesDuringARunAreOneMoreRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var runs atomic.Int64
	began, gate := make(chan struct{}, 8), make(chan struct{})
	creates := writing(configMap(ns, "flapping"))
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if runs.Add(1) == 1 {
			return creates.do(ctx, req)
		}
		began <- struct{}{}
		<-gate
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, owning(watchOf(gvk)))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	o.awaitWatch("configmaps.v1.")
	flap := func(i int) {
		t.Helper()
		is := configMap(ns, "flapping")
		data := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		must.Do(t, c.Patch(t.Context(), is, client.RawPatch("application/merge-patch+json", data)))
	}
	flap(0)
	<-began
	for i := range 200 {
		flap(i + 1)
	}
	close(gate)
	eventually(t, "the run for the changes", func() bool { return exec.count() >= 3 })
	settle()
	if n := exec.count(); n > 4 {
		t.Errorf("%d runs, want 3: the first, one for the first change, one for two hundred", n)
	}
}
