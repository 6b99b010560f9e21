package warm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// The end of its connection to the server says that a run has ended. A run that is forked while another is in progress must
// not hold the other's connection: the other run would not end before it.
func TestRun_EndsWhileAnotherGoesOn(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	var gates []string
	var ids []string
	var ended []chan error
	for n := range 3 {
		gate := filepath.Join(t.TempDir(), "gate")
		req := request(t, fmt.Sprintf("- hosts: localhost\n  gather_facts: false\n  tasks: [{wait_for: {path: %s}}]\n", gate))
		end := make(chan error, 1)
		go func() {
			res, err := r.Run(t.Context(), req)
			if err == nil && !res.Verdict().Success {
				err = fmt.Errorf("verdict %+v\n%s", res.Verdict(), res.Tail)
			}
			end <- err
		}()
		gates, ids, ended = append(gates, gate), append(ids, req.ID), append(ended, end)
		eventually(t, fmt.Sprintf("the module of run %d", n), func() bool {
			return len(runheads(t, req.ID)) == 1 && strings.Count(traced(t, o), "playbook forked") == n+1
		})
		for pid := range runheads(t, req.ID) {
			if have := sockets(t, pid); have != 1 {
				t.Errorf("the run head of run %d has %d connections, not its own alone", n, have)
			}
		}
	}
	for n, gate := range gates { // the first ends while the others are in progress, and so on
		must.Do(t, os.WriteFile(gate, nil, 0o600))
		if err := <-ended[n]; err != nil {
			t.Error(err)
		}
		for _, id := range ids[n+1:] {
			if len(processes(t, id)) == 0 {
				t.Errorf("run %d has waited for the end of another", n)
			}
		}
	}
}

// sockets returns how many sockets a process has open.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	descriptors := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)))(t)
	n := 0
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}
