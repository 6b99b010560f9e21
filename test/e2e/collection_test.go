package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The role uses every module of rolewright.operator, and those of operator_sdk.util that come with the operator.
func TestCollection_EveryModule(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	k := s.kind()
	s.role("all", `- name: Ask why
  rolewright.operator.trigger_info:
  register: trigger
- name: Write the status
  rolewright.operator.status:
    fields: {cause: "{{ trigger.cause }}", of: {attempt: "{{ trigger.attempt | int }}"}}
    conditions: [{type: DatabaseReady, status: "True", reason: Reachable, message: It answers}]
  register: wrote
- name: Write the same
  rolewright.operator.status: {fields: {cause: "{{ trigger.cause }}"}}
  register: again
- name: Write what is the operator's
  rolewright.operator.status:
    conditions: [{type: Ready, status: "True", reason: Mine}]
  register: refused
  ignore_errors: true
- name: Write as roles of ansible-operator do
  operator_sdk.util.k8s_status:
    api_version: "{{ trigger.object.api_version }}"
    kind: "{{ trigger.object.kind }}"
    name: "{{ trigger.object.name }}"
    namespace: "{{ trigger.object.namespace }}"
    conditions: [{type: Old, status: "False", reason: Late}]
- name: Read a Secret
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: "{{ trigger.object.namespace }}"}, stringData: {password: correct-horse}}
- name: Report
  rolewright.operator.event: {reason: BackupTaken, message: "It is there, by correct-horse"}
  register: reported
- name: Count
  rolewright.operator.metric: {name: rows_left, description: Rows., type: gauge, value: 0, labels: {tier: gold}}
  register: counted
- name: Wait for what is there
  rolewright.operator.wait_for: {kind: Secret, name: s, jsonpath: .data.password, mode: block}
- name: Next
  rolewright.operator.requeue_after: {time: 1h}
- ansible.builtin.assert:
    that: [wrote.changed, not again.changed, not reported.changed, not counted.changed, "'the operator writes the condition Ready' in refused.msg", trigger.generation == 1]
`)
	s.watch(k, "role: all")
	o := s.start("--executor=warm")
	k.create("it", nil)
	is := k.awaitReady("it")
	o.awaitMetric(0, "rows_left", `tier="gold"`)
	if forked, err := o.metric(t.Context(), "rolewright_modules_total", `way="forked"`); err != nil || forked < 9 {
		t.Errorf("%v modules were forked, %v", forked, err)
	}
	cause, _, _ := unstructured.NestedString(is.Object, "status", "cause")
	if c := is.condition("DatabaseReady"); cause != "created" || c.Status != "True" || c.ObservedGeneration != 1 || is.condition("Old").Reason != "Late" {
		t.Errorf("status of the role: %v", is.Object["status"])
	}
	if after := is.lastRun().RequeueAfter; after != "1h0m0s" {
		t.Errorf("the next run is after %q", after)
	}
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	events, err := client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(is.GetUID())})
	if err != nil || len(events.Items) != 1 || events.Items[0].Reason != "BackupTaken" || events.Items[0].Message != "It is there, by [masked]" {
		t.Errorf("Events of the role: %+v, %v", events, err)
	}
	o.stop()
}

// An object that waits uses no process, and the wait survives a restart of the operator. The object runs when what it
// waits for is there, or when the time is over.
func TestCollection_Park(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	k := s.kind()
	s.role("park", `- name: Wait
  rolewright.operator.wait_for: {kind: ConfigMap, name: gate, jsonpath: "{.data.open}", value: "yes", timeout: "{{ patience }}"}
  register: gate
- name: Go on when it is there
  ansible.builtin.meta: end_play
  when: gate.parked
- name: Say so
  rolewright.operator.status: {fields: {passed: true}}
`)
	s.watch(k, "role: park")
	o := s.start()
	k.create("it", map[string]any{"patience": 3000})
	k.create("hasty", map[string]any{"patience": 2})
	waits := func(is object) bool { return is.condition("Reconciling").Reason == "Waiting" }
	is := k.await("it", "waiting", waits)
	if is.condition("Ready").Status != "False" || is.condition("Successful").Status == "True" || is.status.ObservedGeneration != 0 ||
		!strings.Contains(is.condition("Ready").Message, "waits for ConfigMap "+is.GetNamespace()+"/gate: ") {
		t.Errorf("status of an object that waits: %v", is.Object["status"])
	}
	late := k.await("hasty", "failed", func(o object) bool { return o.lastRun().Result == "Failed" }).lastRun()
	if late.Cause != "waited" || !strings.Contains(late.Message, "ConfigMap gate has not come to") || !strings.Contains(late.Message, "it does not exist") {
		t.Errorf("the run when the time was over: %+v", late)
	}
	k.delete("hasty")
	o.stop()
	o = s.start()
	o.awaitDecided(k, 1)
	if left := processesOf(t, s.runs(is)...); len(left) > 0 {
		t.Errorf("processes of an object that waits: %v", left)
	}
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	if ran := len(s.runs(is)); ran != 1 {
		t.Errorf("%d runs before it is there", ran)
	}
	gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Data: map[string]string{"open": "yes"}}
	must.Get(client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), gate, metav1.CreateOptions{}))(t)
	testenv.Eventually(t, "the object to go on", func(context.Context) error {
		if is := k.get("it"); !is.ready() {
			return fmt.Errorf("status %v", is.Object["status"])
		}
		return nil
	})
	if is = k.get("it"); is.lastRun().Cause != "waited" || len(s.runs(is)) != 2 {
		t.Errorf("cause %q, %d runs", is.lastRun().Cause, len(s.runs(is)))
	}
	if passed, _, _ := unstructured.NestedBool(is.Object, "status", "passed"); !passed {
		t.Error("the role did not go on")
	}
}

// A role that often writes its status with operator_sdk.util.k8s_status gets no conflict with the progress of its run,
// which is written meanwhile. osdk_metric and requeue_after also work. TestProgress_LeavesTheRunItsOwnStatus makes 1,000
// writes like the module's.
func TestCollection_StatusOfTheRoleAndProgress(t *testing.T) {
	t.Parallel()
	const writes = 100
	s, user := newStage(t), testenv.Address(t)
	k := s.kind()
	s.role("all", fmt.Sprintf(`- name: Look at oneself
  rolewright.operator.trigger_info:
  register: me
- name: Write the status
  operator_sdk.util.k8s_status:
    api_version: "{{ me.object.api_version }}"
    kind: "{{ me.object.kind }}"
    name: "{{ me.object.name }}"
    namespace: "{{ me.object.namespace }}"
    status: {n: "{{ item }}"}
  loop: "{{ range(%d) | list }}"
- name: Count
  operator_sdk.util.osdk_metric: {name: backups_total, description: Backups., counter: {add: 3}, address: "http://%s/metrics"}
- name: Next
  operator_sdk.util.requeue_after: {time: 2h}
`, writes, user))
	s.watch(k, "role: all")
	o := s.start("--executor=warm", "--progress-interval=100ms", "--user-metrics-bind-address="+user)
	k.create("it", nil)
	is := k.awaitReady("it")
	must.Be(t, "requeueAfter", "2h0m0s", is.lastRun().RequeueAfter)
	if n, err := o.metric(t.Context(), "backups_total"); err != nil || n != 3 {
		t.Errorf("the role's metric is %v, %v", n, err)
	}
	o.stop()
	if n, _, _ := unstructured.NestedFieldNoCopy(is.Object, "status", "n"); fmt.Sprint(n) != fmt.Sprint(writes-1) {
		t.Errorf("%v was written last", n)
	}
	var own, progress, conflicts int
	for _, e := range testenv.AuditEvents(t, s.namespace, func(e testenv.AuditEvent) bool {
		return e.Writes() && e.ObjectRef.Subresource == "status" && e.ObjectRef.Namespace == s.namespace
	}) {
		switch sent := string(e.RequestObject); {
		case e.ResponseStatus.Code == http.StatusConflict:
			conflicts++
		case strings.Contains(sent, `"n":`): // with everything else that the module has read
			own++
		case strings.Contains(sent, `"activeRun"`):
			progress++
		}
	}
	if conflicts > 0 || own != writes || progress < 10 {
		t.Errorf("%d conflicts; %d writes of the role, %d of the progress", conflicts, own, progress)
	}
}
