package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// What happens to objects, their runs and their finalizers if someone deletes, recreates or changes them at a bad moment:
// with the real Ansible, and a daemon in every run.

// reconcileErrors returns how many reconciles of a kind have failed.
func (o *operator) reconcileErrors() float64 {
	o.t.Helper()
	n := must.Get(o.metric(o.t.Context(), "controller_runtime_reconcile_errors_total"))(o.t)
	return n
}

func TestLifeCycle_ADeletedObjectWithoutFinalizerStopsItsRun(t *testing.T) {
	t.Parallel()
	l := newStage(t).startLongRun()
	l.kind.delete("it")
	l.awaitNothingLeft()
	l.kind.awaitGone("it")
	l.awaitNoRuns()
	if n := l.operator.reconcileErrors(); n != 0 {
		t.Errorf("%v reconciles have failed for an object that is gone", n)
	}
}

func TestLifeCycle_ADeletedObjectIsFinalizedAfterItsRunIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	pid := filepath.Join(t.TempDir(), "pid")
	s.role("long", "- name: Take long\n  ansible.builtin.shell:\n    cmd: setsid sleep 600 >/dev/null 2>&1 & echo $! > "+pid+".new && mv "+
		pid+".new "+pid+" && exec sleep 600\n")
	s.role("farewell", "- name: Be alone\n  ansible.builtin.command: test ! -d /proc/{{ lookup('file', '"+pid+"') }}\n")
	s.watch(k, "role: long", "finalizer: {name: "+finalizerName+", role: farewell}")
	s.start()
	made := k.create("it", nil)
	testenv.Eventually(t, "the command runs", func(context.Context) error {
		_, err := os.Stat(pid)
		return err
	})
	k.delete("it")
	k.awaitGone("it") // a failed finalizer run would be repeated forever, and its task would fail as long as the daemon is alive
	s.awaitNoRuns(made)
}

func TestLifeCycle_ARecreatedObjectHasNothingOfItsPredecessor(t *testing.T) {
	t.Parallel()
	l := newStage(t).startLongRun()
	before := l.kind.get("it")
	l.kind.delete("it")
	l.kind.create("it", map[string]any{"second": true})
	l.kind.await("it", "run of the second object", func(o object) bool { return o.status.Ansible.ActiveRun != nil })
	l.goOn()
	o := l.kind.awaitReady("it")
	l.nothingLeft()
	if last := o.lastRun(); last.ID == l.active.ID || last.Cause != "created" || o.GetUID() == before.GetUID() {
		t.Errorf("record of the second object: %+v", last)
	}
	if ran := l.runs(o); !slices.Equal(ran, []string{o.lastRun().ID}) {
		t.Errorf("runs of the second object = %v, want only %s", ran, o.lastRun().ID)
	}
	l.awaitNoRuns(before)
}

func TestLifeCycle_AHundredChangesDuringARunAreOneMoreRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	note := s.notes()
	gate := filepath.Join(t.TempDir(), "gate")
	s.role("gated", noteTask+"- name: Wait\n  ansible.builtin.wait_for: {path: "+gate+", sleep: 1, timeout: 300}\n")
	s.watch(k, "role: gated")
	o := s.start()
	made := k.create("it", map[string]any{"note": "0"})
	testenv.Eventually(t, "the first run is in progress", func(context.Context) error {
		if got := note("it"); got != "0" {
			return fmt.Errorf("note = %q", got)
		}
		return nil
	})
	for i := range 100 {
		k.patch("it", fmt.Sprintf(`{"spec":{"note":"%d"}}`, i+1))
	}
	must.Do(t, os.WriteFile(gate, nil, 0o600))
	is := k.awaitReady("it")
	o.stop()
	if ran := s.runs(made); len(ran) != 2 || note("it") != "100" || is.lastRun().Generation != is.GetGeneration() {
		t.Errorf("%d runs, the last for %q and generation %d; want 2, the last for 100 and generation %d",
			len(ran), note("it"), is.lastRun().Generation, is.GetGeneration())
	}
}

// Without proof that the finalizer run has done its work, the object stays.
func TestLifeCycle_AFinalizerWithoutProofKeepsTheObject(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("main", noteTask)
	s.notes()
	group := testenv.Random("unproved") + ".rolewright.test"
	const fine = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.debug: {msg: done}\n"
	// The topmost ansible-playbook among the ancestors of a task dies.
	const suicide = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.shell: |\n" +
		"        p=$$ top=; while [ $p -gt 1 ]; do p=$(ps -o ppid= -p $p | tr -d ' '); case $(cat /proc/$p/comm) in ansible-playboo*) top=$p;; esac; done\n" +
		"        kill -9 $top\n"
	tests := []struct{ name, playbook, reason string }{
		{"nohosts", "- hosts: nobody\n  gather_facts: false\n  tasks:\n    - ansible.builtin.debug: {msg: done}\n", "NoHostsMatched"},
		{"unreachable", "- hosts: localhost\n  gather_facts: false\n  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1, " +
			"ansible_ssh_common_args: -o ConnectTimeout=5}\n  tasks:\n    - ansible.builtin.ping:\n", "Unreachable"},
		{"failed", "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.fail: {msg: the bucket is not empty}\n", "TaskFailed"},
		{"killed", suicide, ""},
		{"unparsed", "- hosts: localhost\n  tasks:\n    - no_such_module_anywhere: {}\n", ""},
	}
	kinds := map[string]kind{}
	for i, tt := range tests {
		k := s.kind(testenv.WithGroup(group), testenv.WithKind("Kind"+string(rune('A'+i))))
		s.write("playbooks/"+tt.name+".yml", tt.playbook)
		s.watch(k, "role: main", "finalizer: {name: "+finalizerName+", playbook: playbooks/"+tt.name+".yml}")
		kinds[tt.name] = k
	}
	s.start("--retry-min=1s", "--retry-max=2s")
	for _, tt := range tests {
		kinds[tt.name].create("it", nil)
	}
	for _, tt := range tests {
		kinds[tt.name].awaitReady("it")
		kinds[tt.name].delete("it")
	}
	for _, tt := range tests {
		o := kinds[tt.name].await("it", tt.name+": tried twice", func(o object) bool { return o.lastRun().Attempts >= 2 })
		last := o.lastRun()
		if last.Result != "Failed" || last.Cause != "deleted" || tt.reason != "" && last.Reason != tt.reason || !slices.Contains(o.GetFinalizers(), finalizerName) {
			t.Errorf("%s: record %+v, finalizers %v", tt.name, last, o.GetFinalizers())
		}
		s.write("playbooks/"+tt.name+".yml", fine)
	}
	for _, tt := range tests {
		kinds[tt.name].awaitGone("it")
	}
}

func TestLifeCycle_FinalizersOfOthersAndByHand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	note := s.notes()
	s.role("main", noteTask)
	s.role("farewell", strings.Replace(noteTask, "'main'", "'farewell'", 1))
	s.watch(k, "role: main", "finalizer: {name: "+finalizerName+", role: farewell}")
	o := s.start()
	made := k.create("foreign", nil)
	k.create("byhand", nil)
	k.awaitReady("foreign")
	k.awaitReady("byhand")

	// An object that also waits for another finalizer is finalized once, and then left alone.
	k.patch("foreign", `{"metadata":{"finalizers":["example.com/other","`+finalizerName+`"]}}`)
	k.delete("foreign")
	k.await("foreign", "left to the others", func(o object) bool { return slices.Equal(o.GetFinalizers(), []string{"example.com/other"}) })
	k.patch("foreign", `{"spec":{"note":"too late"}}`)
	k.create("later", nil)
	k.awaitReady("later") // nothing is left to do for the other one by then
	if got := note("foreign"); got != "farewell" {
		t.Errorf("note of the finalizer run = %q", got)
	}
	if ran := s.runs(made); len(ran) != 2 {
		t.Errorf("%d runs of an object that waits for others, want 2", len(ran))
	}
	k.patch("foreign", `{"metadata":{"finalizers":null}}`)
	k.awaitGone("foreign")

	// An object whose finalizer is removed by hand is deleted, and nothing brings it back.
	o.stop()
	k.delete("byhand")
	k.patch("byhand", `{"metadata":{"finalizers":null}}`)
	k.awaitGone("byhand")
	o = s.start()
	k.create("last", nil)
	k.awaitReady("last")
	o.stop()
	if got := note("byhand"); got != "main" {
		t.Errorf("note of an object that went without its finalizer run = %q", got)
	}
}

// A namespace is deleted when its objects are finalized; nothing new is created in it.
func TestLifeCycle_ATerminatingNamespaceIsFinalized(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	note := s.notes()
	s.role("main", noteTask)
	s.role("farewell", "- name: Try to leave something behind\n  kubernetes.core.k8s:\n    definition: {apiVersion: v1, kind: ConfigMap, metadata: "+
		"{name: left, namespace: \"{{ ansible_operator_meta.namespace }}\"}}\n  register: left\n  failed_when: \"'being terminated' not in left.msg | default('')\"\n"+
		strings.Replace(noteTask, "'main'", "'farewell'", 1))
	s.watch(k, "role: main", "finalizer: {name: "+finalizerName+", role: farewell}")
	s.start()
	k.create("it", nil)
	k.awaitReady("it")
	namespaces := kubernetes.NewForConfigOrDie(s.cfg).CoreV1().Namespaces()
	must.Do(t, namespaces.Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	k.awaitGone("it")
	if got := note("it"); got != "farewell" {
		t.Errorf("note of the finalizer run = %q", got)
	}
}

func TestLifeCycle_ARoleEndsItsProtectedSection(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	note := s.notes()
	const file = `"{{ lookup('env', 'ROLEWRIGHT_PROTECT') }}"`
	gate := filepath.Join(t.TempDir(), "gate")
	s.role("careful", `- block:
    - name: Begin what must not be cut short
      ansible.builtin.file: {path: `+file+`, state: touch, mode: "0600"}
    - name: Move the data
      ansible.builtin.command: touch `+gate+`
    - name: Go on moving it
      ansible.builtin.wait_for: {path: `+gate+`.open, sleep: 1, timeout: 300}
`+indent(strings.Replace(noteTask, "'main'", "'moved'", 1), "    ")+`  always:
    - name: End what must not be cut short
      ansible.builtin.file: {path: `+file+`, state: absent}
- name: Take for ever
  ansible.builtin.command: sleep 600
`)
	s.watch(k, "role: careful")
	o := s.start()
	k.create("it", nil)
	testenv.Eventually(t, "the section has begun", func(context.Context) error {
		_, err := os.Stat(gate)
		return err
	})
	k.delete("it")
	o.awaitOutput("will be stopped after its protected section")
	must.Do(t, os.WriteFile(gate+".open", nil, 0o600))
	s.awaitNoRuns()
	if got := note("it"); got != "moved" {
		t.Errorf("note of the protected section = %q", got)
	}
}
