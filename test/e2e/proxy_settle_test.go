package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// restlessTasks write something new in every run, like a role that is not idempotent.
const restlessTasks = `
- name: Write the time
  kubernetes.core.k8s:
    definition:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: clock, namespace: "{{ ns }}"}, data: {now: "{{ now(fmt='%c %f') }}"}}
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web, namespace: "{{ ns }}", annotations: {now: "{{ now(fmt='%c %f') }}"}}
        spec:
          replicas: 1
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: web, image: web}]}
- name: Begin again
  kubernetes.core.k8s: {api_version: v1, kind: Secret, name: key, namespace: "{{ ns }}", state: "{{ item }}"}
  loop: [absent, present]
`

func TestProxy_OneRunPerCause(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	needKwok(t, s)
	s.role("restless", restlessTasks)
	k := s.kind()
	s.watch(k, "role: restless", "vars: {ns: '{{ ansible_operator_meta.namespace }}'}")
	cs := s.children()
	clock := child{"configmaps.v1.", s.namespace, "clock"}
	key := child{"secrets.v1.", s.namespace, "key"}
	web := child{"deployments.v1.apps", s.namespace, "web"}
	kinds := []string{"/v1, Kind=ConfigMap", "/v1, Kind=Secret", "apps/v1, Kind=Deployment"}
	there := func(*unstructured.Unstructured) bool { return true }

	o := s.start("--zap-log-level=debug")
	k.create("it", nil)
	it := k.awaitReady("it")
	// awaitRun waits for the end of the next run.
	awaitRun := func() {
		t.Helper()
		last := it.lastRun().ID
		it = k.await("it", "run for the dependent", func(o object) bool { return o.ready() && o.lastRun().ID != last })
		if cause := it.lastRun().Cause; cause != "dependent" {
			t.Errorf("the run was for %q", cause)
		}
	}
	o.awaitChildrenWatched(kinds...)
	cs.await(web, "available", func(u *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
		return n == 1
	})
	cs.owned(it, clock, key, web)

	cs.patch(web, `{"spec":{"replicas":3}}`)
	awaitRun()
	cs.await(web, "of the role's size", func(u *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		return n == 1
	})
	cs.delete(key)
	awaitRun()
	cs.await(key, "back", there)
	o.expectNoticed("deployments.apps "+s.namespace+"/web was changed", "secrets "+s.namespace+"/key was deleted")
	o.stop()

	o = s.start("--zap-log-level=debug")
	o.awaitDecided(k, 1)
	o.awaitChildrenWatched(kinds...)
	o.expectRuns(it, 3, "one for the object, two for changes of others, none for the restart")
	cs.delete(clock)
	awaitRun()
	cs.await(clock, "back", there)
	cs.owned(it, clock, key, web)
	// The watch reports changes in their order. When it has reported this one, it has reported those of the run.
	cs.patch(key, `{"metadata":{"labels":{"last":"one"}}}`)
	o.expectNoticed("configmaps "+s.namespace+"/clock was deleted", "secrets "+s.namespace+"/key was changed")
	if ran := len(s.runs(it)); ran < 4 || ran > 5 { // the run for the last change may have begun
		t.Errorf("%d runs, want 4: one for the object, three for changes of others", ran)
	}
	k.delete("it")
	for _, c := range []child{clock, key, web} {
		cs.awaitGone(c)
	}
}

// expectNoticed waits until each of the changes is noticed, and checks that no others were. Changes of different kinds
// may come in any order.
func (o *operator) expectNoticed(want ...string) {
	o.t.Helper()
	testenv.Eventually(o.t, "changes of dependents to be noticed", func(context.Context) error {
		log := strings.Join(o.noticed(), "\n")
		for _, change := range want {
			if !strings.Contains(log, change) {
				return fmt.Errorf("not so far: %s; but:\n%s", change, log)
			}
		}
		return nil
	})
	if noticed := o.noticed(); len(noticed) != len(want) {
		o.t.Errorf("noticed changes, want %q:\n%s", want, strings.Join(noticed, "\n"))
	}
}

// readingTasks read an object, and create it only if it is missing, like roles that avoid writes.
const readingTasks = `
- name: Look
  kubernetes.core.k8s_info: {api_version: v1, kind: ConfigMap, name: old, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
- name: Make
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: "{{ ansible_operator_meta.namespace }}"}}
  when: not found.resources
`

// If another operator has created an object and runs only read it, it is created again when it is deleted.
func TestProxy_WatchesWhatRunsOnlyRead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("reading", readingTasks)
	k := s.kind()
	s.watch(k, "role: reading")
	cs := s.children()
	old := child{"configmaps.v1.", s.namespace, "old"}
	it := k.create("it", nil)
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
		"name": "old", "ownerReferences": []any{map[string]any{
			"apiVersion": it.GetAPIVersion(), "kind": it.GetKind(), "name": "it", "uid": string(it.GetUID()),
		}},
	}}}
	must.Get(cs.in(old).Create(t.Context(), made, metav1.CreateOptions{}))(t)
	o := s.start()
	k.awaitReady("it")
	o.awaitChildrenWatched("/v1, Kind=ConfigMap")
	cs.delete(old)
	it = k.await("it", "run for the dependent", func(o object) bool { return o.ready() && o.lastRun().Cause == "dependent" })
	cs.owned(it, old)
	o.expectRuns(it, 2, "one for the object, one for the child that another client has deleted")
	o.stop()
}
