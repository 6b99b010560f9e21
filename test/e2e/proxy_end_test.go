package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// gatedTasks write when their gate is opened.
const gatedTasks = `
- name: Wait to be let on
  ansible.builtin.shell: touch "$GATES/$NAME.waits"; while [ ! -e "$GATES/$NAME.open" ]; do sleep 0.1; done
  environment: {NAME: "{{ ansible_operator_meta.name }}"}
- name: Write
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "of-{{ ansible_operator_meta.name }}", namespace: "{{ other }}"}}
`

// gates are where the runs of a stage wait, by the names of their objects.
type gates struct {
	t   *testing.T
	dir string
}

func (s *stage) gates() gates {
	s.t.Helper()
	dir := s.t.TempDir()
	s.env = append(s.env, "GATES="+dir)
	return gates{s.t, dir}
}

func (g gates) await(name string) {
	g.t.Helper()
	testenv.Eventually(g.t, "the run of "+name+" at its gate", func(context.Context) error {
		_, err := os.Stat(filepath.Join(g.dir, name+".waits"))
		return err
	})
}

func (g gates) open(name string) {
	g.t.Helper()
	must.Do(g.t, os.WriteFile(filepath.Join(g.dir, name+".open"), nil, 0o600))
}

// awaitLine waits until one line of the log contains all the words.
func (o *operator) awaitLine(words ...string) {
	o.t.Helper()
	testenv.Eventually(o.t, fmt.Sprintf("a line with %q", words), func(context.Context) error {
	lines:
		for line := range strings.Lines(o.output()) {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue lines
				}
			}
			return nil
		}
		return errors.New("not there yet")
	})
}

func TestProxy_ServesARunToItsEnd_ButNotLongerThanItsObjectLives(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	g := s.gates()
	other := testenv.Namespace(t, s.cfg)
	s.role("gated", gatedTasks)
	k := s.kind()
	s.watch(k, "role: gated", "vars: {other: "+other+"}")
	o := s.start("--zap-log-level=debug", "--max-concurrent-reconciles=2")
	of := func(name string) child { return child{"configmaps.v1.", other, "of-" + name} }
	cs := s.children()

	k.create("gone", nil)
	g.await("gone")
	k.delete("gone")
	stays := k.create("stays", nil)
	g.await("stays")
	o.awaitLine("Run was interrupted", `"name":"gone"`)
	g.open("gone")

	o.signal(syscall.SIGTERM)
	o.awaitLine("Shutdown signal received")
	g.open("stays")
	if code := o.exit(); code != 0 {
		t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
	cs.owned(stays, of("stays"))
	cs.absent(of("gone"))
	if last := k.get("stays").lastRun(); last.Result != "Succeeded" {
		t.Errorf("the run that the stop found: %+v", last)
	}
}
