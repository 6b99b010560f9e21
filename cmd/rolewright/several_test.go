package main

import (
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

// explain and inventory read WATCH_NAMESPACE as run does.
func TestExplain_OfSeveralNamespaces(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	must.Do(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	t.Setenv("KUBECONFIG", config)
	t.Setenv(envWatchNamespace, " a, b,")
	must.Be(t, "namespace of the object", "a", must.Get(new(explainOptions).connect())(t).namespace)
}
