package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// ownCluster makes the stage's commands find the programs of an API server.
func (s *stage) ownCluster() {
	s.t.Helper()
	s.env = append(s.env, "KUBEBUILDER_ASSETS="+absolute(s.t, "bin", "tools"))
}

// A user without a cluster gets an API server that starts, answers and ends.
func TestCluster_UpAndDown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	env := s.env
	s.env = append(slices.Clip(env), "PATH=/usr/bin:/bin", "HOME="+t.TempDir())
	if out := s.tool(1, "cluster", "exec", "--", "true"); !strings.Contains(out, "fetch them with --download") {
		t.Errorf("without the programs it says\n%s", out)
	}
	s.env = env
	s.ownCluster()
	dir := "--dir=" + t.TempDir()
	up := s.tool(0, "cluster", "up", dir)
	t.Cleanup(func() { s.tool(0, "cluster", "down", dir) })
	kubeconfig := strings.Trim(strings.TrimPrefix(strings.TrimSpace(up), "export KUBECONFIG="), "'")
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("up prints %s: %v %v", up, info, err)
	}
	if again := s.tool(0, "cluster", "up", dir); again != up {
		t.Errorf("called again, up prints %s", again)
	}
	kubectl := process(t, absolute(t, "bin", "tools", "kubectl"), "--kubeconfig="+kubeconfig, "create", "namespace", "mine")
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	server := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t).Host
	found := must.Get(procs.Titled("--secure-port=" + server[strings.LastIndex(server, ":")+1:]))(t)
	if len(found) != 1 {
		t.Fatalf("the API server is one of %v", found)
	}
	for pid := range found {
		must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	if said := s.tool(1, "cluster", "up", dir); !strings.Contains(said, "does not answer") {
		t.Errorf("of a cluster whose API server was killed, up says\n%s", said)
	}
	s.tool(0, "cluster", "down", dir)
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Error("the kubeconfig is left")
	}
	s.tool(7, "cluster", "exec", "--", "sh", "-c", "test -s $KUBECONFIG && exit 7")
}

// Scenarios of a project pass if everything is as expected; otherwise the difference is named.
func TestTest_PlaysScenarios(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	s.ownCluster()
	domain := testenv.Random("d") + ".example.com"
	s.tool(0, "init", "--domain", domain, "--name", "web-operator")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Site", "--finalizer")
	// The cluster of each call is a new one, whose runs need not stay.
	note := filepath.Join(s.root, ".runs", ".cluster")
	must.Do(t, os.MkdirAll(filepath.Dir(note), 0o700))
	must.Do(t, os.WriteFile(note, []byte("another"), 0o600))
	out := s.tool(0, "test", "--junit", "report.xml", "--runner-root="+s.root)
	must.Be(t, "directories of clusters", 0, len(must.Get(os.ReadDir(filepath.Join(s.root, ".clusters")))(t)))
	for _, want := range []string{"config/samples/web_v1_site.yaml: apply", "config/samples/web_v1_site.yaml: delete", "1 of 1 scenarios passed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if report := s.texts()["report.xml"]; !strings.Contains(report, `tests="2" failures="0"`) {
		t.Errorf("the report is\n%s", report)
	}

	s.write("tests/good.yaml", `
given: {apiVersion: v1, kind: ConfigMap, metadata: {name: given}}
steps:
  - apply: ../config/samples/web_v1_site.yaml
    changed: 1
    expect: {apiVersion: v1, kind: ConfigMap, metadata: {name: site-sample}, data: {text: Hello}}
  - delete: ../config/samples/web_v1_site.yaml
    absent: {apiVersion: v1, kind: ConfigMap, metadata: {name: site-sample}}
`)
	s.write("tests/other.yaml", `
steps:
  - apply: ../config/samples/web_v1_site.yaml
    idempotent: false
  - timeout: 10s
    expect: {apiVersion: v1, kind: ConfigMap, metadata: {name: site-sample}, data: {text: Bye}}
`)
	s.write("tests/counts.yaml", `
steps:
  - apply: ../config/samples/web_v1_site.yaml
    changed: 2
`)
	out = s.tool(1, "test")
	for _, want := range []string{
		`ConfigMap/site-sample: data.text: wanted "Bye", it is "Hello"`, "wanted 2 changed tasks, there were 1: Write a ConfigMap", "1 of 3 scenarios passed",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	s.write("roles/site/tasks/main.yml", `---
- name: Write a Deployment
  kubernetes.core.k8s:
    wait: true
    wait_timeout: "{{ (text == 'Bye') | ternary(1, 90) }}"
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        selector: {matchLabels: {app: a}}
        template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a}]}}
`)
	s.write("tests/waits.yaml", `
given: {apiVersion: apps/v1, kind: Deployment, metadata: {name: given}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a}]}}}, status: {replicas: 2}}
steps:
  - apply: ../config/samples/web_v1_site.yaml
    status: {apiVersion: apps/v1, kind: Deployment, metadata: {name: site-sample}, status: {replicas: 1, readyReplicas: 1, updatedReplicas: 1, availableReplicas: 1}}
    expect: {apiVersion: apps/v1, kind: Deployment, metadata: {name: given}, status: {replicas: 2}}
  - apply: {apiVersion: web.DOMAIN/v1, kind: Site, metadata: {name: other}, spec: {text: Bye}}
`)
	s.replace("tests/waits.yaml", "DOMAIN", domain)
	out = s.tool(1, "test", "tests/waits.yaml")
	for _, want := range []string{"ok", "tests/waits.yaml: Site/site-sample", "the run did not succeed: TaskFailed (Write a Deployment", "hint: this API server starts no Pods"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
