package controller

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// reads is a client that reads one object: get fills in the object, or returns an error.
type reads struct {
	client.Client

	get func(obj *unstructured.Unstructured) error
}

func (r reads) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return r.get(obj.(*unstructured.Unstructured))
}

// twoWatches returns the reconcilers of the tiers gold and silver of one kind.
func twoWatches(t *testing.T, gvk schema.GroupVersionKind) (gold, silver *reconciler, registry *prometheus.Registry) {
	t.Helper()
	registry = prometheus.NewRegistry()
	store := must.Get(runstore.New(runstore.Options{Root: t.TempDir()}, testr.New(t)))(t)
	set := &Set{queue: runqueue.New(runqueue.Options{})}
	all := []watches.Watch{tierOf(gvk, "gold"), tierOf(gvk, "silver")}
	by, claims, err := newWatchers(all, nil)
	must.Do(t, err)
	shared, measured := by[gvk.GroupKind()], must.Get(metrics.New(registry))(t)
	var kinds []*kind
	for i, w := range all {
		r := &reconciler{
			watch: w, gvk: gvk, objects: newObjects(), store: store, metrics: measured, log: testr.New(t), now: time.Now,
			watchers: shared, claimIndex: claims[i], set: set, places: set.queue.Kind("tea", 1, runqueue.Rollout{}, nil),
		}
		kinds = append(kinds, &kind{watch: w, served: r})
	}
	shared.set(kinds)
	return kinds[0].served, kinds[1].served, registry
}

// Two watches that have seen one object forget it at the same time: no metric of the object remains.
func TestWatchers_ForgetAtOnce(t *testing.T) {
	gvk, key := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}, types.NamespacedName{Namespace: "n", Name: "it"}
	gold, silver, registry := twoWatches(t, gvk)
	gone := apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	silver.client = reads{get: func(*unstructured.Unstructured) error { return gone }}
	gold.client = reads{get: func(*unstructured.Unstructured) error {
		must.Do(t, silver.forget(t.Context(), key))
		return gone
	}}
	for _, r := range []*reconciler{gold, silver} {
		r.metrics.ObjectSeen(gvk, key.Namespace, key.Name, time.Now())
		r.objects.with(key, func(e *entry) { e.memory = &memory{uid: "1"} })
	}
	must.Be(t, "series before", 1, must.Get(testutil.GatherAndCount(registry, "resource_created_at_seconds"))(t))
	must.Do(t, gold.forget(t.Context(), key))
	must.Be(t, "series", 0, must.Get(testutil.GatherAndCount(registry, "resource_created_at_seconds"))(t))
}

// When a namespace is deleted, the permissions in it go too. An object whose end was seen before is then forgotten.
func TestForget_WithoutPermission(t *testing.T) {
	gvk, key := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}, types.NamespacedName{Namespace: "n", Name: "it"}
	r, _, _ := twoWatches(t, gvk)
	r.client = reads{get: func(*unstructured.Unstructured) error {
		return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
	}}
	r.objects.with(key, func(e *entry) { e.memory = &memory{uid: "1"} })
	must.Do(t, r.forget(t.Context(), key))
	r.objects.with(key, func(e *entry) { must.Be(t, "what is kept of it", (*memory)(nil), e.memory) })
}

// Which watch made a run is recorded also with references, and with many inputs.
func TestWatchers_MoveOfAnObjectWithReferences(t *testing.T) {
	gold, silver, _ := twoWatches(t, schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"})
	for _, inputs := range []int{1, 1000} {
		s := &scope{memory: &memory{last: &status.Run{}}}
		for i := range inputs {
			s.parts = append(s.parts, fingerprint.Variable(strconv.Itoa(i), ""))
		}
		silver.noteReferred(s)
		s.memory.last.Inputs = s.inputs
		if silver.moved(s) || !gold.moved(s) {
			t.Errorf("%d inputs: moved to silver %t, to gold %t", inputs, silver.moved(s), gold.moved(s))
		}
	}
}

// An object that leaves a watch keeps none of its finalizers, whatever name an earlier operator gave it.
func TestWatchers_UnneededFinalizers(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}
	of := tierOf(gvk, "gold", func(w *watches.Watch) { w.Finalizer = &watches.Finalizer{Name: "new", Former: "old"} })
	by, claims, err := newWatchers([]watches.Watch{of, tierOf(gvk, "silver")}, nil)
	must.Do(t, err)
	r := &reconciler{watchers: by[gvk.GroupKind()], claimIndex: claims[1]}
	must.Be(t, "finalizers", []string{"new", "old"}, r.unneeded())
}

// A watch does not show a run as waiting if the object no longer belongs to it, nor does the object count in a rollout.
func TestWatchers_WhatWaitsLeavesWithItsLabels(t *testing.T) {
	gvk, key := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}, types.NamespacedName{Namespace: "n", Name: "it"}
	for _, tier := range []string{"silver", "none"} {
		gold, _, _ := twoWatches(t, gvk)
		gold.cached = reads{get: func(obj *unstructured.Unstructured) error {
			obj.SetNamespace(key.Namespace)
			obj.SetName(key.Name)
			ofTier(obj, tier)
			return nil
		}}
		gold.objects.with(key, func(e *entry) { e.waiting = waitingRun{held: heldByPause, cause: causeChanged} })
		inputs := runqueue.Inputs{Content: "new"}
		gold.places = gold.set.queue.Kind("tea", 1, runqueue.Rollout{StopOnFailures: 2}, nil)
		gold.places.Ask(key, runqueue.Content, time.Now(), inputs)
		must.Be(t, "the first failure stops the rollout", false, gold.places.Failed(key, runqueue.Content, inputs))
		must.Get(gold.reconcile(t.Context(), key, time.Now()))(t)
		must.Be(t, "what waits of tier "+tier, 0, len(gold.objects.held()))
		must.Be(t, "a rollout is stopped by an object that has left for tier "+tier, false, gold.places.Failed(types.NamespacedName{Name: "other"}, runqueue.Content, inputs))
	}
}

// While one watch runs an object, another watch that now matches its labels does nothing with it.
func TestWatchers_WaitForARunOfTheOther(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{tierOf(gvk, "gold", endingWith("gold")), tierOf(gvk, "silver", endingWith("silver"))}})
	it := ofTier(object(gvk, ns, "it", map[string]any{}), "none")
	it.SetFinalizers([]string{"example.com/gold"})
	it = create(t, c, it)
	o.set.busy.Store(it.GetUID(), "a run of the other")
	label(t, c, it, "silver")
	settle()
	must.Be(t, "finalizers during the run", []string{"example.com/gold"}, get(t, c, it).GetFinalizers())
	o.set.busy.Delete(it.GetUID())
	eventually(t, "it is taken over", func() bool {
		return exec.rolesOf("it") == "silver" && slices.Equal(get(t, c, it).GetFinalizers(), []string{"example.com/silver"})
	})
}
