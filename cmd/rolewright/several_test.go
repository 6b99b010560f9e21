package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// If a kind has several watches, template and once take the watch that the labels of the object select.
func TestWatchOf_SeveralWatchesOfAKind(t *testing.T) {
	role := t.TempDir()
	file := filepath.Join(t.TempDir(), "watches.yaml")
	entry := func(rest string) string { return "- {group: g.test, kind: Tea, role: " + role + ", " + rest + "}\n" }
	must.Do(t, os.WriteFile(file, []byte(
		entry("version: v1, selector: {matchLabels: {tier: gold}}")+
			entry("version: v1, selector: {matchLabels: {tier: silver}}")+
			entry("version: v2, executor: job")), 0o600))
	o := &runOptions{watchesFile: file}
	tea := func(version, tier string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetAPIVersion("g.test/" + version)
		obj.SetKind("Tea")
		obj.SetName("it")
		obj.SetLabels(map[string]string{"tier": tier})
		return obj
	}
	must.Be(t, "the second", 2, must.Get(o.watchOf(tea("v1", "silver")))(t).Pos.Line)
	second := must.Get(o.watchOf(tea("v2", "gold")))(t)
	must.Be(t, "that of the version", 3, second.Pos.Line)
	must.Be(t, "how it is run on this machine", watches.ExecutorRunner, second.Executor)
	_, err := o.watchOf(tea("v1", "tin"))
	must.Be(t, "an object of none", file+": no watch runs Tea.g.test it: its labels match none of the selectors: tier=gold; tier=silver", err.Error())

	all := must.Get(kindOf(must.Get(o.loadWatches(logr.Discard()))(t), "tea"))(t)
	must.Be(t, "watches of the kind", 3, len(all))
}

// explain and inventory say that no watch runs an object: also if there is one watch of its kind, and if its namespace is not
// watched. An object that is being deleted may still get the finalizer run of a watch that no longer matches.
func TestExplain_ObjectOfNoWatch(t *testing.T) {
	dir, object := t.TempDir(), ""
	answers := map[string]string{
		"/api":                                 `{"kind": "APIVersions", "versions": []}`,
		"/apis":                                `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "g.test", "versions": [{"groupVersion": "g.test/v1", "version": "v1"}]}]}`,
		"/apis/g.test/v1":                      `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "g.test/v1", "resources": [{"name": "teas", "kind": "Tea", "namespaced": true, "verbs": ["get"]}]}`,
		"/apis/g.test/v1/namespaces/c/teas/it": "",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer, ok := answers[r.URL.Path]; ok {
			_, _ = io.WriteString(w, cmp.Or(answer, object))
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	config, file := filepath.Join(dir, "config"), filepath.Join(dir, "watches.yaml")
	must.Do(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \""+server.URL+"\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	must.Do(t, os.WriteFile(file, []byte("- {group: g.test, version: v1, kind: Tea, role: "+dir+", selector: {matchLabels: {tier: gold}}, finalizer: {name: g.test/end, role: "+dir+"}}\n"), 0o600))
	t.Setenv("KUBECONFIG", config)
	o := &explainOptions{namespace: "c"}
	o.watchesFile = file
	for _, tt := range []struct{ name, namespaces, metadata, want string }{
		{"its labels do not match", "", "", file + ": no watch runs Tea.g.test it: its labels match none of the selectors: tier=gold"},
		{"they match", "", `, "labels": {"tier": "gold"}`, "<nil>"},
		{"its finalizer is left", "", `, "deletionTimestamp": "2026-05-06T18:00:00Z", "finalizers": ["g.test/end"]`, "<nil>"},
		{"in a watched namespace", "b,c", `, "labels": {"tier": "gold"}`, "<nil>"},
		{"in another namespace", "a,b", `, "labels": {"tier": "gold"}`, "no watch runs objects in namespace c: WATCH_NAMESPACE is a, b; if the operator has another value, set that"},
	} {
		t.Setenv(envWatchNamespace, tt.namespaces)
		object = `{"apiVersion": "g.test/v1", "kind": "Tea", "metadata": {"name": "it", "namespace": "c"` + tt.metadata + `}}`
		_, _, _, err := o.find(t.Context(), "tea/it")
		must.Be(t, tt.name, tt.want, fmt.Sprint(err))
	}
}

// explain and inventory read WATCH_NAMESPACE as run does.
func TestExplain_OfSeveralNamespaces(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	must.Do(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	t.Setenv("KUBECONFIG", config)
	t.Setenv(envWatchNamespace, " a, b,")
	must.Be(t, "namespace of the object", "a", must.Get(new(explainOptions).connect())(t).namespace)
}
