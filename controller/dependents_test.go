package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// asRun returns a client with the kubeconfig of a run.
func asRun(req runner.Request) (client.Client, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(req.Files[kubeconfigFile])
	if err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{})
}

// writing returns an executor whose runs write these objects through the proxy, each time with new content.
func writing(objects ...*unstructured.Unstructured) *fakeExecutor {
	var n atomic.Int64
	return &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		c, err := asRun(req)
		if err != nil {
			return runner.Result{}, err
		}
		for _, obj := range objects {
			next := obj.DeepCopy()
			labels := map[string]string{"run": fmt.Sprint(n.Add(1))}
			maps.Copy(labels, obj.GetLabels())
			next.SetLabels(labels)
			is := obj.DeepCopy()
			switch err := c.Get(ctx, client.ObjectKeyFromObject(obj), is); {
			case apierrors.IsNotFound(err):
				err = c.Create(ctx, next)
				if err != nil {
					return failed(err.Error()), nil
				}
			case err != nil:
				return failed(err.Error()), nil
			default:
				if err := c.Patch(ctx, is, client.MergeFrom(is.DeepCopy())); err != nil { // an empty patch
					return failed(err.Error()), nil
				}
				is.SetLabels(next.GetLabels())
				if err := c.Update(ctx, is); err != nil {
					return failed(err.Error()), nil
				}
			}
		}
		return succeeded(), nil
	}}
}

func configMap(namespace, name string) *unstructured.Unstructured {
	obj := object(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, namespace, name, nil)
	obj.Object["data"] = map[string]any{"key": "value"}
	return obj
}

func secret(namespace, name string) *unstructured.Unstructured {
	return object(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, namespace, name, nil)
}

// owning returns the options of an operator whose objects own what they create.
func owning(w ...watches.Watch) Options {
	for i := range w {
		w[i].WatchDependentResources = true
	}
	return Options{InjectOwnerRef: true, Watches: w}
}

// awaitWatch waits until the operator sees changes of a resource.
func (o *operator) awaitWatch(resource string) {
	o.t.Helper()
	eventually(o.t, "the watch of "+resource, func() bool {
		return slices.Contains(resourceNames(o.set.dependents.Watching()), resource)
	})
}

// quiet waits for the expected runs, and fails the test if there are more.
func quiet(t *testing.T, exec *fakeExecutor, want int, why string) {
	t.Helper()
	eventually(t, why, func() bool { return exec.count() >= want })
	settle()
	if n := exec.count(); n != want {
		t.Fatalf("%d runs, want %d: %s", n, want, why)
	}
}

func TestDependents_OneRunPerCause(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	child := configMap(ns, "child")
	exec := writing(child, secret(ns, "child"))
	o := start(t, cfg, exec, owning(watchOf(gvk)))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	o.awaitWatch("configmaps.v1.")
	o.awaitWatch("secrets.v1.")
	if got, want := resourceNames(status.Read(is.Object["status"].(map[string]any)).Dependents), []string{"configmaps.v1.", "secrets.v1."}; !slices.Equal(got, want) {
		t.Errorf("recorded dependents = %v, want %v", got, want)
	}
	if refs := get(t, c, child).GetOwnerReferences(); len(refs) != 1 || refs[0].UID != obj.GetUID() || refs[0].Controller != nil {
		t.Errorf("owner references of the child = %+v", refs)
	}
	quiet(t, exec, 1, "the run's own writes start no run")

	update(t, c, obj, func(o map[string]any) { o["spec"] = map[string]any{"size": int64(2)} })
	awaitCondition(t, c, obj, status.Ready, "True")
	quiet(t, exec, 2, "the second run has rewritten both children")

	update(t, c, child, func(o map[string]any) { o["data"] = map[string]any{"key": "changed"} })
	quiet(t, exec, 3, "one run for one change")
	eventually(t, "the run for the changed child is recorded", func() bool {
		last, _ := lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return last.Cause == string(causeDependent)
	})

	must.Do(t, c.Delete(t.Context(), child.DeepCopy()))
	eventually(t, "the child is back", func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(child), child.DeepCopy()) == nil
	})
	quiet(t, exec, 4, "one run brings the child back")
}

func TestDependents_WatchedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	child := configMap(ns, "child")
	first := writing(child)
	o := start(t, cfg, first, owning(watchOf(gvk)))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	o.stop()

	second := writing(child)
	o = start(t, cfg, second, owning(watchOf(gvk)))
	o.awaitWatch("configmaps.v1.")
	quiet(t, second, 0, "nothing has changed")
	must.Do(t, c.Delete(t.Context(), child.DeepCopy()))
	eventually(t, "the child is back", func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(child), child.DeepCopy()) == nil
	})
	quiet(t, second, 1, "one run brings the child back")
}

// If the last run is not recorded, because the schema drops the record or the watch writes no status, a restart runs the
// object. What was deleted meanwhile is created again, and is watched.
func TestDependents_WatchedAgainWithoutARecord(t *testing.T) {
	t.Parallel()
	own := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"own": {Type: "string"}}}
	for name, tt := range map[string]struct {
		schema apiextensionsv1.JSONSchemaProps
		manage bool
	}{
		"dropped by the schema": {apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"status": own}}, true},
		"manageStatus: false":   {apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t, testenv.WithSchema(tt.schema))
			child := configMap(ns, "child")
			opts := owning(watchOf(gvk, func(w *watches.Watch) { w.ManageStatus = tt.manage }))
			o := start(t, cfg, writing(child), opts)
			obj := create(t, c, object(gvk, ns, "one", nil))
			back := func(o *operator) {
				t.Helper()
				eventually(t, "the child is there", func() bool {
					return c.Get(t.Context(), client.ObjectKeyFromObject(child), child.DeepCopy()) == nil
				})
				o.awaitWatch("configmaps.v1.")
			}
			back(o)
			o.stop()
			if record := get(t, c, obj).Object["status"]; strings.Contains(fmt.Sprint(record), "ansible") {
				t.Fatalf("there is a record: %v", record)
			}

			must.Do(t, c.Delete(t.Context(), child.DeepCopy()))
			second := writing(child)
			o = start(t, cfg, second, opts)
			back(o)
			quiet(t, second, 1, "the restart runs the object once")
			must.Do(t, c.Delete(t.Context(), child.DeepCopy()))
			back(o)
			quiet(t, second, 2, "one run brings the child back")
			if !strings.Contains(o.log(), `"trigger"="configmaps `+ns+`/child was deleted" "cause"="dependent"`) {
				t.Error("the log does not say what has started the run")
			}
		})
	}
}

// Objects that an object owns and its runs only read are watched: an earlier operator may have created them, and the
// status does not mention them.
func TestDependents_WatchedOnceRead(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	elsewhere := testenv.Namespace(t, cfg)
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	near, far, foreign := configMap(ns, "near"), secret(elsewhere, "far"), object(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, ns, "foreign", nil)
	near.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: "one", UID: obj.GetUID()}})
	far.SetAnnotations(map[string]string{
		"operator-sdk/primary-resource": ns + "/one", "operator-sdk/primary-resource-type": gvk.GroupKind().String(),
	})
	for _, child := range []*unstructured.Unstructured{near, far, foreign} {
		create(t, c, child)
	}
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		run, err := asRun(req)
		if err != nil {
			return runner.Result{}, err
		}
		_ = run.Get(ctx, client.ObjectKeyFromObject(near), near.DeepCopy()) // may already be deleted
		for _, of := range []*unstructured.Unstructured{far, foreign} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(of.GroupVersionKind())
			if err := run.List(ctx, list); err != nil {
				return runner.Result{}, err
			}
		}
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, owning(watchOf(gvk)))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	o.awaitWatch("configmaps.v1.")
	o.awaitWatch("secrets.v1.")
	want := []string{"configmaps.v1.", "secrets.v1."}
	must.Be(t, "watched", want, resourceNames(o.set.dependents.Watching()))
	must.Be(t, "recorded", want, resourceNames(status.Read(is.Object["status"].(map[string]any)).Dependents))
	must.Do(t, c.Delete(t.Context(), near.DeepCopy()))
	quiet(t, exec, 2, "one run for the deletion of what was read alone")
	must.Do(t, c.Delete(t.Context(), far.DeepCopy()))
	quiet(t, exec, 3, "one run for the deletion of what was listed")
}

func TestDependents_OffByTheWatchAndByTheFlag(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		inject, watch bool
		blacklist     []schema.GroupVersionKind
		owned         bool
	}{
		"watchDependentResources: false": {inject: true, owned: true},
		"--inject-owner-ref=false":       {watch: true},
		"blacklist":                      {inject: true, watch: true, owned: true, blacklist: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			child := configMap(ns, "child")
			exec := writing(child)
			o := start(t, cfg, exec, Options{InjectOwnerRef: tt.inject, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
				w.WatchDependentResources, w.Blacklist = tt.watch, tt.blacklist
			})}})
			awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "True")
			if owned := len(get(t, c, child).GetOwnerReferences()) > 0; owned != tt.owned {
				t.Errorf("the child is owned: %t, want %t", owned, tt.owned)
			}
			must.Do(t, c.Delete(t.Context(), child.DeepCopy()))
			quiet(t, exec, 1, "the child is not watched")
			if w := o.set.dependents.Watching(); len(w) > 0 {
				t.Errorf("watched: %v", w)
			}
		})
	}
}

func TestDependents_PrunedWhereGarbageCollectionDoesNotReach(t *testing.T) {
	t.Parallel()
	for name, finalizer := range map[string]*watches.Finalizer{
		"without a finalizer of the watch": nil,
		"after the finalizer run":          {Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			elsewhere := testenv.Namespace(t, cfg)
			child, foreign := configMap(elsewhere, "child"), configMap(elsewhere, "foreign")
			role := object(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", testenv.Random("rolewright"), nil)
			t.Cleanup(func() { _ = c.Delete(context.Background(), role.DeepCopy()) })
			create(t, c, foreign.DeepCopy())
			exec := writing(child, role)
			start(t, cfg, exec, owning(watchOf(gvk, func(w *watches.Watch) { w.PruneOnDelete, w.Finalizer = true, finalizer })))
			obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
			is := awaitCondition(t, c, obj, status.Ready, "True")
			if got, want := resourceNames(status.Read(is.Object["status"].(map[string]any)).Dependents), []string{"clusterroles.v1.rbac.authorization.k8s.io", "configmaps.v1."}; !cmp.Equal(got, want) {
				t.Errorf("recorded dependents: %s", cmp.Diff(want, got))
			}
			if a := get(t, c, child).GetAnnotations(); a["operator-sdk/primary-resource"] != ns+"/one" {
				t.Errorf("annotations of the child = %v", a)
			}
			exec.mu.Lock()
			exec.do = nil // a finalizer run, if there is one, writes nothing
			exec.mu.Unlock()
			must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
			for _, gone := range []*unstructured.Unstructured{obj, child, role} {
				eventually(t, gone.GetKind()+" is gone", func() bool {
					return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(gone), gone.DeepCopy()))
				})
			}
			get(t, c, foreign) // nothing owns it, so it must still exist
		})
	}
}

// The dependents of an object are deleted even after the watch has dropped pruneOnDelete: no other program removes the
// operator's finalizer.
func TestDependents_PrunedAfterTheWatchHasDroppedTheKey(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	elsewhere := testenv.Namespace(t, cfg)
	child := configMap(elsewhere, "child")
	o := start(t, cfg, writing(child), owning(watchOf(gvk, func(w *watches.Watch) { w.PruneOnDelete = true })))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	o.stop()

	unwatched := watchOf(gvk, func(w *watches.Watch) { w.WatchDependentResources = false })
	start(t, cfg, &fakeExecutor{}, Options{InjectOwnerRef: true, Watches: []watches.Watch{unwatched}})
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "a run without the key", func() bool {
		st, _ := get(t, c, obj).Object["status"].(map[string]any)
		last, ok := lastRun(st)
		return ok && last.Generation == 2
	})
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	for _, gone := range []*unstructured.Unstructured{obj, child} {
		eventually(t, gone.GetKind()+" is gone", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(gone), gone.DeepCopy()))
		})
	}
}

func TestAccess_NoWriteForAnObjectThatGoes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		finalizers []string
		want       string
	}{
		"being deleted": {finalizers: []string{"example.com/others"}, want: "is being deleted"},
		"gone":          {want: "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			began, refused := make(chan struct{}), make(chan error, 1)
			exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
				run, err := asRun(req)
				if err != nil {
					return runner.Result{}, err
				}
				close(began)
				ctx = context.WithoutCancel(ctx) // a client that does not notice the end of the run
				for i := 0; ; i++ {
					if err = run.Create(ctx, configMap(ns, fmt.Sprintf("child-%d", i))); err != nil {
						refused <- err
						return failed(err.Error()), nil
					}
				}
			}}
			start(t, cfg, exec, owning(watchOf(gvk)))
			obj := object(gvk, ns, "one", map[string]any{})
			obj.SetFinalizers(tt.finalizers)
			create(t, c, obj)
			<-began
			must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
			if err := <-refused; !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the write is refused with %v, want %q", err, tt.want)
			}
			if len(tt.finalizers) > 0 {
				update(t, c, obj, func(o map[string]any) { unstructured.RemoveNestedField(o, "metadata", "finalizers") })
			}
		})
	}
}

// An object that no longer matches the selector is no longer watched. Its run in progress still continues to its end.
func TestAccess_StaysForAnObjectThatCeasesToMatch(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	began, goOn, wrote := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		close(began)
		<-goOn
		run, err := asRun(req)
		if err == nil {
			err = run.Create(ctx, configMap(ns, "child"))
		}
		wrote <- err
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, owning(watchOf(gvk, func(w *watches.Watch) {
		w.Selector.MatchLabels = map[string]string{"tier": "gold"}
	})))
	obj := object(gvk, ns, "one", map[string]any{})
	obj.SetLabels(map[string]string{"tier": "gold"})
	create(t, c, obj)
	<-began
	reads := o.count("GET")
	update(t, c, obj, func(o map[string]any) { unstructured.RemoveNestedField(o, "metadata", "labels") })
	eventually(t, "the operator looks whether it is gone", func() bool { return o.count("GET") > reads })
	settle()
	close(goOn)
	if err := <-wrote; err != nil {
		t.Errorf("a write of the run: %v", err)
	}
}

func TestAccess_EndsWithTheRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, owning(watchOf(gvk)))
	awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "True")
	run := must.Get(asRun(exec.runs[0]))(t)
	if err := run.Create(t.Context(), configMap(ns, "late")); !apierrors.IsUnauthorized(err) {
		t.Errorf("a write after the run's end: %v", err)
	}
}

func TestSchedule_DependentChange(t *testing.T) {
	t.Parallel()
	finished := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := func(result status.Result) *status.Run {
		return &status.Run{ID: "x", Cause: "created", Generation: 1, Fingerprint: "f", Finished: finished, Result: result, Attempts: 3}
	}
	for name, tt := range map[string]struct {
		s    situation
		want plan
	}{
		"after a success, once the least time is over": {
			situation{last: run(status.Succeeded), dependent: true, fingerprint: "f", generation: 1}, plan{cause: causeDependent},
		},
		"while it is deleted, nothing": {
			situation{last: &status.Run{ID: "x", Cause: "deleted", Fingerprint: "f", Finished: finished, Result: status.Failed, Attempts: 1},
				dependent: true, deleting: true, fingerprint: "f", retry: retry{min: 1, max: 1}},
			plan{cause: causeDeleted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(finished.Add(2*minPeriod), tt.s); got != tt.want {
				t.Errorf("plan = %+v, want %+v", got, tt.want)
			}
		})
	}
	failedThen := situation{last: run(status.Failed), dependent: true, fingerprint: "f", generation: 1, retry: retry{min: 4 * minPeriod, max: 60 * minPeriod}}
	if got := decide(finished.Add(2*minPeriod), failedThen); got.cause != "" || got.wait <= 0 {
		t.Errorf("after a failure the backoff goes on; plan = %+v", got)
	}
}
