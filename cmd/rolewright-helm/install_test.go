package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// The name of a release may contain the text that separates name and revision in Helm's records.
func TestMemory_NameLikeARevision(t *testing.T) {
	m, rel := &inMemory{}, &release.Release{Name: "shop.v2", Version: 1, Info: &release.Info{Status: common.StatusDeployed}}
	key := recordOf(rel.Name, rel.Version)
	if err := m.Create(key, rel); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Get(key); got != rel || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := m.Query(map[string]string{"name": "shop.v2", "owner": "helm", "status": "deployed"}); len(got) != 1 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := m.Query(map[string]string{"name": "shop"}); err == nil {
		t.Errorf("%v", got)
	}
	if got, err := m.Delete(key); got != rel || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A release gets its seal before anything else can fail.
func TestSucceed_SealsFirst(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	c.try(h.prepare(nil))
	rel, err := h.last()
	c.try(err)
	c.refuse = func(r *http.Request) int {
		if r.Method == http.MethodGet && r.URL.Path == roles+"it" {
			return http.StatusTooManyRequests
		}
		return 0
	}
	if _, err := h.succeed(t.Context(), rel, upgradeSuccessful, true); err == nil {
		t.Fatal("no error")
	}
	if seal, _, _ := unstructured.NestedString(c.get(itself).Object, "status", "deployedRelease", "seal"); seal == "" {
		t.Errorf("there is no seal: %v", c.get(itself).Object["status"])
	}
}

// If no seal can be stored, a run that changes nothing writes no record.
func TestKeep_WithoutStatusSubresource(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	c.served["demo.example.com/v1"] = c.served["demo.example.com/v1"][:1]
	var was map[string]any
	for range 3 {
		if _, text, err := c.run("reconcile"); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		is := c.get(record).Object
		if was != nil && !reflect.DeepEqual(was, is) {
			t.Error("the record is another one")
		}
		was = is
	}
}

// A release without a seal is upgraded if only a subchart has changed, which its record does not have.
func TestReconcile_OtherSubchart(t *testing.T) {
	c := newCluster(t)
	c.served["demo.example.com/v1"] = c.served["demo.example.com/v1"][:1]
	c.change(itself, func(is *unstructured.Unstructured) { is.Object["spec"] = map[string]any{"a": "b"} })
	c.write(filepath.Join(c.chart, "charts", "sub", "Chart.yaml"), "{apiVersion: v2, name: sub, version: 0.1.0}\n")
	for _, name := range []string{"one", "two"} {
		c.write(filepath.Join(c.chart, "charts", "sub", "templates", "a.yaml"), roleNamed+name+"}\n")
		if _, text, err := c.run("reconcile"); err != nil || c.get(roles+name) == nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	// helm upgrade copies the labels of the revision before it.
	c.rewrite(func(is *release.Release) {
		is.Config, is.Manifest = map[string]any{"a": "c"}, strings.ReplaceAll(is.Manifest, "two", "three")
	})
	if _, text, err := c.run("reconcile"); err != nil || !strings.Contains(text, "ReleaseUpgraded") {
		t.Errorf("after helm upgrade: %v\n%s", err, text)
	}
}

// If an upgrade was cut short and is no longer wanted, the objects that only this upgrade has made are deleted, even if
// the first try fails.
func TestReconcile_UpgradeCutShort(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	c.release(chartOfTwo)
	const more, secrets = configMaps + "more", "/api/v1/namespaces/ns/secrets/"
	c.after(chartOfTwo+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: more, namespace: ns}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: ns}\n",
		"n", common.StatusPendingUpgrade)
	c.makes("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more, namespace: ns}\n")
	theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "theirs", "namespace": "ns"}}}
	c.objects[configMaps+"theirs"] = theirs

	c.refuse = func(r *http.Request) int {
		if r.Method != http.MethodGet && r.URL.Path == configMaps+"it" {
			return http.StatusTooManyRequests
		}
		return 0
	}
	c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.Object["data"] = map[string]any{"a": "of the upgrade"} })
	if _, text, err := c.run("reconcile"); err == nil {
		t.Fatalf("no error\n%s", text)
	}
	c.refuse = nil
	if _, text, err := c.run("reconcile"); err != nil || !strings.Contains(text, "ReleaseRolledBack") {
		t.Fatalf("%v\n%s", err, text)
	}
	if c.get(more) != nil || c.get(configMaps+"it") == nil || c.get(configMaps+"theirs") == nil {
		t.Errorf("what the upgrade has made is left, or what is not its is gone: %v", slices.Sorted(maps.Keys(c.objects)))
	}
	if c.get(secrets+recordOf("it", 2)) != nil || c.get(secrets+recordOf("it", 3)) == nil {
		t.Errorf("records: %v", slices.Sorted(maps.Keys(c.objects)))
	}
}

// A write of a record that the API server does not answer is repeated: otherwise the next run would do again what is done.
func TestInstall_RecordUnanswered(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	unanswered := 0
	c.refuse = func(r *http.Request) int {
		if r.Method == http.MethodPut && r.URL.Path == record {
			if unanswered++; unanswered == 1 {
				return http.StatusServiceUnavailable
			}
		}
		return 0
	}
	_, text, err := c.run("reconcile")
	if status := c.get(record).GetLabels()["status"]; err != nil || unanswered != 2 || status != string(common.StatusDeployed) {
		t.Errorf("%v, %d writes, %s\n%s", err, unanswered, status, text)
	}
}

// An installation has its seal only if it has succeeded, so it is not made again because its record still says pending.
func TestReconcile_InstalledWithAnOldRecord(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	_, _, err := c.run("reconcile")
	c.try(err)
	c.rewrite(func(last *release.Release) { last.Info.Status = common.StatusPendingInstall })
	for _, action := range []string{"check", "reconcile"} {
		r, text, err := c.run(action)
		deployed := c.get(record).GetLabels()["status"] == string(common.StatusDeployed)
		if err != nil || r.changed || strings.Contains(text, "ReleaseInstalled") || deployed != (action == "reconcile") {
			t.Errorf("%s: %v, %+v, deployed %t\n%s", action, err, r, deployed, text)
		}
	}
}

// The CRDs of a chart belong to no object.
func TestUnowned(t *testing.T) {
	is := &unstructured.Unstructured{Object: map[string]any{}}
	list, err := unowned(kube.ResourceList{&resource.Info{Object: is}}, nil)
	if err != nil || len(list) != 1 || is.GetAnnotations()[annotationOwned] != "none" {
		t.Errorf("%v, %v", err, is)
	}
}

// An installation that was cut short may have made objects that the chart no longer makes. They are deleted. Objects that
// are to be kept, and those that others have made, stay.
func TestInstall_CutShort(t *testing.T) {
	const role = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "
	for _, own := range []bool{false, true} {
		c := newCluster(t)
		made := chartOfTwo + role + "more}\n" + role + "kept, annotations: {helm.sh/resource-policy: keep}}\n" + role + "theirs}\n"
		c.release(made)
		c.rewrite(func(last *release.Release) { last.Info.Status = common.StatusPendingInstall })
		c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
		c.change(roles+"theirs", func(is *unstructured.Unstructured) { is.SetAnnotations(nil) })
		c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
		h, _ := c.handler("reconcile")
		h.in.settings.TakeOwnership = own
		if _, err := h.act(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (c.get(roles+"more") != nil) != own || c.get(roles+"kept") == nil || c.get(roles+"theirs") == nil || c.get(roles+"it") == nil {
			t.Errorf("own %t: %v", own, slices.Sorted(maps.Keys(c.objects)))
		}
	}
}

// If only the hooks change, the new record has them and the seal, and the chart is not rendered again because of it.
func TestKeep_OtherHooks(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	template := filepath.Join(c.chart, "templates", "a.yaml")
	c.write(template, chartOfTwo+hook("before", "pre-upgrade"))
	for i, want := range []bool{true, false} {
		_, text, err := c.run("reconcile")
		if rendered := strings.Contains(text, "Render the chart"); err != nil || rendered != want {
			t.Fatalf("run %d: rendered %t, %v\n%s", i, rendered, err, text)
		}
		h, _ := c.handler("reconcile")
		c.try(h.connect())
		rel, err := h.last()
		c.try(err)
		if sealed, err := h.sealed(rel); !sealed || err != nil || rel.Version != 1 || len(rel.Hooks) != 1 {
			t.Errorf("run %d: sealed %t, %v, %d hooks", i, sealed, err, len(rel.Hooks))
		}
	}
}

// An object that cannot be read does not count as missing, because a failed installation would then remove it.
func TestExisting_Unreadable(t *testing.T) {
	c := newCluster(t)
	c.refuse = func(r *http.Request) int {
		if r.URL.Path == roles+"it" {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	if found, err := h.existing(chartOfTwo); err == nil || !strings.Contains(err.Error(), "ClusterRole it") {
		t.Errorf("%t, %v", found, err)
	}
}

// An object that now belongs to another release is not changed back, and is not deleted when it leaves the chart.
func TestReconcile_TakenByOthers(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	template := filepath.Join(c.chart, "templates", "a.yaml")
	c.write(template, chartOfTwo)
	c.change(configMaps+"it", func(is *unstructured.Unstructured) {
		is.SetOwnerReferences(nil)
		is.SetAnnotations(map[string]string{annotationName: "other", annotationNamespace: "ns"})
	})
	theirs := c.get(configMaps + "it").DeepCopy()
	if _, text, err := c.run("reconcile"); err == nil || !strings.Contains(err.Error(), "ConfigMap ns/it: it belongs to the release ns/other now") {
		t.Errorf("%v\n%s", err, text)
	}
	c.write(template, strings.SplitAfter(chartOfTwo, "---\n")[1])
	if _, text, err := c.run("reconcile"); err != nil || !strings.Contains(text, "ReleaseUpgraded") || !strings.Contains(text, "they are kept: ConfigMap ns/it") {
		t.Errorf("%v\n%s", err, text)
	}
	if is := c.get(configMaps + "it"); is == nil || !reflect.DeepEqual(is.Object, theirs.Object) {
		t.Errorf("%v", is)
	}
}

// Owners that others have added to a custom resource stay, and so does what helm-operator has set in the release's owner.
func TestKeep_OwnersOfOthers(t *testing.T) {
	c := newCluster(t)
	const cup = "apiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n"
	c.release(cup)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), cup)
	const at = "/apis/cups.example.com/v1/namespaces/ns/cups/it"
	c.change(at, func(is *unstructured.Unstructured) {
		own := is.GetOwnerReferences()
		if own[0].BlockOwnerDeletion != nil {
			t.Error("the reference blocks the owner's deletion")
		}
		own[0].BlockOwnerDeletion = new(true)
		is.SetOwnerReferences(append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Cupboard", Name: "theirs", UID: "2"}}, own...))
	})
	before := c.get(at).GetOwnerReferences()
	_, text, err := c.run("reconcile")
	if is := c.get(at).GetOwnerReferences(); err != nil || !reflect.DeepEqual(is, before) {
		t.Errorf("%v\n%s\n%v", err, text, is)
	}
}

// If a file has several CRDs and one of them exists, it does not hide that another cannot be created.
func TestCRDs_OneThere(t *testing.T) {
	definition := func(name string) string {
		return "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + name + "}\n"
	}
	for _, names := range [][]string{{"there", "refused"}, {"refused", "there"}} {
		c := newCluster(t)
		c.served["apiextensions.k8s.io/v1"] = []metav1.APIResource{{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}}
		c.write(filepath.Join(c.chart, "crds", "all.yaml"), definition(names[0])+definition(names[1]))
		made := 0
		c.refuse = func(r *http.Request) int {
			if r.Method != http.MethodPost {
				return 0
			}
			made++
			return map[string]int{"there": http.StatusConflict, "refused": http.StatusForbidden}[names[made-1]]
		}
		h, _ := c.handler("reconcile")
		c.try(h.connect())
		c.try(h.prepare(nil))
		if err := h.crds(t.Context(), true); err == nil || !strings.Contains(err.Error(), "crds/all.yaml of the chart") {
			t.Errorf("%v: %v", names, err)
		}
	}
}

// If the tests of a chart fail again, the condition that says so stays.
func TestFinish_TestsFailAgain(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), roleNamed+"it}\n"+hook("probe", "test"))
	c.refuse = func(r *http.Request) int {
		if r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path+"/", configMaps) {
			return http.StatusForbidden
		}
		return 0
	}
	for again := range 2 {
		h, events := c.handler("reconcile")
		h.in.settings.Test = true
		_, err := h.act(t.Context())
		text, readErr := os.ReadFile(events)
		c.try(readErr)
		if err == nil || !strings.Contains(string(text), `"reason":"ChartTestError","type":"event"`) || strings.Contains(string(text), `"remove":true`) {
			t.Fatalf("run %d: %v\n%s", again, err, text)
		}
		c.change(itself, func(is *unstructured.Unstructured) {
			failed := map[string]any{"type": releaseFailed, "status": "True", "reason": "ChartTestError", "message": err.Error()}
			c.try(unstructured.SetNestedSlice(is.Object, []any{failed}, "status", "conditions"))
		})
	}
}
