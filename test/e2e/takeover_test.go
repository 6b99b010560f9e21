package e2e

import (
	"context"
	"fmt"
	"net/http"
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
	"github.com/rolewright/rolewright/test/testenv"
)

// takeOver starts rolewright dev, which takes the Lease of the replicas.
func (r *replicas) takeOver(args ...string) *operator {
	r.t.Helper()
	of := *r.stage
	of.root = filepath.Join(r.t.TempDir(), "runner")
	return of.launchWith(func(o *operator) {
		o.cmd.Args = append([]string{o.cmd.Args[0], "dev", "--runner-root=" + of.root, "--no-apply",
			"--take-over=" + r.namespace + "/" + r.lease}, args...)
	})
}

// awaitHolder waits until want holds the Lease.
func (r *replicas) awaitHolder(want string) {
	r.t.Helper()
	testenv.Eventually(r.t, "the Lease held by "+want, func(ctx context.Context) error {
		is, err := kubernetes.NewForConfigOrDie(r.cfg).CoordinationV1().Leases(r.namespace).Get(ctx, r.lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *is.Spec.HolderIdentity != want {
			return fmt.Errorf("it is held by %q", *is.Spec.HolderIdentity)
		}
		return nil
	})
}

// expectAlive checks in the background, until the end of the test, that an operator passes its liveness probe all the
// time.
func (o *operator) expectAlive() {
	o.t.Helper()
	testenv.Eventually(o.t, "the operator to be alive", func(ctx context.Context) error {
		_, _, err := fetch(ctx, o.health+"/healthz")
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			status, _, err := fetch(ctx, o.health+"/healthz")
			if ctx.Err() != nil {
				return
			}
			if err != nil || status != http.StatusOK {
				o.t.Errorf("/healthz answers %d: %v", status, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	o.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// dev takes over when the run in progress has ended. It gives the Lease back when it ends, and also when it is killed.
// The deployed operator stays alive meanwhile, and runs nothing.
func TestDev_TakesOverAndGivesBack(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	deployed := r.another("--max-concurrent-reconciles=1")
	deployed.expectAlive()
	r.kind.create("first", map[string]any{"beats": 6000})
	run := r.awaitBeats()
	operators := r.holder()
	r.kind.create("next", map[string]any{"beats": 1})

	dev := r.takeOver()
	deployed.awaitOutput("The Lease is left to another client")
	must.Do(t, os.WriteFile(r.path+".end", nil, 0o600))
	dev.awaitOutput("taken over")
	if r.holder() == operators {
		t.Error("the Lease is still held by the deployed operator")
	}
	dev.awaitOutput("/next  succeeded")
	if is := r.kind.awaitReady("first"); is.lastRun().ID != run {
		t.Errorf("run %s was not finished, but repeated as %s", run, is.lastRun().ID)
	}
	r.replace("watches.yaml", "- group", "# a change\n- group")
	dev.awaitOutput("the operator restarts")
	r.kind.create("after", map[string]any{"beats": 1})
	dev.awaitOutput("/after  succeeded")
	if out := r.tool(1, "dev", "--no-apply", "--take-over="+r.namespace+"/"+r.lease); !strings.Contains(out, "reserved for rolewright-dev_") {
		t.Errorf("a second dev: %s", out)
	}
	dev.signal(syscall.SIGINT)
	if code := dev.exit(); code != 0 {
		t.Errorf("exit code of dev: %d", code)
	}
	r.awaitHolder(operators)
	r.kind.create("back", map[string]any{"beats": 1})
	r.kind.awaitReady("back")

	killed := r.takeOver()
	killed.awaitOutput("taken over")
	killed.signal(syscall.SIGKILL)
	killed.exit()
	r.kind.create("last", map[string]any{"beats": 1})
	r.kind.awaitReady("last")
	r.awaitHolder(operators)
	r.beats(r.path).expectNoOverlap(t)
	if deployed.hasEnded() {
		t.Error("the deployed operator has ended")
	}
}

// An operator that does not support this keeps its Lease: dev says so, and does not run beside it.
func TestDev_DoesNotRunBesideAnOperatorThatKeepsItsLease(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.kind.create("it", map[string]any{"beats": 1})
	args := []string{"dev", "--no-apply", "--take-over=" + r.namespace + "/" + r.lease, "--take-over-timeout=2s"}
	if out := r.tool(2, args...); !strings.Contains(out, "does not exist") {
		t.Errorf("without a Lease: %s", out)
	}
	leases := kubernetes.NewForConfigOrDie(r.cfg).CoordinationV1().Leases(r.namespace)
	holder, now, seconds := "some-other-operator", metav1.NowMicro(), int32(15)
	made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.lease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: &now, AcquireTime: &now, LeaseDurationSeconds: &seconds,
	}}
	must.Get(leases.Create(t.Context(), made, metav1.CreateOptions{}))(t)
	if out := r.tool(4, args...); !strings.Contains(out, "still held by "+holder) || !strings.Contains(out, "WATCH_NAMESPACE") {
		t.Errorf("with a Lease that is kept: %s", out)
	}
	is, err := leases.Get(t.Context(), r.lease, metav1.GetOptions{})
	if err != nil || len(is.Annotations) > 0 || *is.Spec.HolderIdentity != holder {
		t.Errorf("%v; the Lease is left as %+v", err, is)
	}
	if n := len(r.runs()); n > 0 {
		t.Errorf("%d runs beside the other operator", n)
	}
}
