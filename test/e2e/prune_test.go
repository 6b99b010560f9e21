package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The role creates a, and with extra the others; the Secret among them holds data. A second run of the same spec reads
// them all and writes nothing.
const extraRole = `- name: Create what is always there
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: "{{ item }}"
      metadata: {name: a, namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: [ConfigMap, ServiceAccount]
- name: Create what is extra
  kubernetes.core.k8s:
    apply: "{{ item.apply | default(false) }}"
    definition:
      apiVersion: v1
      kind: "{{ item.kind }}"
      metadata: {name: "{{ item.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  loop:
  - {kind: ConfigMap, name: b}
  - {kind: ConfigMap, name: applied, apply: true}
  - {kind: ConfigMap, name: annotated}
  - {kind: Secret, name: b}
  when: extra | default(false)
- name: Fail
  ansible.builtin.fail: {msg: as asked}
  when: fail | default(false)
- name: Fail, and go on
  ansible.builtin.fail: {msg: as asked}
  ignore_errors: true
  when: ignored | default(false)
- name: End early
  ansible.builtin.meta: end_play
  when: ends | default(false)
- name: The rest
  ansible.builtin.debug: {msg: done}
`

func TestPrune_WhatTheLastRunDidNotTouch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("extra", extraRole)
	s.watch(k, "role: extra", "reconcilePeriod: 0s", "prune: true")
	o := s.start()
	core := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1()
	there := func(names ...string) {
		t.Helper()
		for _, name := range names {
			must.Get(core.ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
		}
	}
	all := []string{"a", "b", "applied", "annotated", "foreign"}
	pruned := func() float64 {
		return must.Get(o.metric(t.Context(), "rolewright_pruned_total", `kind="`+k.gvk.Kind+`"`))(t)
	}
	// run makes one run of a spec.
	n := 0
	run := func(spec string) object {
		t.Helper()
		n++
		k.patch("it", fmt.Sprintf(`{"metadata":{"annotations":{"rolewright.dev/reconcile-at":"%d"}},"spec":%s}`, n, spec))
		return k.await("it", "the run has ended", func(o object) bool {
			return o.settled() && o.status.Ansible.LastHandledReconcileAt == fmt.Sprint(n)
		})
	}
	must.Get(core.ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}, metav1.CreateOptions{}))(t)
	k.create("it", map[string]any{"extra": true})
	first := k.awaitReady("it")
	b := must.Get(core.ConfigMaps(s.namespace).Get(t.Context(), "b", metav1.GetOptions{}))(t)
	must.Be(t, "the note on b", string(first.GetUID())+"/configmaps/"+s.namespace+"/b", b.Annotations["rolewright.dev/created"])
	copied := b.DeepCopy()
	copied.ObjectMeta = metav1.ObjectMeta{Name: "copy", Annotations: b.Annotations, OwnerReferences: b.OwnerReferences}
	must.Get(core.ConfigMaps(s.namespace).Create(t.Context(), copied, metav1.CreateOptions{}))(t)
	all = append(all, "copy")

	run(`{}`) // nothing is changed: the modules only read
	there(all...)
	must.Get(core.ConfigMaps(s.namespace).Patch(t.Context(), "annotated", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"rolewright.dev/prune":"false"}}}`), metav1.PatchOptions{}))(t)
	for _, spec := range []string{
		`{"extra":false,"fail":true}`, `{"extra":false,"fail":false,"ignored":true}`, `{"extra":false,"ignored":false,"ends":true}`,
	} {
		run(spec)
		there(all...)
	}
	must.Be(t, "what was pruned so far", 0.0, pruned())
	out := s.tool(0, "inventory", strings.ToLower(k.gvk.Kind)+"/it", "-n", s.namespace)
	for name, want := range map[string]string{
		"ConfigMap b": "Current yes", "ConfigMap annotated": "Current no: its annotation", "ConfigMap copy": "Current no: no run has created it",
		"Secret b": "Current no: its kind",
	} {
		kind, name, _ := strings.Cut(name, " ")
		if want := kind + " " + s.namespace + " " + name + " " + want; !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("inventory says\n%s\nwant %q in it", out, want)
		}
	}

	last := run(`{"extra":false,"ends":false}`).lastRun()
	must.Be(t, "lastRun.pruned", int64(2), last.Pruned)
	for _, name := range []string{"b", "applied"} {
		if _, err := core.ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s: %v", name, err)
		}
	}
	there("a", "annotated", "foreign", "copy")
	must.Get(core.Secrets(s.namespace).Get(t.Context(), "b", metav1.GetOptions{}))(t)
	must.Be(t, "rolewright_pruned_total", 2.0, pruned())
	testenv.Eventually(t, "an Event tells of it", func(ctx context.Context) error {
		events, err := core.Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Pruned"})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("Events: %d", len(events.Items))
		}
		return err
	})
	if again := run(`{}`); again.lastRun().Cause != "manual" {
		t.Errorf("the removal has started a run: %+v", again.lastRun())
	}
}

// With the permissions that `rolewright generate rbac` lists, prune works. Without permission to delete, the status says
// what to grant and nothing is lost. The next run with the permission removes the objects.
func TestPrune_WithGeneratedPermissions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("extra", `- name: Create what is always there
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "{{ ansible_operator_meta.namespace }}"}}
- name: Create what is extra
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: "{{ ansible_operator_meta.namespace }}"}}
  when: extra
- name: The rest
  ansible.builtin.debug: {msg: done}
`)
	s.watch(k, "role: extra", "reconcilePeriod: 0s", "prune: true",
		"triggers: [{version: v1, kind: Secret, selector: {matchLabels: {shared: 'yes'}}, namespaceSelector: {matchLabels: {team: a}}}]",
		"references: [{version: v1, kind: ServiceAccount, fromField: spec.account}]")
	var all rbacv1.ClusterRole
	s.tool(0, "generate", "rbac", "--output="+filepath.Join(s.dir, "role.yaml"))
	must.Do(t, yaml.UnmarshalStrict(must.Get(os.ReadFile(filepath.Join(s.dir, "role.yaml")))(t), &all))
	var less []rbacv1.PolicyRule
	for _, rule := range all.Rules {
		rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == "delete" })
		less = append(less, rule)
	}
	env := s.env
	as := func(rules []rbacv1.PolicyRule) *operator {
		s.env = append(slices.Clone(env), "KUBECONFIG="+testenv.Kubeconfig(t, testenv.User(t, s.cfg, rules)))
		return s.start()
	}
	configMaps := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1().ConfigMaps(s.namespace)

	o := as(less)
	k.create("it", map[string]any{"extra": true})
	k.awaitReady("it")
	k.patch("it", `{"spec":{"extra":false}}`)
	is := k.await("it", "the run has ended", func(o object) bool { return o.ready() && o.status.ObservedGeneration == 2 })
	must.Get(configMaps.Get(t.Context(), "b", metav1.GetOptions{}))(t)
	warnings, _, _ := unstructured.NestedStringSlice(is.Object, "status", "ansible", "warnings")
	if said := strings.Join(warnings, "\n"); !strings.Contains(said, "cannot be pruned") || !strings.Contains(said, "ConfigMap b") && !strings.Contains(said, s.namespace+"/b") ||
		!strings.Contains(said, "grant the operator get and delete on these kinds") {
		t.Errorf("the warnings: %q", warnings)
	}
	o.stop()

	as(all.Rules)
	k.patch("it", `{"metadata":{"annotations":{"rolewright.dev/reconcile-at":"1"}}}`)
	last := k.await("it", "the run has ended", func(o object) bool { return o.settled() && o.status.Ansible.LastHandledReconcileAt == "1" })
	must.Be(t, "lastRun.pruned", int64(1), last.lastRun().Pruned)
	if _, err := configMaps.Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("ConfigMap b: %v", err)
	}
	must.Get(configMaps.Get(t.Context(), "a", metav1.GetOptions{}))(t)
	if left, _, _ := unstructured.NestedStringSlice(last.Object, "status", "ansible", "warnings"); len(left) > 0 {
		t.Errorf("warnings that are left: %q", left)
	}
}
