package e2e

import (
	"testing"

	"github.com/prometheus/procfs"

	"github.com/rolewright/rolewright/test/must"
)

// What runs print does not stay in the operator's memory: 512 MiB in lines, 512 MiB in one line, and Ansible events of 1
// MiB each.
func TestOutput_DoesNotStayInMemory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	command, role := s.kind(), s.kind()
	s.script("print.sh", "#!/bin/sh\nyes 'Sixty-three characters and the end of a line, five hundred times.' | head -c 536870912\n"+
		"head -c 536870912 /dev/zero | tr '\\0' x\n")
	s.watch(command, "command: [./print.sh]")
	s.role("talks", "- name: Say it\n  ansible.builtin.debug:\n    msg: \"{{ 'x' * 1048576 }}\"\n  loop: \"{{ range(size | default(1) | int) | list }}\"\n")
	s.watch(role, "role: talks")
	o := s.start("--artifacts-max-bytes-per-run=4Gi")
	peak := func() (kib int) {
		t.Helper()
		process := must.Get(procfs.NewProc(o.cmd.Process.Pid))(t)
		kib = int(must.Get(process.NewStatus())(t).VmHWM >> 10)
		if kib == 0 {
			t.Fatal("the status of the operator has no VmHWM")
		}
		return kib
	}
	role.create("small", nil)
	role.awaitReady("small")
	before := peak()
	command.create("it", nil)
	role.create("large", map[string]any{"size": int64(16)})
	command.awaitReady("it")
	role.awaitReady("large")
	if more := peak() - before; more > 32<<10 {
		t.Errorf("the operator took %d KiB more, want at most 32 MiB", more)
	} else {
		t.Logf("the operator took %d KiB more", more)
	}
}
