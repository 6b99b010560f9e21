package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// awaitNothingLeft waits until no process of the run is left.
func (l longRun) awaitNothingLeft() {
	l.t.Helper()
	testenv.Eventually(l.t, "end of all processes of the run", func(context.Context) error {
		if left := processesOf(l.t, l.active.ID); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

func TestCrash_AKilledOperatorLeavesNothingAndTheRunIsMadeGood(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	temp := s.temp()
	temporary := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(temp, "*", "*")) // the processes of runs, and the fork server's
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	l := s.startLongRun()
	l.operator.signal(syscall.SIGKILL)
	l.operator.exit()
	l.awaitNothingLeft()
	// The next operator cannot remove what a fork server that has not ended yet writes.
	testenv.Eventually(t, "the end of the fork server", func(context.Context) error {
		left, err := procs.Titled(temp)
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return err
	})
	if len(temporary()) == 0 {
		t.Error("there is nothing for the next operator to remove")
	}
	if o := l.kind.get("it"); o.status.Ansible.ActiveRun == nil || o.status.Ansible.ActiveRun.ID != l.active.ID {
		t.Fatalf("status after the crash: %+v", o.status)
	}

	l.role("long", "- name: Be quick\n  ansible.builtin.debug:\n    msg: done\n")
	second := l.start()
	o := l.kind.awaitReady("it")
	second.stop()
	if last := o.lastRun(); last.ID == l.active.ID || last.Cause != "interrupted" || o.status.Ansible.ActiveRun != nil {
		t.Errorf("status after the restart: %+v", o.status)
	}
	if ran := len(l.runs()); ran != 2 {
		t.Errorf("%d runs, want the lost one and another", ran)
	}
	l.nothingLeft()
	if left := temporary(); len(left) > 0 {
		t.Errorf("temporary files left: %q", left)
	}
}
