package controller

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// tierOf returns a watch of the objects of a tier. Its role has the name of the tier.
func tierOf(gvk schema.GroupVersionKind, tier string, edit ...func(*watches.Watch)) watches.Watch {
	return watchOf(gvk, append(edit, func(w *watches.Watch) {
		w.Content.Role = "testdata/roles/" + tier
		w.Selector.MatchLabels = map[string]string{"tier": tier}
	})...)
}

// endingWith gives the watch of a tier its own finalizer.
func endingWith(tier string) func(*watches.Watch) {
	return func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/" + tier, Content: watches.Content{Role: "testdata/roles/" + tier + "-end"}}
	}
}

// rolesOf returns the roles that have run for an object, in order.
func (f *fakeExecutor) rolesOf(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var roles []string
	for _, req := range f.runs {
		if strings.Contains(string(req.ExtraVars), `"ansible_operator_meta": {"name": "`+name+`"`) {
			roles = append(roles, filepath.Base(req.Content.Role))
		}
	}
	return strings.Join(roles, " ")
}

func label(t *testing.T, c client.Client, obj *unstructured.Unstructured, tier string) {
	t.Helper()
	update(t, c, obj, func(m map[string]any) { m["metadata"].(map[string]any)["labels"] = map[string]any{"tier": tier} })
}

func ofTier(obj *unstructured.Unstructured, tier string) *unstructured.Unstructured {
	obj.SetLabels(map[string]string{"tier": tier})
	return obj
}

// With two watches of one kind, each object is run by its own watch, also after its labels have changed, and by one
// finalizer.
func TestWatchers_EachObjectIsRunByItsOwn(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	held, release, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if strings.HasSuffix(req.Content.Role, "/gold") && strings.Contains(string(req.ExtraVars), `"size": 2`) {
			once.Do(func() { close(held) })
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return succeeded(), nil
	}}
	registry := prometheus.NewRegistry()
	opts := Options{
		RunnerRoot: t.TempDir(), Metrics: must.Get(metrics.New(registry))(t),
		Watches: []watches.Watch{tierOf(gvk, "gold", endingWith("gold")), tierOf(gvk, "silver", endingWith("silver")), tierOf(gvk, "none")},
	}
	o := start(t, cfg, exec, opts)
	create(t, c, ofTier(object(gvk, ns, "ag", map[string]any{}), "silver"))
	au := create(t, c, ofTier(object(gvk, ns, "au", map[string]any{}), "gold"))
	create(t, c, ofTier(object(gvk, ns, "fe", map[string]any{}), "iron"))
	awaitCondition(t, c, object(gvk, ns, "ag", nil), status.Ready, "True")
	awaitCondition(t, c, au, status.Ready, "True")
	eventually(t, "the metric says that the kind is ready", func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader("# HELP rolewright_kind_ready 1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.\n"+
			"# TYPE rolewright_kind_ready gauge\n"+
			`rolewright_kind_ready{group="`+gvk.Group+`",kind="Widget",version="v1alpha1"} 1`+"\n"), "rolewright_kind_ready") == nil
	})

	// Its labels change during a run. That run ends, and a run of the other watch follows.
	update(t, c, au, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	<-held
	label(t, c, au, "silver")
	close(release)
	eventually(t, "the other watch runs it", func() bool { return exec.rolesOf("au") == "gold gold silver" })
	is := awaitRun(t, c, au, causeChanged, "watch: v1alpha1, tier=silver")
	must.Be(t, "finalizers", []string{"example.com/silver"}, is.GetFinalizers())

	// After another change of labels, the first watch runs it again. A restart runs nothing.
	label(t, c, au, "gold")
	eventually(t, "the first watch runs it", func() bool { return exec.rolesOf("au") == "gold gold silver gold" })
	is = awaitRun(t, c, au, causeChanged, "watch: v1alpha1, tier=gold")
	must.Be(t, "finalizers", []string{"example.com/gold"}, is.GetFinalizers())
	o.stop()
	o = start(t, cfg, exec, opts)
	eventually(t, "the objects are looked at", func() bool { return o.set.Ready() == nil })
	settle()
	must.Be(t, "roles of the one that has moved", "gold gold silver gold", exec.rolesOf("au"))
	must.Do(t, c.Delete(t.Context(), au))
	eventually(t, "it goes", func() bool { return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(au), is)) })
	must.Be(t, "roles", "gold gold silver gold gold-end", exec.rolesOf("au"))

	// A watch without a finalizer takes over from one with a finalizer.
	ag := object(gvk, ns, "ag", nil)
	label(t, c, ag, "none")
	eventually(t, "it has no finalizer", func() bool { return exec.rolesOf("ag") == "silver none" && len(get(t, c, ag).GetFinalizers()) == 0 })
	must.Be(t, "roles of what no watch matches", "", exec.rolesOf("fe"))
}

// awaitRun waits until the last run has a given cause and trigger.
func awaitRun(t *testing.T, c client.Client, obj *unstructured.Unstructured, why cause, trigger string) *unstructured.Unstructured {
	t.Helper()
	var is *unstructured.Unstructured
	eventually(t, "a run: "+string(why)+", "+trigger, func() bool {
		is = get(t, c, obj)
		last, ok := lastRun(is.Object["status"].(map[string]any))
		return ok && last.Cause == string(why) && strings.HasPrefix(last.Trigger, trigger)
	})
	return is
}

// If the labels of an object change and it is deleted while no operator runs, the finalizer that is on it runs.
func TestWatchers_DeletedBeforeItWasTakenOver(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	opts := Options{RunnerRoot: t.TempDir(), Watches: []watches.Watch{
		tierOf(gvk, "gold", endingWith("gold")), tierOf(gvk, "silver", endingWith("silver")), tierOf(gvk, "none"),
	}}
	o := start(t, cfg, exec, opts)
	one := create(t, c, ofTier(object(gvk, ns, "one", map[string]any{}), "gold"))
	two := create(t, c, ofTier(object(gvk, ns, "two", map[string]any{}), "gold"))
	awaitCondition(t, c, one, status.Ready, "True")
	awaitCondition(t, c, two, status.Ready, "True")
	o.stop()
	for i, obj := range []*unstructured.Unstructured{one, two} {
		label(t, c, obj, []string{"silver", "none"}[i])
		must.Do(t, c.Delete(t.Context(), obj))
	}
	start(t, cfg, exec, opts)
	for _, obj := range []*unstructured.Unstructured{one, two} {
		eventually(t, obj.GetName()+" goes", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
		})
		must.Be(t, "roles", "gold gold-end", exec.rolesOf(obj.GetName()))
	}
}

// A kind is watched in two versions. The first watch runs each object once. The other watch runs it when the API server
// no longer serves the first version.
func TestWatchers_TwoVersionsRunOnce(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	v2, ns := testenv.CRD(t, cfg, testenv.WithVersions("v2", "v1")), testenv.Namespace(t, cfg)
	v1 := v2.GroupKind().WithVersion("v1")
	exec := &fakeExecutor{}
	roleOf := func(gvk schema.GroupVersionKind) watches.Watch {
		return watchOf(gvk, withFinalizer, func(w *watches.Watch) { w.Content.Role = "testdata/roles/" + gvk.Version })
	}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{roleOf(v1), roleOf(v2)}})
	one := create(t, c, object(v1, ns, "one", map[string]any{}))
	two := create(t, c, object(v2, ns, "two", map[string]any{}))
	awaitCondition(t, c, one, status.Ready, "True")
	awaitCondition(t, c, two, status.Ready, "True")
	update(t, c, two, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "a changed object runs", func() bool { return exec.ranFor("two") == 2 })
	settle()
	must.Be(t, "roles of an object of the first version", "v1", exec.rolesOf("one"))
	must.Be(t, "roles of an object of the other version", "v1 v1", exec.rolesOf("two"))

	eventually(t, "the first version is served no more", func() bool {
		crd := crdObject(t, c, v2)
		versions := crd.Object["spec"].(map[string]any)["versions"].([]any)
		at := slices.IndexFunc(versions, func(v any) bool { return v.(map[string]any)["name"] == "v1" })
		versions[at].(map[string]any)["served"] = false
		return c.Update(t.Context(), crd) == nil
	})
	eventually(t, "the other watch takes the objects over: "+o.log(), func() bool {
		return exec.rolesOf("one") == "v1 v2" && exec.rolesOf("two") == "v1 v1 v2"
	})
	must.Do(t, c.Delete(t.Context(), two))
	eventually(t, "it goes", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(two), two.DeepCopy()))
	})
}

// These were per watch and are now per kind: the metric, the names, and what a client may do that names the object for
// which it acts.
func TestWatchers_OfOneKindInOneSet(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}
	gold, silver := tierOf(gvk, "gold"), tierOf(gvk, "silver", func(w *watches.Watch) { w.OwnNamespaceOnly = true })
	must.Be(t, "names", []string{"tea-v1-controller", "tea-v1-controller-2"}, controllerNames([]watches.Watch{gold, silver}))
	other := tierOf(schema.GroupVersionKind{Group: "h.test", Version: "v1", Kind: "Tea"}, "gold")
	must.Be(t, "names of two groups", []string{"tea-v1-g.test-controller", "tea-v1-g.test-controller-2", "tea-v1-h.test-controller"},
		controllerNames([]watches.Watch{gold, silver, other}))

	registry := prometheus.NewRegistry()
	s := &Set{opts: &Options{Metrics: must.Get(metrics.New(registry))(t)}}
	for _, w := range []watches.Watch{gold, silver} {
		s.kinds = append(s.kinds, &kind{watch: w, served: &reconciler{watch: w, gvk: gvk, opts: s.opts, objects: newObjects()}})
	}
	ready := func(want string) {
		t.Helper()
		must.Do(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "rolewright_kind_ready"))
	}
	const about = "# HELP rolewright_kind_ready 1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.\n" +
		"# TYPE rolewright_kind_ready gauge\n" + `rolewright_kind_ready{group="g.test",kind="Tea",version="v1"} `
	s.kinds[0].state = errNotStarted
	s.showReady(gvk)
	ready(about + "0\n")
	s.kinds[0].state = nil
	s.showReady(gvk)
	ready(about + "1\n")
	s.kinds[0].state = notEnabledError{}
	s.showReady(gvk)
	ready(about + "1\n") // the other watch is served
	s.kinds[1].state = notEnabledError{}
	s.showReady(gvk)
	ready("")
	s.kinds[0].state, s.kinds[1].state = nil, nil
	s.showReady(gvk)
	ready(about + "1\n")

	owner := proxy.Owner{GVK: gvk, Namespace: "tea", Name: "it", UID: "1"}
	must.Be(t, "the least, for an object of none", true, s.Grant(owner).OwnNamespaceOnly)
	s.kinds[0].served.objects.with(types.NamespacedName{Namespace: "tea", Name: "it"}, func(e *entry) { e.memory = &memory{uid: "1"} })
	must.Be(t, "what the watch of the object says", false, s.Grant(owner).OwnNamespaceOnly)
	owner.UID = "2"
	must.Be(t, "the least, for another object of the name", true, s.Grant(owner).OwnNamespaceOnly)

	s.kinds = nil
	s.showReady(gvk)
	ready("")
}

// An object that no watch runs, and that no process remembers, stays at its deletion. One of the watches whose finalizer
// it has says so once, and the metrics have the age of the deletion until it is gone. If the API server does not answer,
// no object is taken from its watch as if the kind were absent.
func TestWatchers_AnAbsentKindStaysAbsent(t *testing.T) {
	k := &kind{log: testr.New(t)}
	silent := errors.New("connection refused")
	for _, tt := range []struct{ state, err, want error }{
		{nil, silent, silent}, {notEnabledError{}, silent, notEnabledError{}}, {notEnabledError{}, errNotInstalled, errNotInstalled},
	} {
		k.state = tt.state
		must.Be(t, "the reason", tt.want.Error(), k.stillAbsent(tt.err).Error())
	}
}

func TestWatchers_DeletedWithoutAWatch(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	reg := prometheus.NewPedanticRegistry()
	opts := Options{RunnerRoot: t.TempDir(), Metrics: must.Get(metrics.New(reg))(t), Watches: []watches.Watch{
		tierOf(gvk, "gold", endingWith("tier")), tierOf(gvk, "silver", endingWith("tier")), tierOf(gvk, "none"),
	}}
	o := start(t, cfg, &fakeExecutor{}, opts)
	one := create(t, c, ofTier(object(gvk, ns, "one", map[string]any{}), "gold"))
	two := ofTier(object(gvk, ns, "two", map[string]any{}), "gold")
	two.SetFinalizers([]string{"example.com/others"})
	create(t, c, two)
	awaitCondition(t, c, one, status.Ready, "True")
	awaitCondition(t, c, two, status.Ready, "True")
	o.stop()
	label(t, c, one, "iron")
	label(t, c, two, "iron")
	must.Do(t, c.Delete(t.Context(), one.DeepCopy()))
	must.Do(t, c.Delete(t.Context(), two.DeepCopy()))
	o = start(t, cfg, &fakeExecutor{}, opts)
	const says = "matches the selector of no watch"
	eventually(t, "the log names them", func() bool { return strings.Count(o.log(), says) == 2 })
	eventually(t, "the age", func() bool { return gauge(t, reg, "rolewright_deletion_oldest_seconds") > 0 })
	time.Sleep(2 * o.set.opts.RetryMax) // they are reconciled again
	must.Be(t, "lines", 2, strings.Count(o.log(), says))

	label(t, c, one, "gold")
	awaitGone(t, c, one)
	update(t, c, two, func(m map[string]any) { m["metadata"].(map[string]any)["finalizers"] = []any{"example.com/others"} })
	eventually(t, "no deletion that waits for the operator", func() bool { return gauge(t, reg, "rolewright_deletion_oldest_seconds") == 0 })
	update(t, c, two, func(m map[string]any) { delete(m["metadata"].(map[string]any), "finalizers") })
}
