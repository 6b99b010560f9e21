//go:build warm

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A forked run is the same run: events, status, artifacts, the cluster; and its operator leaves nothing.
func TestExecutor_ForkedRunsAreRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	temp, err := os.MkdirTemp("", "w") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	s.env = append(s.env, "TMPDIR="+temp)
	s.role("both", `- name: Use the cluster
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}}
- name: Fail if told so
  ansible.builtin.fail: {msg: "as {{ reason }}"}
  when: reason is defined
`)
	s.watch(k, "role: both")
	o := s.start("--executor=warm")
	o.awaitOutput("Runs are forked from a warm interpreter")
	k.create("it", nil)
	is := k.awaitReady("it")
	dir := filepath.Join(s.root, ".runs", string(is.GetUID()), is.lastRun().ID, "artifacts", is.lastRun().ID)
	for _, name := range []string{"stdout", "rc", "status", "job_events"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("artifacts of a forked run: %v", err)
		}
	}
	k.create("bad", map[string]any{"reason": "told"})
	bad := k.await("bad", "failed", func(o object) bool { return o.lastRun().Result == "Failed" }).lastRun()
	if !strings.Contains(bad.Message, "as told") || bad.FailedTask == nil || bad.FailedTask.Name != "Fail if told so" {
		t.Errorf("record of a forked run that failed: %+v", bad)
	}
	if strings.Contains(o.output(), "Runs start Python anew") {
		t.Error("the runs were not forked")
	}
	o.stop()
	left, err := filepath.Glob(filepath.Join(temp, "rolewright-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left of the fork server: %v, %v", left, err)
	}
}
