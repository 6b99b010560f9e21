package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

const operatedRole = `- name: Wait
  ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 600}
- name: Fail
  ansible.builtin.fail: {msg: "the size is too large"}
  when: size == "large"
`

// Commands list objects, wait for them, run them, suspend them, and cancel their runs.
func TestObjects_AreOperatedByCommands(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	k := s.kind(testenv.WithKind("Operated")) // which no other group has
	s.role("operated", operatedRole)
	s.watch(k, "role: operated", "reconcilePeriod: 0s", "retry: {maxAttempts: 1}")
	s.start()
	open, closed := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "closed")
	must.Do(t, os.WriteFile(open, nil, 0o600))
	kind := strings.ToLower(k.gvk.Kind)
	called := kind + "." + k.gvk.Group + "/it"
	in := []string{"-n", s.namespace}
	tool := func(want int, args ...string) string {
		t.Helper()
		return s.tool(want, append(args, in...)...)
	}
	says := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("it says\n%s\nwant %q", out, word)
			}
		}
	}
	says(tool(5, "get", "objects", kind), "no objects found")
	says(tool(5, "wait", kind+"/it"), `"it" not found`)
	says(tool(2, "get", "objects", "nothing"), `no kind "nothing"`)
	says(tool(2, "get", "objects", "ev"), `short name "ev"`, "give the kind with its group")
	says(tool(2, "get", "objects", "events"), "several groups: give one of ", "Event.events.k8s.io")
	must.Get(must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{}))(t)
	says(tool(0, "suspend", "configmap/none"), "configmap/none suspended", "is an operator running that watches configmaps?")
	k.create("it", map[string]any{"size": "small", "gate": open})
	says(tool(0, "wait", kind+"/it", "--timeout=10m"), called+" reconciled (run ", ", created, took ")
	says(tool(0, "get", "objects", k.gvk.Kind), "NAME   READY   REASON         CAUSE     LAST RUN   NEXT", "it     True    RunSucceeded   created")
	says(tool(0, "get", "objects", kind+"s", "-o", "name"), called+"\n")
	says(tool(0, "wait", called, "--for=condition=Ready"), called+" condition met")

	// It is watched from here on.
	watch := process(t, binary(t), append([]string{"get", "objects", called, "-w"}, in...)...)
	watch.Dir, watch.Env = s.dir, s.env
	seen := must.Get(watch.StdoutPipe())(t)
	must.Do(t, watch.Start())
	t.Cleanup(func() { _ = watch.Process.Kill(); _ = watch.Wait() })
	await := awaitLines(t, seen)
	await("True", "created")

	says(tool(0, "suspend", kind+"/it", "--for=2h"), called+" suspended until 2")
	await("paused 119m")
	says(tool(0, "reconcile", kind, "it"), called+" reconcile requested, and waits: the object is paused")
	says(tool(4, "wait", kind+"/it", "--timeout=1s"), "timed out after 1s", "a run is due, and it is paused")
	says(tool(0, "resume", kind, "--all"), called+" resumed")
	says(tool(0, "wait", kind+"/it", "--timeout=10m"), ", manual, took ")
	says(tool(0, "resume", kind, "--all"), called+" is not suspended")
	says(tool(5, "cancel", kind+"/it"), called+" has no run in progress", "nothing to cancel")
	before := k.get("it").lastRun().ID
	says(tool(0, "reconcile", kind+"/it", "--wait", "--timeout=10m"), called+" reconcile requested\n", called+" reconciled (run ")
	if after := k.get("it").lastRun().ID; after == before {
		t.Errorf("reconcile --wait has not waited for its run: the last one is still %s", after)
	}

	// One run fails, and one is cancelled.
	k.patch("it", `{"spec":{"size":"large"}}`)
	says(tool(1, "wait", kind+"/it", "--timeout=10m"), called+" failed: TaskFailed: the size is too large", "main.yml:3")
	await("stalled", "the size is too large")
	k.patch("it", `{"spec":{"gate":"`+closed+`"}}`)
	await("running")
	var list struct{ Items []controller.Summary }
	must.Do(t, json.Unmarshal([]byte(tool(0, "get", "objects", kind, "-o", "json")), &list))
	if len(list.Items) != 1 || list.Items[0].Active == nil || list.Items[0].Active.Cause != "changed" {
		t.Fatalf("get objects -o json: %+v", list)
	}
	says(tool(0, "get", "objects", kind, "-o", "jsonpath={.items[*].activeRun.id}"), list.Items[0].Active.ID+"\n")
	says(tool(0, "cancel", kind+"/it"), called+" cancel of run "+list.Items[0].Active.ID+" requested")
	says(tool(1, "wait", kind+"/it", "--timeout=10m"), "failed: Cancelled")
	k.delete("it")
	says(tool(0, "wait", kind+"/it", "--for=delete", "--timeout=10m"))

	// What is reported of one object does not depend on an earlier object for which the command waits.
	k.create("a", map[string]any{"size": "small", "gate": closed})
	k.create("b", map[string]any{"size": "small", "gate": open})
	says(tool(0, "wait", kind+"/b", "--timeout=10m"))
	says(tool(4, "wait", kind, "--all", "--timeout=1s"), "/b reconciled (run ", "/a: run ")
	await("Deleted")
}

// awaitLines returns a function that reads the output of a program until one line contains all words.
func awaitLines(t *testing.T, from io.Reader) func(words ...string) {
	t.Helper()
	lines := bufio.NewScanner(from)
	return func(words ...string) {
		t.Helper()
		var read []string
		for lines.Scan() {
			read = append(read, lines.Text())
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(lines.Text(), word) }) {
				return
			}
		}
		t.Fatalf("no line has all of %q:\n%s", words, strings.Join(read, "\n"))
	}
}

// Waiting objects are listed with what holds them, for users who may get them.
func TestQueue_IsListed(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	k := s.kind(testenv.WithKind("Queued"))
	s.role("operated", operatedRole)
	s.watch(k, "role: operated", "reconcilePeriod: 0s")
	_, port, err := net.SplitHostPort(testenv.Address(t))
	must.Do(t, err)
	s.start("--api-port="+port, "--max-concurrent-reconciles=1")
	spec := map[string]any{"size": "small", "gate": filepath.Join(t.TempDir(), "gate")}
	as := []string{"--server=http://localhost:" + port, s.serviceAccount("reader", k, true)}
	list := func(name string, want int, words ...string) {
		t.Helper()
		testenv.Eventually(t, name, func(context.Context) error {
			cmd := process(t, binary(t), append([]string{"get", "queue", k.gvk.Kind, "-n", s.namespace}, as...)...)
			cmd.Dir, cmd.Env = s.dir, s.env
			out, _ := cmd.CombinedOutput() // the exit code says it
			if code := cmd.ProcessState.ExitCode(); code != want {
				return fmt.Errorf("exit code %d: %s", code, out)
			}
			for _, word := range words {
				if !strings.Contains(string(out), word) {
					return fmt.Errorf("%s\nwant %q", out, word)
				}
			}
			return nil
		})
	}
	list("nothing waits", 0, "no run waits")
	k.create("runs", spec)
	k.await("runs", "in progress", func(o object) bool { return o.status.Ansible.ActiveRun != nil })
	k.create("waits", spec)
	list("one waits", 0, "1          "+s.namespace, k.gvk.Kind, "waits", "change", "created", "runs of the kind")
	k.create("paused", spec)
	s.tool(0, "suspend", k.gvk.Kind+"/paused", "-n", s.namespace)
	list("and one for a pause", 0, "<none>     "+s.namespace, "paused   <none>   created", "pause")
	if out := s.tool(0, append([]string{"explain", k.gvk.Kind + "/waits", "-n", s.namespace}, as...)...); !strings.Contains(out, "place 1, class change, for ") {
		t.Errorf("explain says\n%s", out)
	}
	if out := s.tool(0, "explain", k.gvk.Kind+"/waits", "-n", s.namespace); !strings.Contains(out, "not known: the operator is not asked") {
		t.Errorf("explain says\n%s", out)
	}
	as[1] = s.serviceAccount("other", k, false)
	list("who may not get the objects", 3, "may not get")
	must.Do(t, os.WriteFile(spec["gate"].(string), nil, 0o600))
}

// The dependents of an object are shown down to the Pods.
func TestTree_ShowsAllLevels(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	k := s.kind(testenv.WithKind("Rooted"))
	s.role("rooted", `- kubernetes.core.k8s:
    definition:
      apiVersion: "{{ item.api }}"
      kind: "{{ item.kind }}"
      metadata: {name: it, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: "{{ item.spec | default(omit) }}"
  loop:
    - {api: v1, kind: ConfigMap}
    - api: apps/v1
      kind: Deployment
      spec:
        selector: {matchLabels: {app: it}}
        template: {metadata: {labels: {app: it}}, spec: {containers: [{name: it, image: it}]}}
`)
	s.watch(k, "role: rooted", "reconcilePeriod: 0s")
	s.start()
	k.create("it", nil)
	k.awaitReady("it")
	form := regexp.MustCompile(`(?m)^Rooted/it +Current .*
├─ ConfigMap/it +Current .*
└─ Deployment/it +\w+ .*
   └─ ReplicaSet/it-\w+ +\w+ .*
      └─ Pod/it-[-\w]+ +\w+`)
	testenv.Eventually(t, "the tree", func(context.Context) error {
		if out := s.tool(0, "tree", "rooted/it", "-n", s.namespace); !form.MatchString(out) {
			return errors.New(out)
		}
		return nil
	})
	if out := s.tool(0, "tree", "rooted/it", "-n", s.namespace, "-o", "json"); !strings.Contains(out, `"kind": "ReplicaSet"`) {
		t.Errorf("tree -o json says\n%s", out)
	}
}
