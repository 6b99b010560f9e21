package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// One run without the operator: what it would change, what it changes, and why it fails, each with its exit code. Nothing
// is written to the object.
func TestOnce_MakesOneRun(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	s.tool(0, "init", "--domain", testenv.Random("d")+".example.com", "--name", "web-operator")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Site", "--finalizer")
	site := s.install()["Site"]
	const sample = "config/samples/web_v1_site.yaml"
	once := func(want int, args ...string) string {
		t.Helper()
		return s.tool(want, append([]string{"once", "-f", sample, "--runner-root=" + s.root}, args...)...)
	}
	configMaps := kubernetes.NewForConfigOrDie(s.cfg).CoreV1().ConfigMaps(s.namespace)

	// While another process makes a run of an object that is not in the cluster.
	access := filepath.Join(s.root, ".runs", fmt.Sprintf("%x", sha256.Sum256(nil))[:32], "0f0f0f0f-0000-4000-8000-000000000001", "kubeconfig")
	must.Do(t, os.MkdirAll(filepath.Join(filepath.Dir(access), "artifacts"), 0o700))
	must.Do(t, os.WriteFile(access, nil, 0o600))
	if out := once(0, "--check"); !strings.Contains(out, "objects that the run creates have no owner") || !strings.Contains(out, "  changed ") {
		t.Errorf("with --check it says\n%s", out)
	}
	if _, err := os.Stat(access); err != nil {
		t.Errorf("the kubeconfig of the other run: %v", err)
	}
	if _, err := configMaps.Get(t.Context(), "site-sample", metav1.GetOptions{}); err == nil {
		t.Error("--check has changed the cluster")
	}
	obj := s.sample(site, sample)
	var made struct {
		Result, Run, Directory string
		ExitCode               int
		Counts                 map[string]int
	}
	answer := once(0, "-o", "json")
	if err := json.NewDecoder(strings.NewReader(answer)).Decode(&made); err != nil {
		t.Fatalf("%v in\n%s", err, answer)
	}
	if made.Result != "Succeeded" || made.ExitCode != 0 || made.Counts["changed"] != 1 {
		t.Errorf("got %+v", made)
	}
	if _, err := os.Stat(made.Directory + "/artifacts/" + made.Run + "/stdout"); err != nil {
		t.Error(err)
	}
	if out := s.tool(0, "replay", made.Run[:8], "--runner-root="+s.root); !strings.Contains(out, "Write a ConfigMap") || !strings.Contains(out, "succeeded in ") {
		t.Errorf("replay says\n%s", out)
	}
	cm, err := configMaps.Get(t.Context(), "site-sample", metav1.GetOptions{})
	if err != nil || len(cm.OwnerReferences) != 1 || cm.OwnerReferences[0].UID != obj.GetUID() {
		t.Errorf("the ConfigMap is %v, %v", cm, err)
	}
	is := site.get(obj.GetName())
	if is.Object["status"] != nil || len(is.GetFinalizers()) > 0 || is.GetGeneration() != obj.GetGeneration() {
		t.Errorf("the object has become %v", is.Object)
	}
	s.replace(sample, "text: Hello", "text: Bye")
	out := once(0, "--check", "--diff")
	if !strings.Contains(out, "| -") || !strings.Contains(out, "Hello") || !strings.Contains(out, "| +") || !strings.Contains(out, "Bye") {
		t.Errorf("with --check --diff it says\n%s", out)
	}
	once(0, "--deleting")

	s.replace("roles/site/tasks/main.yml", "  kubernetes.core.k8s:\n", "  no_such_module:\n")
	out = once(1)
	_, dir, _ := strings.Cut(strings.TrimSpace(out), "artifacts: ")
	for what, said := range map[string]string{"once": out, "replay": s.tool(1, "replay", dir)} {
		if !strings.Contains(said, "roles/site/tasks/main.yml:") || !strings.Contains(said, "no_such_module") {
			t.Errorf("of a failure, %s says\n%s", what, said)
		}
	}
	// Modules of the operator work, and change nothing in the object.
	s.write("roles/site/tasks/main.yml", `- rolewright.operator.status: {fields: {a: b}}
- rolewright.operator.event: {reason: Tried, message: b}
- rolewright.operator.metric: {name: tries_total, description: Tries., type: counter}
- rolewright.operator.wait_for: {kind: ConfigMap, name: none, ready: true}
  register: wait
- ansible.builtin.assert: {that: wait.parked}
`)
	once(0)
	if is := site.get(obj.GetName()); is.Object["status"] != nil {
		t.Errorf("the status has become %v", is.Object["status"])
	}
	s.write("roles/site/tasks/main.yml", `- ansible.builtin.command: kubectl create configmap raw -n {{ ansible_operator_meta.namespace }}
  check_mode: false
`)
	once(0, "--check")
	if _, err := configMaps.Get(t.Context(), "raw", metav1.GetOptions{}); err == nil {
		t.Error("a command has changed the cluster under --check")
	}
	s.tool(2, "replay", "../..", "--runner-root="+s.root)
	s.write("roles/site/tasks/main.yml", "- name: Wait\n  ansible.builtin.command: sleep 60\n")
	if out := once(4, "--timeout=3s"); !strings.Contains(out, "TimedOut") {
		t.Errorf("of its timeout it says\n%s", out)
	}
}

// A chart is also released for an object that is not in the cluster; its objects then have no owner.
func TestOnce_ReleasesAChart(t *testing.T) {
	t.Parallel()
	binary(t)
	must.Do(t, charts())
	s := newStage(t)
	k := s.kind()
	s.watch(k, "chart: "+absolute(t, "test/e2e/testdata/kettle"))
	s.write("it.yaml", fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: it, namespace: %s}, spec: {size: 3}}\n", k.gvk.GroupVersion(), k.gvk.Kind, s.namespace))
	for range 2 {
		if out := s.tool(0, "once", "-f", "it.yaml", "--watches-file=watches.yaml", "--runner-root="+s.root); !strings.Contains(out, "objects that the run creates have no owner") {
			t.Errorf("it says\n%s", out)
		}
	}
	client := kubernetes.NewForConfigOrDie(s.cfg)
	made := must.Get(client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "it", metav1.GetOptions{}))(t)
	if len(made.OwnerReferences) > 0 || made.Annotations["operator-sdk/primary-resource"] != "" || made.Data["size"] != "3" {
		t.Errorf("made is %v", made)
	}
	if got := s.revisions(client, "it"); got != "1 deployed" {
		t.Errorf("revisions: %s", got)
	}
}
