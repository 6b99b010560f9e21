package controller

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The status says once what prevents the finalizer or the deletion of an object. The message is removed if no run
// follows.
func TestStuck_TheStatusSaysWhy(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var refuses atomic.Bool
	faulty := refusing(cfg, http.StatusForbidden, func(req *http.Request) bool {
		return refuses.Load() && req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/one")
	})
	parks := testenv.Namespace(t, cfg)
	park := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + parks + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 3600, "park": true}`
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), parks) {
			callerOf(t, req).call("wait", park, 200, `"parked":true`)
		}
		return succeeded(), nil
	}}
	o := start(t, faulty, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	parked := create(t, c, object(gvk, parks, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	awaitCondition(t, c, parked, status.Ready, "False")
	reason := func(of *unstructured.Unstructured, want string) {
		t.Helper()
		eventually(t, "Reconciling is because of "+want, func() bool { return condition(get(t, c, of), status.Reconciling)["reason"] == want })
	}

	refuses.Store(true)
	for _, of := range []*unstructured.Unstructured{obj, parked} {
		update(t, c, of, func(is map[string]any) {
			delete(is["metadata"].(map[string]any), "finalizers")
			is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "verbosity": "1"} // the object is reconciled
		})
		reason(of, "FinalizerRefused")
	}
	refuses.Store(false)
	awaitCondition(t, c, obj, status.Reconciling, "False")
	reason(parked, "Waiting")

	refuses.Store(true)
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	is := awaitCondition(t, c, obj, status.Ready, "False")
	eventually(t, "the status says why the object stays", func() bool {
		is = get(t, c, obj)
		message, _ := condition(is, status.Ready)["message"].(string)
		return strings.HasPrefix(message, "The object is being deleted: remove the finalizer: ") && condition(is, status.Reconciling)["status"] == "True"
	})
	tries, writes := o.count("PATCH"), o.count("PATCH status")
	eventually(t, "more tries", func() bool { return o.count("PATCH") > tries+2 })
	must.Be(t, "more writes of the status", int64(0), o.count("PATCH status")-writes)
	refuses.Store(false)
	awaitGone(t, c, obj)
}

// If pruneOnDelete may not delete something, the object stays, and its status says so. There is no finalizer run.
func TestStuck_PruneOnDeleteWithoutPermission(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	elsewhere := testenv.Namespace(t, cfg)
	var grants atomic.Bool
	faulty := refusing(cfg, http.StatusForbidden, func(req *http.Request) bool {
		return !grants.Load() && req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/configmaps/child")
	})
	start(t, faulty, writing(configMap(elsewhere, "child")), owning(watchOf(gvk, func(w *watches.Watch) { w.PruneOnDelete = true })))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	is := awaitCondition(t, c, obj, status.Reconciling, "True")
	ready := condition(is, status.Ready)
	if message, _ := ready["message"].(string); ready["status"] != "False" || !strings.Contains(message, "grant the operator list and delete on them") {
		t.Errorf("condition = %v", ready)
	}
	grants.Store(true)
	awaitGone(t, c, obj)
}

// A reverted change settles its generation, even if the last run was a check without changes, but not if all runs are
// checks.
func TestAsApplied(t *testing.T) {
	t.Parallel()
	now := time.Now()
	check := status.Run{Mode: status.ModeCheck, Result: status.Succeeded, Reason: "Succeeded", Generation: 1}
	drifted := check
	drifted.Drifted = true
	for name, tc := range map[string]struct {
		last     status.Run
		mode     watches.Mode
		observed any
	}{
		"nothing found":        {check, watches.ModeCheckThenApply, int64(2)},
		"drift found":          {drifted, watches.ModeCheckThenApply, nil},
		"all runs are checks":  {check, watches.ModeCheck, nil},
		"a watch that checked": {check, watches.ModeApply, int64(2)},
	} {
		must.Be(t, name, tc.observed, status.Resume(nil, asApplied(tc.last, tc.mode), 2, 0, now)["observedGeneration"])
	}
}
