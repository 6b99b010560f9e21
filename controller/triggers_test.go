package controller

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func labelled(obj *unstructured.Unstructured, labels map[string]string) *unstructured.Unstructured {
	obj.SetLabels(labels)
	return obj
}

// startedBy returns a trigger for objects of a kind with the label of the test.
func startedBy(kind, mark string, edit ...func(*watches.Trigger)) watches.Trigger {
	t := watches.Trigger{GVK: schema.GroupVersionKind{Version: "v1", Kind: kind}, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"mark": mark}}}
	for _, do := range edit {
		do(&t)
	}
	return t
}

func toAll(t *watches.Trigger) { t.MapTo = watches.MapToAll }

// ofTeam restricts a trigger to namespaces with a label.
func ofTeam(name string) func(*watches.Trigger) {
	return func(t *watches.Trigger) { t.NamespaceSelector.MatchLabels = map[string]string{"team": name} }
}

func on(changes ...watches.Change) func(*watches.Trigger) {
	return func(t *watches.Trigger) { t.On = changes }
}

// Which objects one object starts depends on the trigger and on the scopes of the kinds.
func TestTrigger_StartedBy(t *testing.T) {
	t.Parallel()
	owners := schema.GroupKind{Group: "a.b", Kind: "Tea"}
	byName := func(t *watches.Trigger) { t.NameFromLabel, t.Selector = "tea", metav1.LabelSelector{} }
	labels := map[string]string{"mark": "x", "tea": "green"}
	owned := func(apiVersion string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Tea", UID: "1"}}}
	}
	for name, tt := range map[string]struct {
		trigger            watches.Trigger
		ofCluster, cluster bool // the kind of the trigger, and that of the watch
		is                 *metav1.ObjectMeta
		want               *started
	}{
		"its namespace":       {trigger: startedBy("Secret", "x"), want: &started{Namespace: "here"}},
		"all":                 {trigger: startedBy("Secret", "x", toAll), want: &started{}},
		"named":               {trigger: startedBy("Secret", "", byName), want: &started{Namespace: "here", Name: "green"}},
		"of a cluster":        {trigger: startedBy("Node", "x"), ofCluster: true, want: &started{}},
		"a namespace":         {trigger: startedBy("Namespace", "x"), ofCluster: true, want: &started{Namespace: "it"}},
		"for a cluster":       {trigger: startedBy("Secret", "", byName), cluster: true, want: &started{Name: "green"}},
		"another label":       {trigger: startedBy("Secret", "y")},
		"no name":             {trigger: startedBy("Secret", "", byName), is: &metav1.ObjectMeta{Labels: map[string]string{"mark": "x"}}},
		"owned by the kind":   {trigger: startedBy("Secret", "x"), is: owned("a.b/v2")},
		"owned by another":    {trigger: startedBy("Secret", "x"), is: owned("c.d/v1"), want: &started{Namespace: "here"}},
		"annotated as owned":  {trigger: startedBy("Secret", "x"), is: &metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"operator-sdk/primary-resource": "there/green", "operator-sdk/primary-resource-type": "Tea.a.b"}}},
		"selected and named":  {trigger: startedBy("Secret", "x", func(t *watches.Trigger) { t.NameFromLabel = "tea" }), want: &started{Namespace: "here", Name: "green"}},
		"another namespace":   {trigger: startedBy("Secret", "x", ofTeam("b"))},
		"a matching one":      {trigger: startedBy("Secret", "x", ofTeam("a")), want: &started{Namespace: "here"}},
		"in no namespace":     {trigger: startedBy("Node", "x", ofTeam("a")), ofCluster: true},
		"named, but unmarked": {trigger: startedBy("Secret", "y", func(t *watches.Trigger) { t.NameFromLabel = "tea" })},
	} {
		kind := &referredKind{gvk: tt.trigger.GVK, namespaced: !tt.ofCluster}
		id := types.NamespacedName{Namespace: "here", Name: "it"}
		if tt.ofCluster {
			id.Namespace = ""
		}
		if tt.is == nil {
			tt.is = &metav1.ObjectMeta{Labels: labels}
		}
		trigger := newTrigger(tt.trigger, kind, owners, !tt.cluster)
		trigger.matching["here"] = tt.trigger.NamespaceSelector.MatchLabels["team"] == "a"
		got, ok := trigger.startedBy(id, dependent.VersionOf(tt.is))
		if ok != (tt.want != nil) || ok && got != *tt.want {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, tt.want)
		}
	}
}

func TestTriggers_AChangeRunsTheObjectsThatItStarts(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	elsewhere := testenv.Namespace(t, cfg)
	exec := &fakeExecutor{}
	options := Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Triggers = []watches.Trigger{
			startedBy("ConfigMap", ns), startedBy("Secret", ns, toAll),
			startedBy("ConfigMap", ns+"-named", func(t *watches.Trigger) { t.NameFromLabel = "instance" }),
		}
	})}}
	o := start(t, cfg, exec, options)
	mark := map[string]string{"mark": ns}
	shared := create(t, c, labelled(configMap(ns, "shared"), mark))
	create(t, c, configMap(ns, "other"))
	it, other, far := create(t, c, object(gvk, ns, "it", nil)), create(t, c, object(gvk, ns, "other", nil)), create(t, c, object(gvk, elsewhere, "far", nil))
	for _, obj := range []*unstructured.Unstructured{it, other, far} {
		awaitCondition(t, c, obj, "Ready", "True")
	}
	set := func(obj *unstructured.Unstructured, value string) {
		update(t, c, obj, func(is map[string]any) { is["data"] = map[string]any{"key": value} })
	}

	set(shared, "YQ==")
	awaitTrigger(t, c, it, causeTrigger, "configmaps "+ns+"/shared was changed")
	awaitTrigger(t, c, other, causeTrigger, "configmaps "+ns+"/shared was changed")
	ca := create(t, c, labelled(secret(elsewhere, "ca"), mark))
	for _, obj := range []*unstructured.Unstructured{it, other, far} {
		awaitTrigger(t, c, obj, causeTrigger, "secrets "+elsewhere+"/ca is new")
	}
	create(t, c, labelled(configMap(ns, "named"), map[string]string{"mark": ns + "-named", "instance": "it"}))
	awaitTrigger(t, c, it, causeTrigger, "configmaps "+ns+"/named is new")
	must.Do(t, c.Delete(t.Context(), shared))
	awaitTrigger(t, c, it, causeTrigger, "configmaps "+ns+"/shared was deleted")
	awaitTrigger(t, c, other, causeTrigger, "configmaps "+ns+"/shared was deleted")
	quiet(t, exec, 11, "a run for each change, of each object that it starts")
	must.Be(t, "runs elsewhere", 2, exec.ranFor("far"))

	o.stop()
	o = start(t, cfg, exec, options)
	eventually(t, "the kind is served", func() bool { return o.set.Ready() == nil && strings.Contains(o.log(), "Serving kind") })
	quiet(t, exec, 11, "a restart is not a change")
	o.stop()
	set(ca, "Yg==")
	start(t, cfg, exec, options)
	for _, obj := range []*unstructured.Unstructured{it, other, far} {
		awaitTrigger(t, c, obj, causeTrigger, "triggers: secrets with mark="+ns)
	}
	quiet(t, exec, 14, "what was changed meanwhile runs once")
}

// What a run itself writes starts no other run. What other clients write meanwhile starts one.
func TestTriggers_OwnWritesDoNotCount(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	mark := map[string]string{"mark": ns}
	there, owned := create(t, c, labelled(secretWith(ns, "there", "a"), mark)), labelled(secret(ns, "made"), mark)
	exec := writing(there, owned)
	do := exec.do
	exec.do = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if exec.count() == 3 {
			setPassword(t, c, there, "d")
		}
		return do(ctx, req)
	}
	start(t, cfg, exec, Options{InjectOwnerRef: true, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.WatchDependentResources, w.Triggers = true, []watches.Trigger{startedBy("Secret", ns)}
	})}})
	it := create(t, c, object(gvk, ns, "it", nil))
	awaitCondition(t, c, it, "Ready", "True")
	quiet(t, exec, 1, "its own writes start nothing")
	setPassword(t, c, there, "b")
	awaitTrigger(t, c, it, causeTrigger, "secrets "+ns+"/there was changed")
	quiet(t, exec, 2, "a change starts one run")
	setPassword(t, c, there, "c")
	quiet(t, exec, 4, "a change during a run starts one more")
}

// Which changes start a run, depending on `on`: seen one by one, or together after a restart.
func TestTrigger_On(t *testing.T) {
	t.Parallel()
	id := types.NamespacedName{Namespace: "ns", Name: "it"}
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	is := func(uid types.UID, version string) dependent.Version {
		return dependent.Version{UID: uid, ResourceVersion: version}
	}
	key := types.NamespacedName{Namespace: "ns", Name: "object"}
	for name, tt := range map[string]struct {
		on                                        []watches.Change
		created, updated, replaced, deleted       bool
		createdBefore, updatedBefore, deletedThen bool // while the operator was down
	}{
		"all":               {nil, true, true, true, true, true, true, true},
		"create and delete": {[]watches.Change{watches.Create, watches.Delete}, true, false, true, true, true, false, true},
		"update":            {[]watches.Change{watches.Update}, false, true, false, false, true, true, true},
		"create":            {[]watches.Change{watches.Create}, true, false, true, false, true, false, true},
		"delete":            {[]watches.Change{watches.Delete}, false, false, true, true, true, false, true},
		"create and update": {[]watches.Change{watches.Create, watches.Update}, true, true, true, false, true, true, true},
	} {
		secrets := &referredKind{gvk: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, label: "secrets", namespaced: true}
		fresh := func(v dependent.Version, others ...dependent.Version) *trigger {
			secrets.scanned = false
			is := newTrigger(watches.Trigger{On: tt.on}, secrets, schema.GroupKind{Kind: "Tea"}, true)
			is.put(id, v, true, "")
			for _, v := range others {
				is.put(other, v, true, "")
			}
			secrets.scanned = true
			return is
		}
		pack := func(tr *trigger) string {
			return fingerprint.Pack([]fingerprint.Part{triggered{trigger: tr}.part(digestText(tr.digests[tr.starting(key)]))})
		}
		runs := func(tr *trigger, packed string) bool {
			d := tr.digestFor(key, packed)
			return !fingerprint.Had(packed)(triggered{trigger: tr}.part(d.String()))
		}
		for what, c := range map[string]struct {
			do   func(*trigger)
			want bool
		}{
			"created":  {func(tr *trigger) { tr.put(other, is("b", "1"), true, "") }, tt.created},
			"updated":  {func(tr *trigger) { tr.put(id, is("a", "2"), true, "") }, tt.updated},
			"replaced": {func(tr *trigger) { tr.put(id, is("c", "2"), true, "") }, tt.replaced},
			"deleted":  {func(tr *trigger) { tr.put(id, is("a", "1"), false, "") }, tt.deleted},
		} {
			tr := fresh(is("a", "1"))
			last := pack(tr)
			c.do(tr)
			must.Be(t, name+": a run if one is "+what, c.want, runs(tr, last))
			if now := pack(tr); runs(tr, now) {
				t.Errorf("%s, %s: another run after that one", name, what)
			}
			// Changes that count are seen even among changes that do not.
			tr.put(types.NamespacedName{Namespace: "ns", Name: "third"}, is("d", "1"), true, "")
			must.Be(t, name+": a run if one is "+what+", and another created", c.want || tt.created, runs(tr, last))
		}
		last := pack(fresh(is("a", "1")))
		must.Be(t, name+": created before the start", tt.createdBefore, runs(fresh(is("a", "1"), is("b", "1")), last))
		must.Be(t, name+": updated before the start", tt.updatedBefore, runs(fresh(is("a", "2")), last))
		last = pack(fresh(is("a", "1"), is("b", "1")))
		must.Be(t, name+": deleted before the start", tt.deletedThen, runs(fresh(is("a", "1")), last))
		must.Be(t, name+": nothing before the start", false, runs(fresh(is("a", "1"), is("b", "1")), last))
	}
}

func digestText(d digest) string { return d.String() }

// A trigger for some namespaces follows changes of their labels.
func TestTriggers_InSomeNamespaces(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	elsewhere := testenv.Namespace(t, cfg)
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Triggers = []watches.Trigger{startedBy("ConfigMap", ns, toAll, ofTeam(ns), on(watches.Create, watches.Delete)), startedBy("Node", ns, ofTeam(ns))}
	})}})
	mark := map[string]string{"mark": ns}
	there := create(t, c, labelled(configMap(elsewhere, "there"), mark))
	it := create(t, c, object(gvk, ns, "it", nil))
	awaitCondition(t, c, it, "Ready", "True")
	join := func(team string) {
		namespace := object(namespaceKind(), "", elsewhere, nil)
		update(t, c, namespace, func(is map[string]any) {
			is["metadata"].(map[string]any)["labels"].(map[string]any)["team"] = team
		})
	}
	join(ns)
	awaitTrigger(t, c, it, causeTrigger, "namespaces "+elsewhere+" was changed")
	update(t, c, there, func(is map[string]any) { is["data"] = map[string]any{"key": "other"} })
	create(t, c, labelled(configMap(elsewhere, "other"), mark))
	awaitTrigger(t, c, it, causeTrigger, "configmaps "+elsewhere+"/other is new")
	join("none")
	awaitTrigger(t, c, it, causeTrigger, "namespaces "+elsewhere+" was changed")
	must.Do(t, c.Delete(t.Context(), there))
	quiet(t, exec, 4, "a run for each change that counts")
	if !strings.Contains(o.log(), "A trigger with a namespaceSelector starts nothing") {
		t.Error("the log does not say that nodes are in no namespaces")
	}
	o.stop()
	o = start(t, cfg, exec, Options{Watches: o.set.opts.Watches})
	eventually(t, "the kind is served", func() bool { return o.set.Ready() == nil && strings.Contains(o.log(), "Serving kind") })
	quiet(t, exec, 4, "a restart is not a change")
}

// Without the permission to watch namespaces, the kind is not served.
func TestTriggers_NamespacesMayNotBeWatched(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	limited := testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{gvk.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
	})
	exec := &fakeExecutor{}
	o := start(t, limited, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Triggers = []watches.Trigger{startedBy("ConfigMap", ns, ofTeam(ns))}
	})}})
	create(t, c, object(gvk, ns, "it", nil))
	eventually(t, "readiness says what to grant", func() bool {
		err := o.set.Ready()
		return err != nil && strings.Contains(err.Error(), `grant the operator list, watch on namespaces in all namespaces`)
	})
	must.Be(t, "runs", 0, exec.count())
}
