package controller

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

func TestUntouched_CandidatesAreOfKindsWithoutData(t *testing.T) {
	t.Parallel()
	owned := func(group, resource, kind, name string, created bool) dependent.Object {
		return dependent.Object{
			Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Kind: kind,
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, Created: created,
		}
	}
	all := []dependent.Object{
		owned("", "configmaps", "ConfigMap", "touched", true), owned("", "configmaps", "ConfigMap", "gone", true),
		owned("", "configmaps", "ConfigMap", "adopted", false), owned("", "secrets", "Secret", "data", true),
		owned("", "persistentvolumeclaims", "PersistentVolumeClaim", "data", true), owned("", "namespaces", "Namespace", "data", true),
		owned("apps", "statefulsets", "StatefulSet", "data", true), owned("example.com", "configmaps", "ConfigMap", "data", true),
		owned("apps", "deployments", "Deployment", "touched-in-another-group", true), owned("acid.zalan.do", "postgresqls", "postgresql", "gone", true),
	}
	touched := &touches{named: map[touch]struct{}{}}
	touched.Touch(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ns", "touched")
	touched.Touch(schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}, "ns", "touched-in-another-group")
	touched.Touch(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "elsewhere", "gone")
	w := watches.Watch{Prune: true, PruneKinds: []schema.GroupVersionKind{{Group: "acid.zalan.do", Version: "v2", Kind: "postgresql"}}}
	named, told := touched.all()
	got, live := untouched(all, named, w.Prunes())
	if want := []dependent.Object{all[1], all[9]}; !cmp.Equal(got, want) || live != 2 || !told {
		t.Errorf("live %d, told %v, candidates:\n%s", live, told, cmp.Diff(want, got))
	}
	if got, _ := untouched(all, named, watches.Watch{}.Prunes()); len(got) > 0 {
		t.Errorf("without prune: %v", got)
	}
}

// A run cannot fill the memory with names. If names had to be dropped, nothing counts as untouched.
func TestUntouched_NamesAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ names, length int }{
		"many":  {names: maxTouched + 1, length: 8},
		"long":  {names: 3, length: 3 << 20},
		"twice": {names: 1, length: maxTouchedBytes/2 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			touched := &touches{named: map[touch]struct{}{}}
			for range 2 {
				for n := range tt.names {
					touched.Touch(schema.GroupVersionResource{}, "", strings.Repeat("n", tt.length)+strconv.Itoa(n))
				}
			}
			named, told := touched.all()
			size := 0
			for is := range named {
				size += len(is.name)
			}
			if size > maxTouchedBytes || len(named) > maxTouched || told != (name == "twice") {
				t.Errorf("%d names of %d bytes are kept, told %v", len(named), size, told)
			}
		})
	}
}

func TestUntouched_HoldsWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		live, removable int
		held            bool
	}{{0, 0, false}, {0, 1, true}, {1, 1, false}, {1, 3, false}, {3, 4, true}, {4, 4, false}, {100, 40, false}} {
		if got := holds(tt.live, tt.removable); (got != "") != tt.held {
			t.Errorf("%d touched and %d not: held = %q", tt.live, tt.removable, got)
		}
	}
}

// Only a complete run can say which objects are no longer needed.
func TestUntouched_OnlyAfterAWholeRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sum   jobevent.Summary
		args  string
		calls *calls
		whole bool
	}{
		"whole":           {sum: jobevent.Summary{OK: 1, Skipped: 3, Task: jobevent.Task{Action: "ansible.builtin.debug"}}, args: "-e x=tags --vault-id l@prompt -vv", whole: true},
		"ignored failure": {sum: jobevent.Summary{Ignored: 1}},
		"rescued failure": {sum: jobevent.Summary{Rescued: 1}},
		"requeue_after":   {sum: jobevent.Summary{RequeueAfter: &jobevent.RequeueAfter{Period: "0s"}}},
		"wait_for":        {calls: &calls{wait: &status.Wait{}}},
		"missing events":  {sum: jobevent.Summary{Gaps: 1}},
		"a skipped play":  {sum: jobevent.Summary{NoHostsMatched: true}},
		"ended early":     {sum: jobevent.Summary{Task: jobevent.Task{Action: "ansible.builtin.meta"}}},
		"tags":            {args: "--tags=a"},
		"short tags":      {args: "-vvt a"},
		"skipped tags":    {args: "-v --skip-t b"},
		"limit":           {args: "'-l' x"},
		"started later":   {args: "--start-at-task=x"},
		"check":           {args: "-C"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reconciler{opts: &Options{AnsibleArgs: tt.args}}
			if got := r.notWhole(&scope{result: runner.Result{Summary: tt.sum}, calls: tt.calls}); (got == "") != tt.whole {
				t.Errorf("not whole: %q", got)
			}
		})
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	owner := proxy.Owner{GVK: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}, Namespace: "ns", Name: "it", UID: "u"}
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	created := time.Unix(1e9, 0)
	at := func(namespace string, change func(*metav1.ObjectMeta)) *metav1.ObjectMeta {
		o := &metav1.ObjectMeta{Namespace: namespace, Name: "child", CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{
			proxy.AnnotationCreated: "u/configmaps/" + namespace + "/child",
		}}
		if namespace == "ns" {
			o.OwnerReferences = []metav1.OwnerReference{{UID: "u"}}
		} else {
			o.Annotations["operator-sdk/primary-resource"], o.Annotations["operator-sdk/primary-resource-type"] = "ns/it", "K.g"
		}
		change(o)
		return o
	}
	now := metav1.Now()
	for name, tt := range map[string]struct {
		o    *metav1.ObjectMeta
		kept bool
	}{
		"its own":              {at("ns", func(*metav1.ObjectMeta) {}), false},
		"elsewhere":            {at("far", func(*metav1.ObjectMeta) {}), false},
		"a copy":               {at("ns", func(o *metav1.ObjectMeta) { o.Name = "copy" }), true},
		"older than its owner": {at("far", func(o *metav1.ObjectMeta) { o.CreationTimestamp = metav1.NewTime(created.Add(-time.Second)) }), true},
		"of a predecessor":     {at("far", func(o *metav1.ObjectMeta) { o.Annotations[proxy.AnnotationCreated] = "old/configmaps/far/child" }), true},
		"adopted":              {at("ns", func(o *metav1.ObjectMeta) { o.Annotations = nil }), true},
		"disowned":             {at("ns", func(o *metav1.ObjectMeta) { o.OwnerReferences = nil }), true},
		"of another":           {at("far", func(o *metav1.ObjectMeta) { o.Annotations["operator-sdk/primary-resource"] = "ns/other" }), true},
		"of another, too": {at("ns", func(o *metav1.ObjectMeta) {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: "v"})
		}), true},
		"of a Deployment":     {at("far", func(o *metav1.ObjectMeta) { o.OwnerReferences = []metav1.OwnerReference{{UID: "v"}} }), true},
		"annotated":           {at("ns", func(o *metav1.ObjectMeta) { o.Annotations[keepAnnotation] = "false" }), true},
		"annotated otherwise": {at("ns", func(o *metav1.ObjectMeta) { o.Annotations[keepAnnotation] = "true" }), false},
		"of a Helm release":   {at("ns", func(o *metav1.ObjectMeta) { o.Annotations["meta.helm.sh/release-name"] = "x" }), true},
		"a hook of Helm's":    {at("ns", func(o *metav1.ObjectMeta) { o.Annotations["helm.sh/hook"] = "pre-install" }), true},
		"that is to be kept":  {at("ns", func(o *metav1.ObjectMeta) { o.Annotations["helm.sh/resource-policy"] = "keep" }), true},
		"being deleted":       {at("ns", func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &now }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Kept(tt.o, gvr, owner, created); (got != "") != tt.kept {
				t.Errorf("kept: %q", got)
			}
		})
	}
}
