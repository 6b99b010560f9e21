package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// However many objects there are, a restart reads each kind once, and starts no run. Kinds of dependents may be read once
// for each of the kinds that own them.
func TestRestart_ListsEachKindOnce(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c, ns := clientOf(t, cfg), testenv.Namespace(t, cfg)
	gvks := []schema.GroupVersionKind{testenv.CRD(t, cfg), testenv.CRD(t, cfg)}
	owned := func(ctx context.Context, req runner.Request) (runner.Result, error) {
		var vars struct {
			Meta struct{ Name string } `json:"ansible_operator_meta"`
		}
		if err := json.Unmarshal(req.ExtraVars, &vars); err != nil {
			return runner.Result{}, err
		}
		as, err := asRun(req)
		if err == nil {
			child := configMap(ns, vars.Meta.Name)
			if strings.HasPrefix(vars.Meta.Name, "it-1-") {
				child = secret(ns, vars.Meta.Name)
			}
			// Runs of one process share connections. A connection ends with the run that made it, and other runs that use
			// it are repeated.
			err = client.IgnoreAlreadyExists(as.Create(ctx, child))
		}
		return succeeded(), err
	}
	opts := owning(watchOf(gvks[0]), watchOf(gvks[1]))
	opts.RunnerRoot, opts.ReconcilePeriod = t.TempDir(), time.Hour
	const each = 150
	exec := &fakeExecutor{do: owned}
	o := start(t, cfg, exec, opts)
	for i := range each {
		for k, gvk := range gvks {
			create(t, c, object(gvk, ns, fmt.Sprintf("it-%d-%d", k, i), nil))
		}
	}
	eventually(t, "all have run", func() bool { return exec.count() >= len(gvks)*each })
	eventually(t, "the ends of all are recorded", func() bool {
		return !slices.ContainsFunc(gvks, func(gvk schema.GroupVersionKind) bool {
			list := listOf(gvk)
			must.Do(t, c.List(t.Context(), list, client.InNamespace(ns)))
			return slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return condition(&o, "Ready")["status"] != "True" })
		})
	})
	o.stop()

	again := &fakeExecutor{do: owned}
	o = start(t, cfg, again, opts)
	o.awaitWatch("configmaps.v1.")
	o.awaitWatch("secrets.v1.")
	eventually(t, "all kinds are served", func() bool { return o.set.Ready() == nil })
	eventually(t, "all objects are known", func() bool {
		n := 0
		for _, k := range o.set.all() {
			all := k.reconciler().objects
			all.mu.Lock()
			for _, e := range all.table {
				if e.memory != nil {
					n++
				}
			}
			all.mu.Unlock()
		}
		return n == len(gvks)*each
	})
	quiet(t, again, 0, "nothing has changed")
	lists := map[string]int64{}
	o.counts.Range(func(kind, n any) bool {
		if resource, is := strings.CutPrefix(kind.(string), "LIST "); is {
			lists[resource] = n.(*atomic.Int64).Load()
		}
		return true
	})
	if len(lists) != len(gvks)+2 || lists["api/v1/configmaps"] == 0 || lists["api/v1/secrets"] == 0 {
		t.Errorf("lists of %v, want those of two kinds, of configmaps and of secrets", lists)
	}
	for resource, n := range lists {
		if n > 1 {
			t.Errorf("%d lists of %s", n, resource)
		}
	}
}

// After a restart, objects that were changed while there was no operator are checked first. Here the others cannot be
// done before the changed one has run.
func TestRestart_LooksAtChangedObjectsFirst(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{RunnerRoot: t.TempDir(), Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.MaxConcurrentReconciles = 1 })}}
	o := start(t, cfg, &fakeExecutor{}, opts)
	var all []*unstructured.Unstructured
	for i := range 20 {
		all = append(all, create(t, c, object(gvk, ns, fmt.Sprintf("it-%02d", i), map[string]any{"size": int64(1)})))
	}
	for _, obj := range all {
		awaitCondition(t, c, obj, status.Ready, "True")
	}
	o.stop()

	const changed = 19
	for i, obj := range all {
		update(t, c, obj, func(is map[string]any) {
			if i == changed {
				is["spec"] = map[string]any{"size": int64(2)}
			} else {
				is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "paused": "true"}
			}
		})
	}
	ran := make(chan struct{})
	held := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method == http.MethodPatch && !strings.Contains(req.URL.Path, all[changed].GetName()) {
			select {
			case <-ran:
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}
		return next.RoundTrip(req)
	})
	again := &fakeExecutor{}
	opts.Watches[0].Vars = map[string]any{"new": true} // so that the other objects report that a run is held back
	start(t, held, again, opts)
	eventually(t, "the changed object runs", func() bool { return again.count() > 0 })
	close(ran)
	for _, obj := range all[:changed] {
		eventually(t, obj.GetName()+" is looked at", func() bool { return condition(get(t, c, obj), status.Reconciling)["reason"] == "Paused" })
	}
}
