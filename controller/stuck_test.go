package controller

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// What keeps an object from its finalizer, or from its deletion, is in its status, once, and is taken back where no run follows.
func TestStuck_TheStatusSaysWhy(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	gvk, ns := testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	var refuses atomic.Bool
	faulty := rest.CopyConfig(cfg)
	faulty.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refusing{next: next, code: http.StatusForbidden, hits: func(req *http.Request) bool {
			return refuses.Load() && req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/one")
		}}
	})
	exec := &fakeExecutor{}
	o := start(t, faulty, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")

	refuses.Store(true)
	update(t, c, obj, func(is map[string]any) {
		delete(is["metadata"].(map[string]any), "finalizers")
		is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "verbosity": "1"} // it is looked at
	})
	is := awaitCondition(t, c, obj, status.Reconciling, "True")
	must.Be(t, "reason", any("FinalizerRefused"), condition(is, status.Reconciling)["reason"])
	refuses.Store(false)
	awaitCondition(t, c, obj, status.Reconciling, "False")

	refuses.Store(true)
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	is = awaitCondition(t, c, obj, status.Ready, "False")
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

// What pruneOnDelete may not delete keeps the object, and its status says so; there is no finalizer run.
func TestStuck_PruneOnDeleteWithoutPermission(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns, elsewhere, c := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg), clientOf(t, cfg)
	gvk := testenv.CRD(t, cfg)
	var grants atomic.Bool
	faulty := rest.CopyConfig(cfg)
	faulty.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refusing{next: next, code: http.StatusForbidden, hits: func(req *http.Request) bool {
			return !grants.Load() && req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/configmaps/child")
		}}
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
