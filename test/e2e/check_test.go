package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The role writes with a module that supports check mode, and without one: its command runs in check mode, too.
const driftingRole = `- name: Create the ConfigMap
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size }}"}
- name: Create the Secret
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData: {password: "never-shown-{{ size }}"}
- name: Write without check mode
  ansible.builtin.command: kubectl create configmap {{ ansible_operator_meta.name }}-raw -n {{ ansible_operator_meta.namespace }}
  check_mode: false
  register: raw
  changed_when: false
  failed_when: raw.rc != 0 and 'already exists' not in raw.stderr
`

func TestCheck_SaysWhatWouldChangeAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("drifting", driftingRole)
	s.watch(k, "role: drifting", "reconcilePeriod: 0s", "mode: check", "annotations: trusted")
	o := s.start("--zap-log-level=debug")
	core := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1()
	k.create("it", map[string]any{"size": "one"})
	drifted := k.await("it", "checked", func(o object) bool {
		return o.condition("Drifted").Status == "True" && o.status.Ansible.ActiveRun == nil
	})
	said := drifted.condition("Drifted").Message
	for _, want := range []string{"2 tasks would change something", `task "Create the ConfigMap", role "drifting", at `,
		"roles/drifting/tasks/main.yml:1\n", `"Create the Secret", role "drifting", at `, "/main.yml:8 (its diff is not shown)"} {
		if !strings.Contains(said, want) {
			t.Errorf("Drifted says %q, want %q in it", said, want)
		}
	}
	for what, text := range map[string]string{"Drifted": said, "the log": o.output()} {
		if strings.Contains(text, "never-shown") {
			t.Errorf("%s has the value of the Secret", what)
		}
	}
	if last := drifted.lastRun(); last.Mode != "check" || last.Result != "Succeeded" || last.Cause != "created" {
		t.Errorf("the check = %+v", last)
	}
	if ready := drifted.condition("Ready"); ready.Status != "Unknown" || ready.Reason != "CheckMode" {
		t.Errorf("Ready = %+v", ready)
	}
	testenv.Eventually(t, "an Event says that it has drifted", func(ctx context.Context) error {
		events, err := core.Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Drifted"})
		if err == nil && (len(events.Items) != 1 || strings.Contains(events.Items[0].Message, "never-shown")) {
			err = fmt.Errorf("Events %v", events.Items)
		}
		return err
	})
	n := must.Get(o.metric(t.Context(), "rolewright_drifted", `kind="`+k.gvk.Kind+`"`))(t)
	must.Be(t, "rolewright_drifted", 1.0, n)
	for _, name := range []string{"it", "it-raw"} {
		if _, err := core.ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s: %v", name, err)
		}
	}
	if _, err := core.Secrets(s.namespace).Get(t.Context(), "it", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret: %v", err)
	}

	k.patch("it", `{"metadata":{"annotations":{"rolewright.dev/mode":"apply"}}}`)
	applied := k.awaitReady("it")
	if c := applied.condition("Drifted"); c.Type != "" {
		t.Errorf("after the run there is %+v", c)
	}
	for _, name := range []string{"it", "it-raw"} {
		must.Get(core.ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	}
	n = must.Get(o.metric(t.Context(), "rolewright_drifted", `kind="`+k.gvk.Kind+`"`))(t)
	must.Be(t, "rolewright_drifted", 0.0, n)

	k.patch("it", `{"metadata":{"annotations":{"rolewright.dev/mode":null}},"spec":{"size":"two"}}`)
	drifted = k.await("it", "checked", func(o object) bool { return o.condition("Drifted").Status == "True" && o.settled() })
	said = drifted.condition("Drifted").Message
	if want := "-    \"size\": \"one\"\n+    \"size\": \"two\"\n"; !strings.Contains(said, want) || strings.Contains(said+o.output(), "never-shown") {
		t.Errorf("Drifted says %q, want %q in it, and nothing of the Secret", said, want)
	}
	if ready := drifted.condition("Ready"); ready.Status != "True" || ready.ObservedGeneration != applied.GetGeneration() {
		t.Errorf("Ready = %+v, want that of the last run that was applied", ready)
	}
}

// Periodic runs change nothing until there is something to change.
func TestCheck_ThenApply(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("drifting", driftingRole)
	s.watch(k, "role: drifting", "reconcilePeriod: 1s", "mode: checkThenApply", "watchDependentResources: false")
	s.start()
	core := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1()
	k.create("it", map[string]any{"size": "one"})
	checked := k.await("it", "checked", func(o object) bool { return o.condition("Drifted").Status == "False" })
	if ready := checked.condition("Ready"); ready.Status != "True" {
		t.Errorf("Ready = %+v", ready)
	}
	must.Do(t, core.ConfigMaps(s.namespace).Delete(t.Context(), "it", metav1.DeleteOptions{}))
	testenv.Eventually(t, "the ConfigMap is there again", func(context.Context) error {
		_, err := core.ConfigMaps(s.namespace).Get(t.Context(), "it", metav1.GetOptions{})
		return err
	})
}
