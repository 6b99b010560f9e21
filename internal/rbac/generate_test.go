package rbac

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestGenerate_WhatAWatchRefersTo(t *testing.T) {
	known := map[string]Resource{
		"a.b/v1 Tea": {Group: "a.b", Name: "teas", Kind: "Tea", Namespaced: true},
		"v1 Secret":  {Name: "secrets", Kind: "Secret", Namespaced: true}, "v1 Namespace": {Name: "namespaces", Kind: "Namespace"}, "v1 ConfigMap": {Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
	}
	out, err := Generate(Input{
		WatchesFile: "watches.yaml",
		Find:        func(apiVersion, kind string) (Resource, bool) { r, ok := known[apiVersion+" "+kind]; return r, ok },
		Watches: []watches.Watch{{
			GVK: schema.GroupVersionKind{Group: "a.b", Version: "v1", Kind: "Tea"},
			References: []watches.Reference{
				{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}, {GVK: schema.GroupVersionKind{Group: "c.d", Version: "v1", Kind: "Cup"}},
			},
			Triggers: []watches.Trigger{{
				GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
			}},
			VarsFrom: []watches.VarsFrom{{Name: "defaults"}},
		}},
	})
	if err != nil || len(out.Gaps) != 1 {
		t.Errorf("gaps %v, error %v; want one of the kind Cup", out.Gaps, err)
	}
	var got []string
	for n := range out.Needs {
		got = append(got, fmt.Sprint(n.Verb, " ", n.Resource))
	}
	slices.Sort(got)
	want := []string{"get configmaps", "get teas", "list configmaps", "list namespaces", "list secrets", "list teas", "watch configmaps", "watch namespaces", "watch secrets", "watch teas"}
	must.Be(t, "permissions", want, got)
}

// A cluster-scoped owner is found through the owner references of cluster-scoped objects, whatever
// watchClusterScopedResources says.
func TestGenerate_DependentsOfAClusterScopedOwner(t *testing.T) {
	known := map[string]Resource{
		"a.b/v1 Tea": {Group: "a.b", Name: "teas", Kind: "Tea"}, "a.b/v1 Cup": {Group: "a.b", Name: "cups", Kind: "Cup", Namespaced: true},
		"rbac.authorization.k8s.io/v1 clusterroles": {Group: "rbac.authorization.k8s.io", Name: "clusterroles", Kind: "ClusterRole"},
	}
	for owner, want := range map[string]bool{"Tea": true, "Cup": false} {
		out := must.Get(Generate(Input{
			WatchesFile: "watches.yaml", InjectOwnerRef: true,
			Find:    func(apiVersion, kind string) (Resource, bool) { r, ok := known[apiVersion+" "+kind]; return r, ok },
			Watches: []watches.Watch{{GVK: schema.GroupVersionKind{Group: "a.b", Version: "v1", Kind: owner}, WatchDependentResources: true}},
			Calls:   []Call{{Verb: "create", Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Owner: owner + ".a.b", Owned: true}},
		}))(t)
		watched := false
		for n := range out.Needs {
			watched = watched || n.Resource == "clusterroles" && n.Verb == "watch"
		}
		if watched != want {
			t.Errorf("owned by a %s: watched %t, want %t", owner, watched, want)
		}
	}
}

// If one version of a kind is known, unknown versions of this kind are left out. Unknown kinds stay.
func TestKnown_LeavesOutOtherVersions(t *testing.T) {
	g := generator{Input: Input{Find: func(apiVersion, _ string) (Resource, bool) { return Resource{}, apiVersion == "v1" }}}
	pod, cup := tasks.Use{APIVersion: "v1", Kind: "Pod"}, tasks.Use{APIVersion: "a.b/v1", Kind: "Cup"}
	must.Be(t, "what remains", []tasks.Use{pod, cup}, g.known([]tasks.Use{pod, {APIVersion: "v0/x", Kind: "Pod"}, cup}))
}
