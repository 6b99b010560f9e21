package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// hook is a ConfigMap that is a hook. The cluster serves nothing to wait for it with: it is never ready.
func hook(name, event string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: ns, annotations: {helm.sh/hook: " + event + "}}\n"
}

// An upgrade whose hooks take longer than the run is rolled back before the run is stopped, though each may take as long.
func TestUpgrade_SlowHook(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1)+hook("before", "pre-upgrade"))
	h, file := c.handler("reconcile")
	h.deadline = time.Now().Add(5 * time.Second)
	ctx, stop := context.WithDeadline(t.Context(), h.deadline)
	defer stop()
	_, err := h.act(ctx)
	text, readErr := os.ReadFile(file)
	c.try(readErr)
	if err == nil || !strings.Contains(err.Error(), "revision 1 was restored") || !strings.Contains(string(text), "ReleaseRolledBack") {
		t.Errorf("%v\n%s", err, text)
	}
}

// A hook replaces neither what others have made under its name, nor fails for what one of an earlier run has left.
func TestUpgrade_HookOfOthers(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1)+hook("before", "pre-upgrade"))
	for _, uid := range []types.UID{"", "1"} {
		c.objects[configMaps+"before"] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "before", "namespace": "ns"}, "data": map[string]any{"of": "others"},
		}}
		if uid != "" {
			c.change(configMaps+"before", func(is *unstructured.Unstructured) {
				is.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "demo.example.com/v1", Kind: "Kettle", Name: "it", UID: uid}})
			})
		}
		h, _ := c.handler("reconcile")
		h.timeout = time.Second
		_, err := h.act(t.Context())
		theirs := err != nil && strings.Contains(err.Error(), "ConfigMap ns/before exists and carries no mark of the release it")
		is := c.get(configMaps + "before")
		if theirs != (uid == "") || (is != nil && is.Object["data"] != nil) != theirs {
			t.Errorf("uid %q: %v; %v", uid, err, is)
		}
	}
}
