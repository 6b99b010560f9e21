package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const chartOfTwo = `apiVersion: v1
kind: ConfigMap
metadata: {name: it, namespace: ns}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: it}
`

// finalize uninstalls the release, which succeeds.
func (c *cluster) finalize() {
	c.t.Helper()
	if r, text, err := c.run("finalize"); err != nil || r.waiting != "" {
		c.t.Fatalf("%v, %+v\n%s", err, r, text)
	}
}

// Records belong to no object, so that a foreground deletion leaves them for the finalizer; and where they are gone, as with
// their namespace, what the status has is uninstalled.
func TestUninstall_RecordsGone(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	if is := c.get(record).GetAnnotations(); is["rolewright.dev/owner"] != "none" {
		t.Errorf("the record belongs to the object: annotations %v", is)
	}
	delete(c.objects, record)
	c.finalize()
	for _, at := range []string{configMaps + "it", roles + "it"} {
		if c.get(at) != nil {
			t.Errorf("%s is left", at)
		}
	}
}

// With uninstall-wait, the object waits for what is being deleted as long as that takes, and the records go last.
func TestUninstall_Wait(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	hold := func(finalizers ...string) {
		c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.SetFinalizers(finalizers) })
	}
	hold("example.com/hold")
	c.change(itself, func(is *unstructured.Unstructured) {
		is.SetAnnotations(map[string]string{annotationPrefix + "uninstall-wait": "true"})
	})
	for range 2 {
		if r, text, err := c.run("finalize"); err != nil || !strings.HasSuffix(r.waiting, ": ConfigMap ns/it") || r.requeue == 0 || c.get(record) == nil {
			t.Fatalf("%v, %+v, record %v\n%s", err, r, c.get(record), text)
		}
	}
	hold()
	c.finalize()
	if c.get(record) != nil || c.get(roles+"it") != nil {
		t.Error("something is left")
	}
}
