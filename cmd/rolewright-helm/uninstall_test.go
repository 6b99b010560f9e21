package main

import (
	"testing"
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
