package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// temp gives the stage's operators their own directory for temporary files.
func (s *stage) temp() string {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "w") // the path of a socket must be short
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.env = append(s.env, "TMPDIR="+dir)
	return dir
}

// wrapAnsible puts a shell script in front of ansible-playbook, so that it cannot be forked.
func (s *stage) wrapAnsible() {
	s.t.Helper()
	needAnsible(s.t)
	playbook := must.Get(exec.LookPath("ansible-playbook"))(s.t)
	s.write("bin/ansible-playbook", "#!/bin/sh\nexec "+playbook+" \"$@\"\n")
	must.Do(s.t, os.Chmod(filepath.Join(s.dir, "bin/ansible-playbook"), 0o700))
	s.env = append(s.env, "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
}

// awaitMetric waits until a metric has a value.
func (o *operator) awaitMetric(want float64, name string, labels ...string) {
	o.t.Helper()
	testenv.Eventually(o.t, fmt.Sprintf("%s%v %v", name, labels, want), func(ctx context.Context) error {
		got, err := o.metric(ctx, name, labels...)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// A forked run is like any run: events, status, artifacts and cluster are the same. Its operator leaves nothing behind.
func TestExecutor_ForkedRunsAreRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	temp := s.temp()
	s.role("both", `- name: Use the cluster
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}}
- name: Fail if told so
  ansible.builtin.fail: {msg: "as {{ reason }}"}
  when: reason is defined
`)
	s.watch(k, "role: both")
	o := s.start("--executor=warm")
	k.create("it", nil)
	is := k.awaitReady("it")
	dir := filepath.Join(s.root, ".runs", string(is.GetUID()), is.lastRun().ID, "artifacts", is.lastRun().ID)
	for _, name := range []string{"stdout", "rc", "status", "job_events"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("artifacts of a forked run: %v", err)
		}
	}
	o.awaitMetric(1, "rolewright_warm_ready")
	o.awaitMetric(1, "rolewright_runs_by_executor_total", `executor="warm"`)
	o.awaitMetric(0, "rolewright_runs_by_executor_total", `executor="runner"`)
	k.create("bad", map[string]any{"reason": "told"})
	bad := k.await("bad", "failed", func(o object) bool { return o.lastRun().Result == "Failed" }).lastRun()
	if !strings.Contains(bad.Message, "as told") || bad.FailedTask == nil || bad.FailedTask.Name != "Fail if told so" {
		t.Errorf("record of a forked run that failed: %+v", bad)
	}
	if strings.Contains(o.output(), "Runs are not forked, each starts a new Python") {
		t.Error("the runs were not forked")
	}
	o.stop()
	left, err := filepath.Glob(filepath.Join(temp, "rolewright-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left of the fork server: %v, %v", left, err)
	}
}

// An operator without work has no fork server. The first run starts one, and it ends when there is no run for a while.
// That is no failure, and no reason for plain runs.
func TestExecutor_TheServerComesAndGoesWithTheWork(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	temp := s.temp()
	s.role("short", "- ansible.builtin.ping:\n")
	s.watch(k, "role: short")
	o := s.start("--executor=auto", "--warm-idle=2s")
	for i, name := range []string{"one", "two"} {
		testenv.Eventually(t, "no fork server", func(context.Context) error {
			if found := must.Get(procs.Titled(temp))(t); len(found) > 0 {
				return fmt.Errorf("%v", found)
			}
			return nil
		})
		k.create(name, nil)
		k.awaitReady(name)
		o.awaitMetric(float64(i+1), "rolewright_runs_by_executor_total", `executor="warm"`)
	}
	o.awaitOutput("The fork server was stopped because it was idle (--warm-idle)")
	o.awaitMetric(1, "rolewright_warm_ready")
	if strings.Contains(o.output(), "Runs are not forked") {
		t.Error("that the server has ended is taken for a failure")
	}
}

// The key executor of a watch wins over the flag. Status and metrics say which modules of a forked run were not forked, and
// why.
func TestExecutor_IsTheWatchs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	s.role("short", "- ansible.builtin.ping:\n- ansible.builtin.ping:\n  vars: {ansible_pipelining: true}\n")
	plain, forked := s.kind(), s.kind()
	s.watch(plain, "role: short")
	s.watch(forked, "role: short", "executor: warm")
	o := s.start("--executor=runner")
	plain.create("it", nil)
	forked.create("it", nil)
	plain.awaitReady("it")
	forked.awaitReady("it")
	for group, executor := range map[string]string{plain.gvk.Group: "runner", forked.gvk.Group: "warm"} {
		o.awaitMetric(1, "rolewright_runs_by_executor_total", `group="`+group+`"`)
		o.awaitMetric(1, "rolewright_runs_by_executor_total", `group="`+group+`"`, `executor="`+executor+`"`)
	}
	must.Be(t, "modules in the status of the forked run", map[string]int{"forked": 1, "pipelining": 1}, forked.get("it").lastRun().Modules)
	must.Be(t, "modules in that of the other one", map[string]int(nil), plain.get("it").lastRun().Modules)
	o.awaitMetric(1, "rolewright_modules_total", `way="pipelining"`)
}

// If the processes that forked a run are killed, it is made again, and the next one takes place.
func TestExecutor_FaultsOfTheServer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	temp := s.temp()
	// What was cut short is made again at once: a back-off would outlast the test.
	l := s.startLongRun("--executor=warm", "--retry-min=1h", "--retry-max=1h")
	l.operator.awaitMetric(1, "rolewright_warm_ready")
	found := 0
	for pid, line := range must.Get(procs.Titled("/server.py "))(t) { // the keeper
		if strings.Contains(line, temp) || strings.Contains(line, l.active.ID) {
			must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
			found++
		}
	}
	if found != 1 {
		t.Fatalf("%d keepers", found)
	}
	l.awaitNothingLeft() // or the run might end before it is cut short
	l.goOn()
	// That a run was cut short is a failure for as long as it takes to make it again.
	o := l.kind.await("it", "ready", func(o object) bool { return o.ready() })
	if ran := len(s.runs(o)); ran != 2 {
		t.Errorf("%d runs, want 2: %+v", ran, o.status)
	}
	l.operator.awaitMetric(1, "rolewright_runs_total", `reason="Interrupted"`)
	l.nothingLeft()
	s.role("long", "- ansible.builtin.ping:\n")
	l.kind.create("next", nil)
	if next := l.kind.awaitReady("next"); len(s.runs(next)) != 1 {
		t.Errorf("the next object: %+v", next.status)
	}
	l.operator.stop()
}

// If runs cannot be forked, auto makes plain runs and says why, once; warm does not start.
func TestExecutor_WhereRunsCannotBeForked(t *testing.T) {
	t.Parallel()
	const why = "not a Python script as pip or a distribution installs it"
	s := newStage(t)
	s.wrapAnsible()
	k := s.kind()
	s.role("short", "- ansible.builtin.ping:\n")
	s.watch(k, "role: short")
	warm := s.launch("--executor=warm")
	if code := warm.exit(); code != 1 || !strings.Contains(warm.output(), "Error: executor warm: ") || !strings.Contains(warm.output(), why) {
		t.Errorf("exit code with --executor=warm: %d", code)
	}
	o := s.start("--executor=auto")
	for _, name := range []string{"one", "two"} {
		k.create(name, nil)
		k.awaitReady(name)
	}
	o.awaitMetric(0, "rolewright_warm_ready")
	o.awaitMetric(2, "rolewright_runs_by_executor_total", `executor="runner"`)
	if n := strings.Count(o.output(), "Runs are not forked, each starts a new Python"); n != 1 || !strings.Contains(o.output(), why) {
		t.Errorf("the log says %d times that runs are not forked", n)
	}
}
