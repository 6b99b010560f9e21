//go:build e2e

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const teaSystem = "tea-operator-system"

// outcomes are what playbooks/pot.yml can be told to do, and whether that is a success.
var outcomes = map[string]bool{
	"good": true, "rescued": true,
	"fail": false, "undefined": false, "unreachable": false, "item": false,
}

// TestMigration uses an unchanged project of ansible-operator, in the layout of its scaffold: its image is built from its
// own Dockerfile with another FROM line, and its own manifests install it. The verdicts in the Pod, with the newer line
// of Ansible, are the same as those of the program outside.
func TestMigration(t *testing.T) {
	s := &shell{dir: t.TempDir()}
	if err := os.CopyFS(s.dir, os.DirFS("testdata/tea-operator")); err != nil {
		t.Fatalf("copy the project: %v", err)
	}
	// This is what `make deploy IMG=tea-operator:v0.0.1` does.
	manager := filepath.Join(s.dir, "config/manager/kustomization.yaml")
	text, err := os.ReadFile(manager)
	if err == nil {
		err = os.WriteFile(manager, append(text, "images:\n- name: controller\n  newName: tea-operator\n  newTag: v0.0.1\n"...), 0o600)
	}
	if err != nil {
		t.Fatalf("name the image: %v", err)
	}
	s.kubectl(t, "apply", "--server-side", "--kustomize", "config/default")
	for _, namespace := range []string{"inside", "outside"} {
		s.kubectl(t, "create", "namespace", namespace)
	}
	s.kubectl(t, "set", "env", "--namespace="+teaSystem, "deployment/tea-operator-controller-manager", "WATCH_NAMESPACE=inside",
		"MAX_CONCURRENT_RECONCILES_POT_KITCHEN_EXAMPLE_COM=2") // a greedy one beside one that waits
	s.kubectl(t, "patch", "--namespace="+teaSystem, "deployment/tea-operator-controller-manager", "--type=json",
		`--patch=[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--artifacts-max-bytes-per-run=8Mi"},
			{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--leader-elect-lease-duration=2m"},
			{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--leader-elect-renew-deadline=90s"}]`)
	outside(t, s)
	s.kubectl(t, "rollout", "status", "--namespace="+teaSystem, "--timeout=600s", "deployment/tea-operator-controller-manager")

	t.Run("a role's object", func(t *testing.T) { brew(t, s) })
	forked(t, s, teaSystem, "deployment/tea-operator-controller-manager")
	t.Run("verdicts", func(t *testing.T) { verdicts(t, s) })
	t.Run("greedy roles", func(t *testing.T) { greedy(t, s) })
	harden(t, s)
	t.Run("a role's object, as any user", func(t *testing.T) { brew(t, s) })
	if t.Failed() {
		logs, _ := s.run("logs", "--namespace="+teaSystem, "deployment/tea-operator-controller-manager", "--tail=60")
		t.Logf("the end of the operator's log:\n%s", logs)
	}
}

// outside runs the program on this machine until the test ends.
func outside(t *testing.T, s *shell) {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(repository, "bin/rolewright"))
	if err != nil {
		t.Fatalf("find the program: %v", err)
	}
	log, err := os.Create(filepath.Join(s.dir, "outside.log"))
	if err != nil {
		t.Fatalf("open the log: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "run", "--runner-root="+filepath.Join(s.dir, "runner"), "--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--user-metrics-bind-address=0", "--proxy-port=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "WATCH_NAMESPACE=outside", "ANSIBLE_GATHERING=explicit", "ANSIBLE_ROLES_PATH="+filepath.Join(s.dir, "roles"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // ended by our signal
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log outside:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

func brew(t *testing.T, s *shell) {
	t.Helper()
	in := "--namespace=inside"
	recipe := []string{"get", "configmap/tea-sample-recipe", in, "--ignore-not-found", "--output=jsonpath={.data.minutes} {.data.celsius} {.data.sort}"}
	s.kubectl(t, "apply", in, "--filename", "config/samples/kitchen_v1alpha1_tea.yaml")
	s.eventually(t, "the recipe", s.equals("3 80 green tea", recipe...))
	s.kubectl(t, "patch", "tea.kitchen.example.com/tea-sample", in, "--type=merge", `--patch={"spec": {"minutes": 5}}`)
	s.eventually(t, "the other recipe", s.equals("5 80 green tea", recipe...))
	s.kubectl(t, "delete", "tea.kitchen.example.com/tea-sample", in)
	s.eventually(t, "the recipe to go", s.equals("", recipe...))
}

// harden restricts the Pod as stricter clusters do: an unknown user, and a read-only root file system. What the build of
// the image has installed, including collections, must still be found.
func harden(t *testing.T, s *shell) {
	t.Helper()
	const deployment = "deployment/tea-operator-controller-manager"
	s.kubectl(t, "patch", deployment, "--namespace="+teaSystem, "--type=strategic", `--patch={"spec": {"template": {"spec": {
		"securityContext": {"runAsUser": 1000650000, "fsGroup": 1000650000},
		"containers": [{"name": "manager", "securityContext": {"readOnlyRootFilesystem": true}, "volumeMounts": [{"name": "work", "mountPath": "/tmp"}]}],
		"volumes": [{"name": "work", "emptyDir": {}}]}}}}`)
	s.kubectl(t, "rollout", "status", "--namespace="+teaSystem, "--timeout=600s", deployment)
	// Until the old Pod is gone, it may be the one that answers.
	s.eventually(t, "one Pod", s.equals("1", "get", deployment, "--namespace="+teaSystem, "--output=jsonpath={.status.replicas}"))
}

// pot is the part of a verdict that does not depend on when and where it was made, with the run's ID and its executor.
type pot struct {
	Types, Message, Result, Reason string
	ID                             string
	Counts                         map[string]int
	Executor                       string
}

func verdicts(t *testing.T, s *shell) {
	t.Helper()
	for outcome := range outcomes {
		object := fmt.Sprintf(`{"apiVersion": "kitchen.example.com/v1alpha1", "kind": "Pot", "metadata": {"name": %q}, "spec": {"outcome": %q}}`, outcome, outcome)
		if err := os.WriteFile(filepath.Join(s.dir, outcome+".json"), []byte(object), 0o600); err != nil {
			t.Fatalf("write an object: %v", err)
		}
		for _, namespace := range []string{"inside", "outside"} {
			s.ask(t, "apply", "--namespace="+namespace, "--filename", outcome+".json")
		}
	}
	for outcome, good := range outcomes {
		inside, outside := judged(t, s, "inside", outcome), judged(t, s, "outside", outcome)
		outside.Executor, outside.ID = inside.Executor, inside.ID // no part of the verdict
		if diff := cmp.Diff(outside, inside); diff != "" {
			t.Errorf("%s: the verdict (-outside +in the Pod)\n%s", outcome, diff)
		}
		if inside.Result == "Succeeded" != good || strings.Contains(inside.Types, "Failure=True") == good {
			t.Errorf("%s: %+v", outcome, inside)
		}
	}
}

// greedy has forked runs that take all there is in the container: each is ended and named, the run in progress beside it
// succeeds, other objects run afterwards, and the container is not restarted. Nor is it for a Lease that was not renewed
// meanwhile: it has minutes.
func greedy(t *testing.T, s *shell) {
	t.Helper()
	in := "--namespace=inside"
	restarts := []string{"get", "pods", "--namespace=" + teaSystem, "--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}"}
	before := s.ask(t, restarts...)
	for outcome, want := range map[string]struct{ reason, says string }{
		"greedy": {"OutOfMemory", "MiB were in use"},
		"pours":  {"ArtifactsTooLarge", "--artifacts-max-bytes-per-run"},
		"forks":  {"TooManyProcesses", "taken for the limit"},
	} {
		beside := "beside-" + outcome
		run := waitingRun(t, s, beside)
		s.apply(t, fmt.Sprintf(`{"apiVersion": "kitchen.example.com/v1alpha1", "kind": "Pot", "metadata": {"name": %q, "namespace": "inside"}, "spec": {"outcome": %q}}`, outcome, outcome))
		got := judged(t, s, "inside", outcome)
		if got.Reason != want.reason || !strings.Contains(got.Message, want.says) || got.Executor != "warm" {
			t.Errorf("%s: %+v, want %s in a forked run", outcome, got, want.reason)
		}
		t.Logf("%s: %s", outcome, got.Message)
		s.ask(t, "delete", "pot/"+outcome, in)
		s.ask(t, "exec", "--namespace="+teaSystem, "deployment/tea-operator-controller-manager", "--", "touch", "/tmp/"+beside)
		if other := judged(t, s, "inside", beside); other.Result != "Succeeded" || other.ID != run {
			t.Errorf("beside %s: %+v, want success of the run %s", outcome, other, run)
		}
		s.ask(t, "delete", "pot/"+beside, in)
		brew(t, s)
	}
	if after := s.ask(t, restarts...); after != before {
		t.Errorf("containers were restarted: %s, before %s", after, before)
	}
}

// waitingRun makes a Pot whose run waits for the file /tmp/NAME, and returns the run's ID when it does so.
func waitingRun(t *testing.T, s *shell, name string) string {
	t.Helper()
	s.apply(t, fmt.Sprintf(`{"apiVersion": "kitchen.example.com/v1alpha1", "kind": "Pot", "metadata": {"name": %q, "namespace": "inside"}, "spec": {"outcome": "waits"}}`, name))
	ask := []string{"get", "pot/" + name, "--namespace=inside", "--output=jsonpath={.status.ansible.activeRun.task.name}"}
	s.eventually(t, name+" to wait", s.equals("Wait for the guests", ask...))
	return s.ask(t, "get", "pot/"+name, "--namespace=inside", "--output=jsonpath={.status.ansible.activeRun.id}")
}

// judged waits for the verdict on a Pot.
func judged(t *testing.T, s *shell, namespace, name string) pot {
	t.Helper()
	var found pot
	s.eventually(t, "the verdict on "+namespace+"/"+name, func() error {
		out, err := s.run("get", "pot/"+name, "--namespace="+namespace, "--output=jsonpath={.status}")
		if err != nil || out == "" {
			return fmt.Errorf("no status: %s", out)
		}
		var status struct {
			Conditions []struct{ Type, Status, Message string }
			Ansible    struct{ LastRun pot }
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		found = status.Ansible.LastRun
		found.Message, _, _ = strings.Cut(found.Message, "\n")
		if strings.Contains(found.Message, "nowhere_to_be_found") || strings.Contains(found.Message, "pot.invalid") {
			found.Message = "the two lines of Ansible say this in other words"
		}
		var types []string
		for _, c := range status.Conditions {
			// Whether it is being repeated at this moment depends on timing.
			if c.Type == "Successful" || c.Type == "Failure" {
				types = append(types, c.Type+"="+c.Status)
			}
		}
		slices.Sort(types)
		found.Types = strings.Join(types, " ")
		if found.Result == "" {
			return fmt.Errorf("not ended: %s", out)
		}
		return nil
	})
	return found
}
