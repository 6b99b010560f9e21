package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// sharedCommand records when each run begins, is alive and ends, and which replica makes it: the path of its files begins
// with the replica's runner root.
const sharedCommand = `#!/bin/sh
say() { echo "$1 $ROLEWRIGHT_UID $ROLEWRIGHT_OBJECT $(date +%s%N)" >> "$LEDGER"; }
beats=$(sed 's/.*"beats":\([0-9]*\).*/\1/' "$ROLEWRIGHT_OBJECT")
say begin
for i in $(seq "$beats"); do sleep 0.1; say beat; done
say end
`

// sharing is a stage on which several operators share the objects of some kinds.
type sharing struct {
	*replicas
	kinds  []kind
	ledger string
	names  []string // of the objects of each kind
}

const shardsOfTest = 8

// longLease are flags of replicas that keep their Leases while the machine stands still, for most of a minute. The shards
// of a killed replica are free after that minute.
func longLease() []string {
	return []string{"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s"}
}

func newSharing(t *testing.T, kinds int, args ...string) *sharing {
	t.Helper()
	s := newStage(t)
	h := &sharing{replicas: &replicas{stage: s, lease: "operator"}, ledger: filepath.Join(t.TempDir(), "ledger")}
	s.env = append(s.env, "LEDGER="+h.ledger)
	s.script("shared.sh", sharedCommand)
	for range kinds {
		k := s.kind()
		h.kinds = append(h.kinds, k)
		s.watch(k, "command: [./shared.sh]", "inheritEnv: [LEDGER]")
	}
	h.args = append([]string{"--leader-elect", "--leader-election-id=" + h.lease, "--leader-election-namespace=" + s.namespace,
		"--shards=" + strconv.Itoa(shardsOfTest), "--executor=runner"}, args...)
	return h
}

// awaitShares waits until the operators together hold all shards, and each has its share.
func (h *sharing) awaitShares(all ...*operator) {
	h.t.Helper()
	testenv.Eventually(h.t, fmt.Sprintf("the shards shared by %d replicas", len(all)), func(ctx context.Context) error {
		var held []float64
		total := 0.0
		for _, o := range all {
			if o.hasEnded() {
				h.t.Fatal("a replica has ended")
			}
			n, err := o.metric(ctx, "rolewright_shards_held")
			if err != nil {
				return err
			}
			if held, total = append(held, n), total+n; int(n) < shardsOfTest/len(all) {
				return fmt.Errorf("so far: %v", held)
			}
		}
		if total != shardsOfTest {
			return fmt.Errorf("so far: %v", held)
		}
		return nil
	})
}

// sharedRun is a run in the ledger.
type sharedRun struct {
	root        string // of the replica
	first, last time.Time
	ended       bool
}

// ledgered returns the runs of each object, by UID and run.
func (h *sharing) ledgered() map[string]map[string]sharedRun {
	h.t.Helper()
	data, err := os.ReadFile(h.ledger)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	all := map[string]map[string]sharedRun{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue // incomplete because its run was killed
		}
		ns, err := strconv.ParseInt(f[3], 10, 64)
		must.Do(h.t, err)
		if all[f[1]] == nil {
			all[f[1]] = map[string]sharedRun{}
		}
		root, run, _ := strings.Cut(f[2], "/.runs/")
		is, known := all[f[1]][run]
		if !known {
			is = sharedRun{root: root, first: time.Unix(0, ns)}
		}
		is.last, is.ended = time.Unix(0, ns), is.ended || f[0] == "end"
		all[f[1]][run] = is
	}
	return all
}

// expectRuns checks that each object has run this many times, and never twice at a time. It returns how many runs each
// replica made.
func (h *sharing) expectRuns(when string, each int) map[string]int {
	h.t.Helper()
	by := map[string]int{}
	all := h.ledgered()
	for uid, runs := range all {
		if len(runs) != each {
			h.t.Errorf("%s: object %s has run %d times, want %d: %v", when, uid, len(runs), each, runs)
		}
		for one, a := range runs {
			by[a.root]++
			for other, b := range runs {
				if one < other && a.first.Before(b.last) && b.first.Before(a.last) {
					h.t.Errorf("%s: runs %s and %s of %s have overlapped", when, one, other, uid)
				}
			}
		}
	}
	if n := len(h.kinds) * len(h.names); len(all) != n {
		h.t.Errorf("%s: %d objects have run, want %d", when, len(all), n)
	}
	return by
}

// each calls do for each object.
func (h *sharing) each(do func(k kind, name string)) {
	for _, k := range h.kinds {
		for _, name := range h.names {
			do(k, name)
		}
	}
}

// change changes all objects, and waits for their runs if wait is true.
func (h *sharing) change(to int) {
	h.t.Helper()
	h.each(func(k kind, name string) { k.patch(name, fmt.Sprintf(`{"spec":{"beats":2,"to":%d}}`, to)) })
}

func (h *sharing) awaitReady() {
	h.t.Helper()
	h.each(func(k kind, name string) { k.awaitReady(name) })
}

// Replicas share the objects: each change runs its object once, whichever replicas come and go in order meanwhile.
func TestShards_EachChangeRunsOnceWhoeverComesAndGoes(t *testing.T) {
	t.Parallel()
	h := newSharing(t, 2, longLease()...)
	for i := range 15 {
		h.names = append(h.names, fmt.Sprintf("it-%d", i))
	}
	one, two := h.another(), h.another()
	h.awaitShares(one, two)
	h.each(func(k kind, name string) { k.create(name, map[string]any{"beats": int64(2)}) })
	h.awaitReady()
	if by := h.expectRuns("created", 1); len(by) != 2 {
		t.Errorf("runs by replica: %v, want two that run", by)
	}

	three := h.another()
	h.awaitShares(one, two, three)
	h.change(1)
	h.awaitReady()
	if by := h.expectRuns("one has joined", 2); len(by) != 3 {
		t.Errorf("runs by replica: %v, want the third to run, too", by)
	}

	// A rolling update, with changes all the time.
	h.change(2)
	four := h.another()
	h.awaitShares(one, two, three, four)
	one.stop()
	two.stop()
	h.awaitShares(three, four)
	h.awaitReady()
	h.expectRuns("rolling update", 3)

	// The shards are free as soon as a replica has ended, and no Lease of a replica that has left is there.
	three.stop()
	four.stop()
	leases := must.Get(kubernetes.NewForConfigOrDie(h.cfg).CoordinationV1().Leases(h.namespace).List(t.Context(), metav1.ListOptions{}))(t)
	for _, l := range leases.Items {
		switch {
		case strings.HasPrefix(l.Name, "operator-shard-") && *l.Spec.HolderIdentity != "":
			t.Errorf("%s is held by %s", l.Name, *l.Spec.HolderIdentity)
		case l.Name != "operator" && !strings.HasPrefix(l.Name, "operator-shard-") && l.Spec.RenewTime.Add(time.Minute).After(time.Now()):
			t.Errorf("the Lease %s is left", l.Name)
		}
	}
}

// A frozen replica counts as dead: its runs have ended by the time others run its objects. When it continues, it writes
// nothing and ends. The other replicas work meanwhile.
func TestShards_AFrozenReplicaIsFenced(t *testing.T) {
	t.Parallel()
	h := newSharing(t, 2, append(longLease(), "--max-concurrent-reconciles=8", "--max-concurrent-runs=16")...)
	h.names = []string{"a", "b", "c", "d"}
	one, two := h.another(), h.another()
	h.awaitShares(one, two)
	h.each(func(k kind, name string) { k.create(name, map[string]any{"beats": int64(6000)}) })
	testenv.Eventually(t, "all objects to run", func(context.Context) error {
		if n := len(h.ledgered()); n != 8 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	runs := map[string]string{}
	h.each(func(k kind, name string) {
		is := k.await(name, "in progress", func(o object) bool { return o.status.Ansible.ActiveRun != nil })
		runs[k.gvk.String()+name] = is.status.Ansible.ActiveRun.ID
	})
	one.signal(syscall.SIGSTOP)
	defer func() { _ = one.cmd.Process.Signal(syscall.SIGCONT) }() // a frozen process does not end
	h.each(func(k kind, name string) {
		k.patch(name, fmt.Sprintf(`{"metadata":{"annotations":{"rolewright.dev/cancel":%q}},"spec":{"beats":1}}`, runs[k.gvk.String()+name]))
	})
	h.awaitReady()
	h.awaitShares(two)
	before := map[string]string{}
	h.each(func(k kind, name string) { before[k.gvk.String()+name] = k.get(name).GetResourceVersion() })
	one.signal(syscall.SIGCONT)
	if code := one.exit(); code == 0 {
		t.Error("exit code of a replica that lost its shards = 0")
	}
	h.each(func(k kind, name string) {
		if k.get(name).GetResourceVersion() != before[k.gvk.String()+name] {
			t.Errorf("the replica that woke up has written %s %s", k.gvk.Kind, name)
		}
	})
	h.expectRuns("thawed", 2)
	if !strings.Contains(two.output(), "is lost; it is run again") {
		t.Error("no run of the frozen replica was settled")
	}
}

// Replicas that share the objects in one way never run beside replicas that share them in another way or not at all. So
// the flag can be changed by a rolling update.
func TestShards_TheFlagChangesBetweenRuns(t *testing.T) {
	t.Parallel()
	h := newSharing(t, 2, longLease()...)
	h.names = []string{"a", "b", "c", "d"}
	before := h.another("--shards=0")
	h.each(func(k kind, name string) { k.create(name, map[string]any{"beats": int64(1)}) })
	h.awaitReady()
	for i, shards := range []int{8, 0} {
		next := h.another(fmt.Sprintf("--shards=%d", shards))
		next.awaitOutput("Attempting to acquire leader lease")
		h.change(i)
		h.awaitReady()
		if strings.Contains(next.output(), "Run starts") {
			t.Errorf("with --shards=%d, a replica runs objects that others share in another way", shards)
		}
		before.stop()
		h.change(i + 100)
		h.awaitReady()
		h.expectRuns(fmt.Sprintf("--shards=%d", shards), 3+2*i)
		before = next
	}
}
