package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

// longRun is a stage on which the run of an object is in the middle of a command that ends when the test lets it.
type longRun struct {
	*stage
	kind     kind
	operator *operator
	active   run
	gate     string // a file that lets the command end
}

// startLongRun returns when the command runs, together with a daemon that has left its process group and its parent.
func (s *stage) startLongRun(args ...string) longRun {
	s.t.Helper()
	k := s.kind()
	begun, gate := filepath.Join(s.t.TempDir(), "begun"), filepath.Join(s.t.TempDir(), "gate")
	s.role("long", `- name: Take long
  ansible.builtin.shell:
    cmd: setsid sleep 600 >/dev/null 2>&1 & touch `+begun+`; until [ -e `+gate+` ]; do sleep 0.1; done
`)
	s.watch(k, "role: long")
	l := longRun{stage: s, kind: k, operator: s.start(args...), gate: gate}
	k.create("it", nil)
	l.active = *k.await("it", "command runs", func(o object) bool {
		_, err := os.Stat(begun)
		return err == nil && o.status.Ansible.ActiveRun != nil
	}).status.Ansible.ActiveRun
	// ansible-runner, ansible-playbook and its worker, the command and the daemon.
	if processes := processesOf(s.t, l.active.ID); len(processes) < 5 {
		s.t.Fatalf("processes of the run: %v", processes)
	}
	return l
}

// goOn lets the command, and that of every later run, end.
func (l longRun) goOn() {
	l.t.Helper()
	must.Do(l.t, os.WriteFile(l.gate, nil, 0o600))
}

// nothingLeft checks that neither a process of the run nor its control group has survived.
func (l longRun) nothingLeft() {
	l.t.Helper()
	for pid, cmdline := range processesOf(l.t, l.active.ID) {
		l.t.Errorf("process %d of the run is left: %s", pid, cmdline)
	}
	if left := must.Get(procs.Groups(l.active.ID))(l.t); len(left) > 0 {
		l.t.Errorf("left: %v", left)
	}
}

func TestShutdown_SecondSignalStopsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	l := newStage(t).startLongRun("--graceful-shutdown-timeout=1h")
	l.operator.signal(syscall.SIGTERM)
	l.operator.awaitOutput("Shutdown signal received") // two signals at once would count as one
	l.operator.signal(syscall.SIGINT)
	if code := l.operator.exit(); code != 0 {
		t.Errorf("exit code after a second signal = %d, want 0: the end was in order", code)
	}
	l.nothingLeft()
	o := l.kind.get("it")
	if last := o.lastRun(); last.ID != l.active.ID || last.Result != "Interrupted" || o.status.Ansible.ActiveRun != nil {
		t.Errorf("status after a second signal: %+v", o.status)
	}
	if reconciling := o.condition("Reconciling"); reconciling.Status != "True" || reconciling.Reason != "RunInterrupted" ||
		!strings.Contains(reconciling.Message, "the operator shuts down") || o.condition("Failure").Status == "True" {
		t.Errorf("Reconciling = %+v, Failure = %+v", reconciling, o.condition("Failure"))
	}
}

func TestLeadership_LostLeaseStopsRuns(t *testing.T) {
	t.Parallel()
	const lease = "operator"
	s := newStage(t)
	l := s.startLongRun(append(steadyLease(), "--leader-elect", "--leader-election-id="+lease, "--leader-election-namespace="+s.namespace)...)
	leases := kubernetes.NewForConfigOrDie(l.cfg).CoordinationV1().Leases(l.namespace)
	usurp := func() error {
		is, err := leases.Get(t.Context(), lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder, now, seconds := "another", metav1.NowMicro(), int32(3600)
		is.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: &seconds}
		_, err = leases.Update(t.Context(), is, metav1.UpdateOptions{})
		return err
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_ = usurp() // a conflict is tried again
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	code := l.operator.exit()
	l.nothingLeft()
	close(stop)
	<-done
	if code == 0 {
		t.Error("exit code of an operator that lost its leadership = 0")
	}
	if !strings.Contains(l.operator.output(), "leader election lost") {
		t.Error("the output does not say that leadership was lost")
	}
}
