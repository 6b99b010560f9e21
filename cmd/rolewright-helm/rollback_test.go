package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// hook returns a ConfigMap that is a hook. The cluster does not serve what Helm needs to wait for it, so it never becomes
// ready.
func hook(name, event string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: ns, annotations: {helm.sh/hook: " + event + "}}\n"
}

// If an upgrade's hooks together take longer than the run may, the upgrade is rolled back before the run is stopped, even
// if each hook stays within the limit.
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
	if err == nil || !strings.Contains(err.Error(), "revision 1 was restored") || !strings.Contains(err.Error(), "set a longer timeout") || !strings.Contains(string(text), "ReleaseRolledBack") {
		t.Errorf("%v\n%s", err, text)
	}
}

// A run that is stopped does not wait for a test of the chart, or for its definitions. The test counts as not run.
func TestReconcile_StoppedWhileItWaits(t *testing.T) {
	const definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: probe}\n"
	for made, file := range map[string]string{path.Clean(configMaps): "templates/a.yaml", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "crds/a.yaml"} {
		c := newCluster(t)
		c.served["apiextensions.k8s.io/v1"] = []metav1.APIResource{{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}}
		c.write(filepath.Join(c.chart, file), map[string]string{"templates/a.yaml": roleNamed + "it}\n" + hook("probe", "test"), "crds/a.yaml": definition}[file])
		ctx, stop := context.WithCancel(t.Context())
		c.refuse = func(r *http.Request) int {
			if r.Method == http.MethodPost && r.URL.Path == made {
				stop()
			}
			return 0
		}
		h, events := c.handler("reconcile")
		h.in.settings.Test, h.timeout = true, 5*time.Second
		_, err := h.act(ctx)
		text, readErr := os.ReadFile(events)
		c.try(readErr)
		if err == nil || !strings.Contains(err.Error(), "context canceled") || strings.Contains(string(text), "ChartTestError") {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
		stop()
	}
}

// A hook does not replace an object that others have made under its name, and does not fail because of an object that an
// earlier run has left.
func TestUpgrade_HookOfOthers(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1)+hook("before", "pre-upgrade"))
	for _, uid := range []types.UID{"", "1", "2"} { // the object had another UID before
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

// A rollback deletes what the upgrade has made. It does not delete what the upgrade has found: objects that takeOwnership
// took over, and objects that others have made in the meantime.
func TestUpgrade_RollbackLeavesWhatWasFound(t *testing.T) {
	for _, take := range []bool{true, false} {
		c := newCluster(t)
		c.release(chartOfTwo)
		find := func() {
			c.objects[roles+"found"] = &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "found"},
			}}
		}
		event := "pre-upgrade"
		if take {
			event = "post-upgrade"
			find()
		}
		c.refuse = func(r *http.Request) int {
			if r.Method != http.MethodPost || r.URL.Path != path.Clean(configMaps) {
				return 0
			}
			if !take {
				find()
			}
			return http.StatusForbidden
		}
		c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo+roleNamed+"found}\n"+roleNamed+"made}\n"+hook("it-fails", event))
		h, _ := c.handler("reconcile")
		h.in.settings.TakeOwnership = take
		_, err := h.act(t.Context())
		if is := c.get(roles + "found"); err == nil || !strings.Contains(err.Error(), "revision 1 was restored") || is == nil {
			t.Errorf("takeOwnership %t: %v; %v", take, err, is)
		}
		if c.get(roles+"made") != nil {
			t.Errorf("takeOwnership %t: what the upgrade has made is left", take)
		}
	}
}

// If an object leaves the release and cannot be read, it may belong to another release, so it is not deleted.
func TestUpgrade_LeavesWhatCannotBeRead(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Split(chartOfTwo, "---")[0])
	read := 0
	c.refuse = func(r *http.Request) int {
		if r.Method != http.MethodGet || r.URL.Path != roles+"it" {
			return 0
		}
		if read++; read > 1 {
			return 0
		}
		return http.StatusServiceUnavailable
	}
	_, text, err := c.run("reconcile")
	if err != nil || read == 0 || c.get(roles+"it") == nil || !strings.Contains(text, "cannot be read, and may belong to another release by now; they are kept: ClusterRole it: ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The record of the deployed revision may say that another one has replaced it, while there is none that has. An upgrade
// starts from it nevertheless: a failed revision above it, which others may have forged, does not say what to delete.
func TestUpgrade_FromTheRevisionThatCounts(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.rewrite(func(last *release.Release) { last.Info.Status = common.StatusSuperseded })
	c.objects[roles+"theirs"] = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "theirs"},
	}}
	c.after(chartOfTwo+roleNamed+"theirs}\n", "n", common.StatusFailed)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1))
	h, file := c.handler("reconcile")
	h.in.settings.MaxHistory = 2
	_, err := h.act(t.Context())
	text, readErr := os.ReadFile(file)
	c.try(readErr)
	if err != nil || !strings.Contains(string(text), "ReleaseUpgraded") || c.get(roles+"theirs") == nil || c.get(record) == nil {
		t.Fatalf("%v, %v\n%s", err, slices.Sorted(maps.Keys(c.objects)), text)
	}
	if status := c.get(record).GetLabels()["status"]; status != string(common.StatusSuperseded) {
		t.Errorf("revision 1 is %s", status)
	}
}

const roleNamed = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "

// refusing makes the cluster refuse patches of the ConfigMap while *is is true.
func (c *cluster) refusing(is *bool) {
	c.refuse = func(r *http.Request) int {
		if *is && r.Method != http.MethodGet && r.URL.Path == configMaps+"it" {
			return http.StatusTooManyRequests
		}
		return 0
	}
}

// Objects that several failed upgrades have made are deleted, even if the first try fails, and even if only one record is
// kept.
func TestReconcile_UpgradesCutShort(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	c.release(chartOfTwo)
	c.makes(roleNamed + "one}\n" + roleNamed + "two}\n")
	c.after(chartOfTwo+roleNamed+"one}\n", "n", common.StatusFailed)
	c.after(chartOfTwo+roleNamed+"two}\n", "m", common.StatusFailed)
	c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.Object["data"] = map[string]any{"a": "of the upgrade"} })
	refuse := true
	c.refusing(&refuse)
	for range 2 {
		h, _ := c.handler("reconcile")
		h.in.settings.MaxHistory = 1
		if _, err := h.act(t.Context()); (err != nil) != refuse {
			t.Fatal(err)
		}
		refuse = false
	}
	if c.get(roles+"one") != nil || c.get(roles+"two") != nil || c.get(roles+"it") == nil {
		t.Errorf("what the upgrades have made is left: %v", slices.Sorted(maps.Keys(c.objects)))
	}
}

// If an upgrade was cut short and another one is wanted, the new upgrade takes over the objects that the first one has
// made. No rollback removes them before.
func TestReconcile_FixForward(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	for _, status := range []common.Status{common.StatusPendingUpgrade, common.StatusFailed} {
		c.after(chartOfTwo+roleNamed+"db}\n", string(status), status)
	}
	c.makes(roleNamed + "db}\n")
	c.change(roles+"db", func(is *unstructured.Unstructured) { is.Object["data"] = "what it has" })
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1)+roleNamed+"db}\n")
	_, text, err := c.run("reconcile")
	if err != nil || strings.Contains(text, "ReleaseRolledBack") || !strings.Contains(text, "ReleaseUpgraded") {
		t.Fatalf("%v\n%s", err, text)
	}
	if is := c.get(roles + "db"); is == nil || is.Object["data"] != "what it has" {
		t.Errorf("it was made again: %v", is)
	}
}

// What an interrupted upgrade has written into a custom resource does not stay after the next upgrade, whatever that one
// changes.
func TestReconcile_CustomResourceOfUpgradeCutShort(t *testing.T) {
	c := newCluster(t)
	cup := func(spec string) string {
		return chartOfTwo + "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\nspec: " + spec + "\n"
	}
	c.release(cup("{size: 1, colour: red}"))
	c.after(cup("{size: 5, colour: red}"), "n", common.StatusFailed)
	const at = "/apis/cups.example.com/v1/namespaces/ns/cups/it"
	c.change(at, func(is *unstructured.Unstructured) {
		is.Object["spec"] = map[string]any{"size": int64(5), "colour": "red"}
		is.SetOwnerReferences(append(is.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "Cupboard", Name: "theirs", UID: "2"}))
	})
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), cup("{size: 1, colour: blue}"))
	_, text, err := c.run("reconcile")
	is := c.get(at)
	if got, _ := json.Marshal(is.Object["spec"]); err != nil || string(got) != `{"colour":"blue","size":1}` || len(is.GetOwnerReferences()) != 2 || strings.Contains(text, "DriftCorrected") {
		t.Errorf("%v, %s, owners %v\n%s", err, got, is.GetOwnerReferences(), text)
	}
}

// An object that an upgrade has marked to be kept stays when the release is uninstalled, even if the upgrade was cut
// short.
func TestUninstall_KeptByAnUpgradeThatWasCutShort(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.after(strings.Replace(chartOfTwo, "{name: it, namespace: ns}", "{name: it, namespace: ns, annotations: {helm.sh/resource-policy: keep}}", 1), "n", common.StatusFailed)
	c.finalize()
	if c.get(configMaps+"it") == nil || c.get(roles+"it") != nil {
		t.Errorf("%v", slices.Sorted(maps.Keys(c.objects)))
	}
}

// Objects that an installation has found were not made by it, whatever marks they have.
func TestReconcile_InstallationThatFoundObjects(t *testing.T) {
	for _, label := range []string{"", "true"} {
		c := newCluster(t)
		c.release(chartOfTwo)
		c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
		c.rewrite(func(last *release.Release) {
			last.Info.Status, last.Labels = common.StatusFailed, map[string]string{labelSalt: "s", labelFound: label}
		})
		c.write(filepath.Join(c.chart, "templates", "a.yaml"), roleNamed+"it}\n")
		if _, text, err := c.run("reconcile"); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if left := c.get(configMaps+"it") != nil; left != (label != "") {
			t.Errorf("label %q: it is left: %t", label, left)
		}
	}
}
