package main

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
)

// If the rollback of an upgrade failed, too, the objects that only the upgrade has made are deleted, even though the last
// record is the same as the deployed one.
func TestUninstall_RollbackCutShort(t *testing.T) {
	const more = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: more}\n"
	c := newCluster(t)
	c.release(chartOfTwo)
	c.makes(more)
	c.after(chartOfTwo+more, "n", common.StatusFailed)
	rel := c.after(chartOfTwo, "s", common.StatusPendingRollback)
	delete(rel.Labels, labelInputs)
	c.finalize()
	for _, at := range []string{configMaps + "it", roles + "it", roles + "more", record} {
		if c.get(at) != nil {
			t.Errorf("%s is left", at)
		}
	}
}

// An upgrade that was stopped leaves the deployed revision and its seal. The hooks of this revision run even if the chart
// does not render, and the release is uninstalled even if the chart has another name by now.
func TestUninstall_UpgradeStopped(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	rel, err := h.last()
	c.try(err)
	rel.Hooks = []*release.Hook{{
		Name: "bye", Kind: "ConfigMap", Path: "bye.yaml", Events: []release.HookEvent{release.HookPreDelete},
		Manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bye, namespace: ns}\n",
	}}
	c.try(h.config.Releases.Update(rel))
	h.trusted = true
	c.try(h.writeDeployed(t.Context(), rel))
	c.after(chartOfTwo, "n", common.StatusFailed)
	c.write(filepath.Join(c.chart, "Chart.yaml"), "{apiVersion: v2, name: samovar, version: 0.1.0}\n")
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), "{{ fail `no` }}")
	h, _ = c.handler("finalize")
	c.try(h.connect())
	history, err := h.history()
	c.try(err)
	last, err := h.removable(t.Context(), history)
	if err != nil || last == nil || last.Version != 2 || len(last.Hooks) != 1 || !strings.Contains(last.Manifest, "ClusterRole") {
		t.Errorf("%v, %+v", err, last)
	}
}
