package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// beatTasks write down the time until they are stopped, have done so for "beats" tenths of a second, or may end because
// the file $BEATS.end exists.
const beatTasks = `- name: Beat
  ansible.builtin.shell:
    cmd: for i in $(seq {{ beats }}); do echo "$ROLEWRIGHT_RUN $(date +%s%N)" >> "$BEATS"; [ ! -e "$BEATS.end" ] || break; sleep 0.1; done
`

// beats are the times at which each run has reported that it is alive.
type beats map[string]struct{ first, last time.Time }

func (s *stage) beats(path string) beats {
	s.t.Helper()
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	of := beats{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		id, stamp, _ := strings.Cut(lines.Text(), " ")
		ns, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			continue // incomplete because its run was killed
		}
		b, ok := of[id]
		if !ok {
			b.first = time.Unix(0, ns)
		}
		b.last = time.Unix(0, ns)
		of[id] = b
	}
	return of
}

// expectNoOverlap checks that no two runs were alive at the same time.
func (b beats) expectNoOverlap(t *testing.T) {
	t.Helper()
	for one, a := range b {
		for other, c := range b {
			if one < other && a.first.Before(c.last) && c.first.Before(a.last) {
				t.Errorf("runs %s (%s to %s) and %s (%s to %s) have overlapped", one, a.first, a.last, other, c.first, c.last)
			}
		}
	}
}

// replicas is a stage on which two operators, each with its own runner root, take turns as leader.
type replicas struct {
	*stage
	kind  kind
	path  string // where runs write down their beats
	lease string
	args  []string
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	s := newStage(t)
	r := &replicas{stage: s, kind: s.kind(), lease: "operator", path: filepath.Join(t.TempDir(), "beats")}
	s.env = append(s.env, "BEATS="+r.path)
	s.role("beat", beatTasks)
	s.watch(r.kind, "role: beat")
	r.args = append(steadyLease(), "--leader-elect", "--leader-election-id="+r.lease, "--leader-election-namespace="+s.namespace)
	return r
}

// steadyLease are flags of an operator that leads on although the machine stands still for 20 s. As with the defaults, a run that
// hears nothing of its operator ends long before another leads.
func steadyLease() []string {
	return []string{"--leader-elect-lease-duration=40s", "--leader-elect-renew-deadline=30s"}
}

// another starts a replica and returns at once; only one of them gets ready.
func (r *replicas) another(args ...string) *operator {
	r.t.Helper()
	needAnsible(r.t)
	of := *r.stage
	of.root = filepath.Join(r.t.TempDir(), "runner")
	return of.launchWith(r.asInPod, append(r.args, args...)...)
}

// asInPod gives a replica its own processes, as in a Pod: it is the first process and sees no others, so that only it can
// end its runs. If that is not permitted, the test proves less.
func (r *replicas) asInPod(o *operator) {
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := probe.Run(); err != nil {
		r.t.Logf("replicas see each other's processes: %v", err)
		return
	}
	o.cmd.SysProcAttr.Cloneflags = probe.SysProcAttr.Cloneflags
	o.cmd.Args = append([]string{"sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$@"`, "sh"}, o.cmd.Args...)
	o.cmd.Path = "/bin/sh"
	r.t.Cleanup(func() { // as a container runtime does when the first process has ended, and with it all others
		for _, group := range must.Get(procs.Groups(o.stage.runs()...))(r.t) {
			if err := os.Remove(group); err != nil {
				r.t.Error(err)
			}
		}
	})
}

// awaitBeats waits until a run other than the given ones is alive, and returns its ID.
func (r *replicas) awaitBeats(not ...string) string {
	r.t.Helper()
	var id string
	testenv.Eventually(r.t, "a run to live", func(context.Context) error {
		for id = range r.beats(r.path) {
			known := false
			for _, n := range not {
				known = known || n == id
			}
			if !known {
				return nil
			}
		}
		return fmt.Errorf("none but %v", not)
	})
	return id
}

func (r *replicas) holder() string {
	r.t.Helper()
	is, err := kubernetes.NewForConfigOrDie(r.cfg).CoordinationV1().Leases(r.namespace).Get(r.t.Context(), r.lease, metav1.GetOptions{})
	if err != nil || is.Spec.HolderIdentity == nil {
		return ""
	}
	return *is.Spec.HolderIdentity
}

// A leader that is asked to stop gives the lease away when its last run has ended, and not before.
func TestLeadership_TheLeaseIsReleasedAfterTheLastRun(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.args = append(r.args, longLease()...)
	first := r.another()
	r.kind.create("it", map[string]any{"beats": 40})
	run := r.awaitBeats()
	second := r.another()
	second.awaitOutput("Attempting to acquire leader lease")
	first.signal(syscall.SIGTERM)
	first.awaitOutput("Shutdown signal received") // it begins no more runs
	r.kind.create("next", map[string]any{"beats": 1})
	if code := first.exit(); code != 0 {
		t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
	is := r.kind.awaitReady("it")
	if is.lastRun().ID != run {
		t.Errorf("record of %s, want of %s: a run that may end is not repeated", is.lastRun().ID, run)
	}
	next := r.kind.awaitReady("next")
	if began := next.lastRun().Started; began.Before(is.lastRun().Finished) {
		t.Errorf("another replica has begun at %s, before the last run of the first ended at %s", began, is.lastRun().Finished)
	}
	r.beats(r.path).expectNoOverlap(t)
	second.stop()
}
