package main

import (
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// finalize uninstalls the release and expects success.
func (c *cluster) finalize() {
	c.t.Helper()
	if r, text, err := c.run("finalize"); err != nil || r.waiting != "" {
		c.t.Fatalf("%v, %+v\n%s", err, r, text)
	}
}

// Records have no owner, so that a foreground deletion leaves them for the finalizer. If they are gone, as with their
// namespace, the objects in the status are uninstalled.
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

// The status hides values and leaves out fields, but still names all objects.
func TestUninstall_RecordsGone_Shown(t *testing.T) {
	c := newCluster(t)
	c.from = []valuesSource{{Secret: true, Data: map[string]string{"username": "postgres", "config": "apiVersion: v1\nmetadata:\n  namespace: ns\nConfigMap"}}}
	kept := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, namespace: ns, annotations: {helm.sh/resource-policy: keep, a: postgres}}\n"
	long := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: long, namespace: ns}\ndata: {a: " + strings.Repeat("x", maxManifest) + "}\n"
	list := "---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: postgres-2, namespace: ns}, data: {a: postgres}}]\n"
	c.release("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: it-postgresql\n  namespace: ns\ndata: {a: postgres}\n" + kept + long + list + "---\n" + chartOfTwo)
	delete(c.objects, record)
	c.finalize()
	for _, name := range []string{"it-postgresql", "long", "postgres-2", "it"} {
		if c.get(configMaps+name) != nil {
			t.Errorf("%s is left", name)
		}
	}
	if c.get(roles+"it") != nil || c.get(configMaps+"kept") == nil {
		t.Error("the ClusterRole is left, or what is to be kept is gone")
	}
}

// With uninstall-wait, the object waits until all its objects are deleted. The records are deleted last.
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

// fails expects a run to fail with that text and to leave the record.
func (c *cluster) fails(want string) {
	c.t.Helper()
	if r, text, err := c.run("finalize"); err == nil || !strings.Contains(err.Error(), want) || c.get(record) == nil {
		c.t.Fatalf("%v, not %s; %+v, record %v\n%s", err, want, r, c.get(record), text)
	}
}

// Objects that cannot be read or deleted are left for the next try, and the error says why.
func TestUninstall_Refused(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	for method, code := range map[string]int{http.MethodGet: http.StatusServiceUnavailable, http.MethodDelete: http.StatusForbidden} {
		c.refuse = func(r *http.Request) int {
			if r.Method == method && r.URL.Path == roles+"it" {
				return code
			}
			return 0
		}
		c.fails("refused by the test")
	}
	c.refuse = nil
	c.finalize()
	if c.get(roles+"it") != nil {
		t.Error("the ClusterRole is left")
	}
}

// Helm reads objects again before it deletes them, and skips those that it cannot read.
func TestUninstall_RefusedToHelm(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	reads := 0
	c.refuse = func(r *http.Request) int {
		if r.Method != http.MethodGet || r.URL.Path != roles+"it" {
			return 0
		}
		if reads++; reads != 2 {
			return 0
		}
		return http.StatusServiceUnavailable
	}
	c.fails("could not be read, and are not deleted yet: ClusterRole it")
	c.finalize()
	if c.get(roles+"it") != nil || c.get(record) != nil {
		t.Error("the ClusterRole or the record is left")
	}
}

// helm-operator creates missing objects without Helm's marks. They are deleted with their release if they have
// helm-operator's marks.
func TestUninstall_MarksOfHelmOperator(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
	c.change(roles+"it", func(is *unstructured.Unstructured) {
		is.SetLabels(nil)
		is.SetAnnotations(map[string]string{annotationOwner: "ns/it", annotationOwnerType: "Kettle.demo.example.com"})
	})
	c.finalize()
	if c.get(roles+"it") != nil {
		t.Error("the ClusterRole is left")
	}
}

// An object that others have made under the name of an object of the release is left alone, and named.
func TestUninstall_MadeByOthers(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: kept}\n")
	made := func(at string, annotations map[string]string) {
		c.change(at, func(is *unstructured.Unstructured) {
			is.SetLabels(nil)
			is.SetAnnotations(annotations)
			is.SetOwnerReferences(nil)
		})
	}
	made(configMaps+"it", nil)
	made(roles+"it", map[string]string{annotationOwner: "ns/other", annotationOwnerType: "Kettle.demo.example.com"})
	made(roles+"kept", map[string]string{annotationOwner: "ns/it", annotationOwnerType: "Kettle.demo.example.com", annotationPolicy: "keep"})
	_, text, err := c.run("finalize")
	c.try(err)
	if !strings.Contains(text, "UnverifiedRelease") || !strings.Contains(text, "ConfigMap ns/it, ClusterRole it, ClusterRole kept") || c.get(record) != nil {
		t.Errorf("record %v\n%s", c.get(record), text)
	}
	for _, at := range []string{configMaps + "it", roles + "it", roles + "kept"} {
		if is := c.get(at); is == nil || is.GetLabels() != nil {
			t.Errorf("%s: %v", at, is)
		}
	}
}

// Objects that others make while the uninstallation waits for the rest belong to them.
func TestUninstall_Wait_MadeByOthers(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.SetFinalizers([]string{"example.com/hold"}) })
	c.change(itself, func(is *unstructured.Unstructured) {
		is.SetAnnotations(map[string]string{annotationPrefix + "uninstall-wait": "true"})
	})
	for range 2 {
		r, text, err := c.run("finalize")
		if is := c.get(roles + "it"); err != nil || r.waiting == "" || is != nil && is.GetLabels() != nil || strings.Contains(text, "UnverifiedRelease") {
			t.Fatalf("%v, %+v, %v\n%s", err, r, is, text)
		}
		c.objects[roles+"it"] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "it"},
		}}
	}
}

// A kind that is no longer served does not block a release. A kind whose API does not answer does.
func TestUninstall_KindGone(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo + "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n")
	c.refuse = func(r *http.Request) int {
		if strings.HasPrefix(r.URL.Path, "/apis/cups.example.com") {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	c.fails("no matches for kind")
	c.refuse = nil
	delete(c.served, "cups.example.com/v1")
	c.finalize()
	if c.get(roles+"it") != nil {
		t.Error("the ClusterRole is left")
	}
}

// Objects of a kind that is no longer served are left out of the revision, and the chart is rendered again.
func TestWanted_KindGone(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates/all.yaml"), chartOfTwo)
	c.release(chartOfTwo + "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n")
	for _, gone := range []bool{false, true} {
		h, _ := c.handler("reconcile")
		c.try(h.connect())
		history, err := h.history()
		c.try(err)
		c.try(h.prepare(history))
		inputs, err := h.inputs()
		c.try(err)
		is := history[0]
		is.Labels[labelInputs] = inputs
		c.change(itself, func(o *unstructured.Unstructured) {
			c.try(unstructured.SetNestedField(o.Object, h.sealOf(is), "status", "deployedRelease", "seal"))
		})
		h.in.Object = *c.get(itself)
		if gone {
			delete(c.served, "cups.example.com/v1")
		}
		wanted, err := h.wanted(t.Context(), is)
		c.try(err)
		if strings.Contains(wanted.manifest, "Cup") == gone || strings.Contains(is.Manifest, "Cup") == gone || !h.trusted {
			t.Errorf("gone %t, trusted %t: wanted\n%s\nis\n%s", gone, h.trusted, wanted.manifest, is.Manifest)
		}
	}
}

// If a kind is left out of a revision, the revision keeps its seal. So the object waits for the rest even if the chart has
// another name by now.
func TestUninstall_KindGone_Wait(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo + "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n")
	delete(c.served, "cups.example.com/v1")
	c.write(filepath.Join(c.chart, "Chart.yaml"), "{apiVersion: v2, name: samovar, version: 0.1.0}\n")
	c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.SetFinalizers([]string{"example.com/hold"}) })
	c.change(itself, func(is *unstructured.Unstructured) {
		is.SetAnnotations(map[string]string{annotationPrefix + "uninstall-wait": "true"})
	})
	for range 2 {
		if r, text, err := c.run("finalize"); err != nil || r.waiting == "" || c.get(record) == nil {
			t.Fatalf("%v, %+v, record %v\n%s", err, r, c.get(record), text)
		}
	}
	c.change(configMaps+"it", func(is *unstructured.Unstructured) { is.SetFinalizers(nil) })
	c.finalize()
	if c.get(record) != nil {
		t.Error("the record is left")
	}
}

// The status keeps the seal of such a revision if the chart makes the rest of it.
func TestReconcile_KindGone(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates/all.yaml"), chartOfTwo)
	c.release(chartOfTwo + "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n")
	delete(c.served, "cups.example.com/v1")
	seal := func() string {
		is, _, _ := unstructured.NestedString(c.get(itself).Object, "status", "deployedRelease", "seal")
		return is
	}
	before := seal()
	if _, text, err := c.run("reconcile"); err != nil || seal() != before || before == "" {
		t.Errorf("%v, seal %s, was %s\n%s", err, seal(), before, text)
	}
}

// If an object of a failed installation is still being deleted, it does not count as found. So when the next installation
// makes it and fails, it is removed.
func TestExisting_BeingDeleted(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	for _, want := range []bool{true, false} {
		if found, err := h.existing(chartOfTwo); err != nil || found != want {
			t.Errorf("%t, %v; want %t", found, err, want)
		}
		delete(c.objects, roles+"it")
		c.change(configMaps+"it", func(is *unstructured.Unstructured) {
			now := metav1.Now()
			is.SetFinalizers([]string{"example.com/hold"})
			is.SetDeletionTimestamp(&now)
		})
	}
}

// An object that can have no release goes at once when it is deleted. Otherwise its runs are refused.
func TestAct_NoRelease(t *testing.T) {
	c := newCluster(t)
	for name, namespace := range map[string]string{strings.Repeat("a", 64): "ns", "it": ""} {
		c.change(itself, func(is *unstructured.Unstructured) {
			is.SetName(name)
			is.SetNamespace(namespace)
		})
		c.finalize()
		if _, text, err := c.run("reconcile"); !errors.As(err, new(refusal)) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// A release with the seal of the object belongs to the object, even if the chart has another name by now. Without the
// seal, a release of another chart stays.
func TestUninstall_ChartRenamed(t *testing.T) {
	for sealed, left := range map[bool]bool{true: false, false: true} {
		c := newCluster(t)
		c.release(chartOfTwo)
		c.write(filepath.Join(c.chart, "Chart.yaml"), "{apiVersion: v2, name: samovar, version: 0.1.0}\n")
		if !sealed {
			c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
		}
		c.finalize()
		if is := c.get(roles+"it") != nil; is != left {
			t.Errorf("sealed %t: the ClusterRole is left: %t", sealed, is)
		}
	}
}

// If an object of another kind has the same name as one with a release, it neither takes over nor uninstalls this release.
// An object in another namespace has nothing to do with the release.
func TestRelease_OfAnotherKind(t *testing.T) {
	owned := func(is *unstructured.Unstructured) {
		is.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "demo.example.com/v1", Kind: "Samovar", Name: "it", UID: "2", Controller: new(true)}})
	}
	annotated := func(namespace string) func(is *unstructured.Unstructured) {
		return func(is *unstructured.Unstructured) {
			is.SetAnnotations(map[string]string{
				annotationName: "it", annotationNamespace: namespace, annotationOwner: namespace + "/it", annotationOwnerType: "Samovar.demo.example.com",
			})
		}
	}
	for _, tt := range []struct {
		at     string
		change func(is *unstructured.Unstructured)
		owns   string
	}{
		{configMaps + "it", owned, "ConfigMap ns/it"},
		{roles + "it", annotated("ns"), "ClusterRole it"},
		{roles + "it", func(is *unstructured.Unstructured) { annotated("other")(is); owned(is) }, ""},
	} {
		c := newCluster(t)
		c.release(chartOfTwo)
		c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1))
		c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
		c.change(tt.at, tt.change)
		c.after(chartOfTwo, "n", common.StatusPendingUpgrade)
		before := maps.Clone(c.objects)
		if _, _, err := c.run("reconcile"); err == nil || strings.Contains(err.Error(), "the release it belongs to Samovar.demo.example.com it, which owns "+tt.owns) != (tt.owns != "") {
			t.Error(err)
		}
		_, text, err := c.run("finalize")
		if err != nil || !strings.Contains(text, "UnverifiedRelease") || reflect.DeepEqual(c.objects, before) != (tt.owns != "") {
			t.Errorf("%v\n%s\n%v", err, text, slices.Sorted(maps.Keys(c.objects)))
		}
	}
}

// A kept object outlives the object it was made for. It does not make the release count as that of an object of another
// kind.
func TestRelease_KeptOfAnotherKind(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.change(itself, func(is *unstructured.Unstructured) { delete(is.Object, "status") })
	c.change(roles+"it", func(is *unstructured.Unstructured) {
		is.SetAnnotations(map[string]string{
			annotationName: "it", annotationNamespace: "ns", annotationOwner: "ns/it", annotationOwnerType: "Samovar.demo.example.com", annotationPolicy: "keep",
		})
	})
	if _, text, err := c.run("reconcile"); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// If no object of a release exists, as when its installation has just begun, its records say whose release it is.
func TestRelease_OfAnotherKind_NoObjects(t *testing.T) {
	c := newCluster(t)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo)
	if _, text, err := c.run("reconcile"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c.rewrite(func(last *release.Release) { last.Info.Status = common.StatusPendingInstall })
	delete(c.objects, configMaps+"it")
	delete(c.objects, roles+"it")
	c.change(itself, func(is *unstructured.Unstructured) {
		delete(is.Object, "status")
		is.SetKind("Samovar")
	})
	before := maps.Clone(c.objects)
	if _, _, err := c.run("reconcile"); err == nil || !strings.Contains(err.Error(), "the release it belongs to an object of another kind") {
		t.Error(err)
	}
	if _, text, err := c.run("finalize"); err != nil || !strings.Contains(text, "UnverifiedRelease") || !reflect.DeepEqual(c.objects, before) {
		t.Errorf("%v\n%s\n%v", err, text, slices.Sorted(maps.Keys(c.objects)))
	}
}

// An upgrade that was cut short has not removed the objects that it leaves out.
func TestUninstall_UpgradeCutShort(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	c.try(h.config.Releases.Create(&release.Release{
		Name: "it", Namespace: "ns", Version: 2, Manifest: strings.Split(chartOfTwo, "---")[0], Info: &release.Info{Status: common.StatusPendingUpgrade},
		Chart: &v2.Chart{Metadata: &v2.Metadata{APIVersion: "v2", Name: "kettle", Version: "0.1.0"}},
	}))
	c.finalize()
	for _, at := range []string{configMaps + "it", roles + "it", record, strings.TrimSuffix(record, "1") + "2"} {
		if c.get(at) != nil {
			t.Errorf("%s is left", at)
		}
	}
}

// A post-delete hook that fails is run again: until it has succeeded, the record stays.
func TestUninstall_PostDeleteHookFails(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), chartOfTwo+hook("after", "post-delete"))
	if _, text, err := c.run("reconcile"); err != nil { // the record gets the hook
		t.Fatalf("%v\n%s", err, text)
	}
	tries := 0
	c.refuse = func(r *http.Request) int {
		if r.Method == http.MethodPatch && r.URL.Path == configMaps+"after" {
			tries++
			return http.StatusForbidden
		}
		return 0
	}
	for i, wait := range []string{"false", "false", "true", "true"} {
		c.change(itself, func(is *unstructured.Unstructured) {
			is.SetAnnotations(map[string]string{annotationPrefix + "uninstall-wait": wait})
		})
		c.fails("Hook post-delete kettle/templates/a.yaml failed")
		if tries != i+1 || c.get(roles+"it") != nil {
			t.Fatalf("run %d: the hook was tried %d times; the ClusterRole is %v", i, tries, c.get(roles+"it"))
		}
	}
}

// A pre-delete hook that has succeeded is not repeated with a post-delete hook that has failed: what it needs is deleted. Both
// are known even if an upgrade was interrupted before the deletion, and even if the chart does not render any more.
func TestUninstall_PreDeleteHookRunsOnce(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		c := newCluster(t)
		c.release(chartOfTwo)
		template := filepath.Join(c.chart, "templates", "a.yaml")
		c.write(template, chartOfTwo+hook("before", "pre-delete")+hook("after", "post-delete"))
		if _, text, err := c.run("reconcile"); err != nil { // the record gets the hooks
			t.Fatalf("%v\n%s", err, text)
		}
		var hooks []*release.Hook
		c.rewrite(func(last *release.Release) { hooks = last.Hooks })
		if interrupted {
			c.after(chartOfTwo, "n", common.StatusFailed)
		}
		c.rewrite(func(last *release.Release) {
			last.Info.Status, last.Hooks = common.StatusUninstalling, hooks
			for _, hook := range hooks {
				if hook.Name == "before" {
					hook.LastRun.Phase = release.HookPhaseSucceeded
				}
			}
		})
		c.refuse = func(r *http.Request) int {
			switch {
			case r.Method != http.MethodPatch:
			case r.URL.Path == configMaps+"before":
				t.Errorf("interrupted %t: the pre-delete hook runs again", interrupted)
				return http.StatusForbidden
			case r.URL.Path == configMaps+"after":
				return http.StatusForbidden
			}
			return 0
		}
		for range 2 { // the record keeps the hook that the first run left out
			c.fails("Hook post-delete kettle/templates/a.yaml failed")
			c.write(template, "{{ fail `no` }}")
		}
		c.rewrite(func(last *release.Release) {
			if len(last.Hooks) != 2 {
				t.Errorf("interrupted %t: the record has %d hooks", interrupted, len(last.Hooks))
			}
		})
	}
}
