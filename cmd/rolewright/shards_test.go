package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/shard"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestShardCount(t *testing.T) {
	for text, want := range map[string]shardCount{"auto": 8, "2": 2, "64": 64, "0": 0} {
		var c shardCount
		if err := c.Set(text); err != nil || c != want {
			t.Errorf("--shards=%s is %d, %v; want %d", text, c, err, want)
		}
	}
	for _, text := range []string{"", "1", "65", "-1", "Auto", "8 shards", "999999999999999999999"} {
		var c shardCount
		if err := c.Set(text); err == nil || c != 0 {
			t.Errorf("--shards=%q is %d, and no error", text, c)
		}
	}
}

// leaseServer keeps Leases as an API server does: each write gives them a new resource version.
func leaseServer() *fake.Clientset {
	client, version := fake.NewClientset(), 0
	client.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := a.(interface{ GetObject() runtime.Object }); ok {
			version++
			write.GetObject().(*coordinationv1.Lease).ResourceVersion = strings.Repeat("1", version)
		}
		return false, nil, nil
	})
	return client
}

func TestReplicas_LiveAsLongAsTheyRenew(t *testing.T) {
	const length = 15 * time.Second
	server, refused := leaseServer(), 0
	client, now := server.CoordinationV1().Leases("operators"), time.Now()
	replica := func(name string) *replicas {
		r := newReplicas(client, "op", name, length)
		r.now = func() time.Time { return now }
		return r
	}
	meets := func(r *replicas, want ...string) {
		t.Helper()
		live, _, err := r.meet(t.Context())
		must.Do(t, err)
		if slices.Sort(live); !slices.Equal(live, want) {
			t.Errorf("%s meets %v, want %v", r.me, live, want)
		}
	}
	a, b := replica("a_1"), replica("b_2")
	meets(a, "a_1")
	meets(b, "a_1", "b_2")
	meets(a, "a_1", "b_2")
	now = now.Add(length - 1)
	meets(a, "a_1", "b_2")
	now = now.Add(1)
	meets(a, "a_1") // b has not renewed
	meets(b, "a_1", "b_2")
	meets(a, "a_1", "b_2")

	// Other Leases do not matter, whatever they say.
	for name, holder := range map[string]string{"op": "8-shards", "op-replica-0123": "c_3", "op-shard-1": "a_1", "other": "\x1b[1m", "op-shard-x": "c_3"} {
		must.Get(client.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{}))(t)
	}
	former, seconds := "c_3", int32(60)
	must.Get(client.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "op-shard-2"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &former, LeaseDurationSeconds: &seconds},
	}, metav1.CreateOptions{}))(t)
	meets(a, "a_1", "b_2")
	if of := a.holders(3); !slices.Equal(of, []string{"", "a", "c"}) {
		t.Errorf("holders: %q", of)
	}

	version := must.Get(client.Get(t.Context(), "op-shard-1", metav1.GetOptions{}))(t).ResourceVersion
	if now = now.Add(length); a.expired(version) {
		t.Error("the Lease of a shard has expired too early")
	}
	long := must.Get(client.Get(t.Context(), "op-shard-2", metav1.GetOptions{}))(t).ResourceVersion
	if now = now.Add(1); !a.expired(version) || a.expired("") || a.expired("never seen") {
		t.Error("the Lease of a shard has not expired after its length, or one that was never seen has")
	}
	if a.expired(long) { // its holder still runs with the old flag
		t.Error("the Lease of a shard has expired while its holder has it by its own word")
	}
	meets(b, "a_1", "b_2")
	meets(a, "a_1", "b_2")
	if !a.expired(version) {
		t.Error("the Lease of a shard that stays as it is has not expired any more")
	}

	must.Do(t, b.leave(t.Context()))
	must.Do(t, b.leave(t.Context()))
	meets(a, "a_1")
	meets(b, "a_1", "b_2")
	meets(a, "a_1", "b_2")
	now = now.Add(deadAfter*length + 1)
	server.PrependReactor("delete", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		refused++
		return refused == 1, nil, errors.New("refused by a policy")
	})
	meets(a, "a_1") // it meets the others even if it cannot tidy up
	meets(a, "a_1")
	if refused != 2 {
		t.Errorf("the Lease of a replica that is long gone was to be deleted %d times", refused)
	}
	if _, err := client.Get(t.Context(), replicaLease("op", "b_2"), metav1.GetOptions{}); err == nil {
		t.Error("the Lease of a replica that is long gone stays")
	}
}

// A replica that crashes at each start takes no shard from the others. A replica that stays gets its share. Replicas that
// start together share the shards at once.
func TestShards_StayWhileAReplicaCrashesAtEachStart(t *testing.T) {
	client, now := leaseServer().CoordinationV1().Leases("operators"), time.Now()
	replica := func(name string) *replicas {
		r := newReplicas(client, "op", name, 15*time.Second)
		r.now = func() time.Time { return now }
		return r
	}
	a, b := replica("a_0"), replica("b_2") // a third replica makes shards move between these two, depending on its name
	s := &shards{n: 8, replicas: a, set: new(controller.Set), seats: map[int]*seat{}, newLease: func(int) *lease { return nil }}
	for i := range s.n {
		s.seats[i] = s.newSeat(i)
		s.seats[i].held = true
	}
	look := func(others ...*replicas) {
		t.Helper()
		for _, r := range others {
			_, _, err := r.meet(t.Context())
			must.Do(t, err)
		}
		s.look(t.Context())
		now = now.Add(leaderRetryPeriod)
	}
	var given [8]bool
	expect := func(when string, members ...string) {
		t.Helper()
		for i, replica := range shard.Assign(s.n, members) {
			given[i] = given[i] || replica != "a_0"
			if left := s.seats[i].left; left != given[i] {
				t.Errorf("%s: the shard %d is given up: %t; it is for %s", when, i, left, replica)
			}
		}
	}
	look(b)
	expect("at the start", "a_0", "b_2")
	for range settles / leaderRetryPeriod {
		look(b)
	}
	for i := range 20 {
		crashes := replica(fmt.Sprintf("c_%d", i))
		for range 6 {
			look(b, crashes)
		}
		for range 6 {
			look(b)
		}
		expect("one crashes", "a_0", "b_2")
	}
	c := replica("c_20")
	for range settles/leaderRetryPeriod + 1 {
		look(b, c)
		expect("one has come", "a_0", "b_2")
	}
	look(b, c, replica("d_1"))
	for i, replica := range shard.Assign(s.n, []string{"a_0", "b_2", "c_20", "d_1"}) {
		if replica == "d_1" && s.seats[i].left != given[i] {
			t.Errorf("the shard %d, which was to be given up for one that has stayed, is given up for one that has just come", i)
		}
	}
	now = now.Add(a.length)
	look(b, c)
	expect("one has stayed", "a_0", "b_2", "c_20")
}

// The replica that should have a shard asks for it at the first look that finds it free or its Lease expired. It does not
// ask earlier, because an elector would then wait for longer than until the next look.
func TestShards_AreAskedForWhenTheyAreFree(t *testing.T) {
	const length = 15 * time.Second
	server, now := leaseServer(), time.Now()
	client := server.CoordinationV1()
	a := newReplicas(client.Leases("operators"), "op", "a_1", length)
	a.now = func() time.Time { return now }
	renew := func(holder string, shards ...int) {
		t.Helper()
		for _, i := range shards {
			l := leaseOf(client, "operators", shardLease("op", i), holder, length, logr.Discard())
			record := resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaderTransitions: int(now.Unix())}
			if _, _, err := l.Get(t.Context()); err != nil {
				must.Do(t, l.Create(t.Context(), record))
			}
			must.Do(t, l.Update(t.Context(), record))
		}
	}
	renew("b_2", 0, 1, 2)
	renew("a_1", 3)
	ctx, cancel := context.WithCancel(t.Context())
	s := &shards{n: 5, replicas: a, set: new(controller.Set), seats: map[int]*seat{}, leaseDuration: length, renewDeadline: 10 * time.Second}
	unavailable := fake.NewClientset()
	unavailable.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("unavailable") })
	s.newLease = func(i int) *lease {
		return leaseOf(unavailable.CoordinationV1(), "operators", shardLease("op", i), "a_1", length, logr.Discard())
	}
	t.Cleanup(func() { cancel(); s.wg.Wait() })
	asks := func(when string, want ...int) {
		t.Helper()
		s.look(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := slices.Sorted(maps.Keys(s.seats)); !slices.Equal(got, want) {
			t.Errorf("%s: it asks for %v, want %v", when, got, want)
		}
	}
	asks("at the start", 3, 4)
	now = now.Add(leaderRetryPeriod)
	renew("b_2", 2)
	renew("", 0)
	asks("one is given up", 0, 3, 4)
	now = now.Add(length - leaderRetryPeriod + 1)
	asks("one has expired", 0, 1, 3, 4)
	now = now.Add(leaderRetryPeriod)
	asks("another one has, too", 0, 1, 2, 3, 4)
}

// endingManager adds no more runnables, like a manager that has been asked to end.
type endingManager struct {
	manager.Manager
	ending bool
}

func (m *endingManager) Add(r manager.Runnable) error {
	if m.ending {
		return errors.New("it is ending")
	}
	return m.Manager.Add(r)
}

// If a replica is asked to end while it takes a shard, it gives this shard up again. Its runs of other shards go on.
func TestShards_TheEndComesWhileOneIsTaken(t *testing.T) {
	mgr := &endingManager{Manager: must.Get(manager.New(&rest.Config{}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}))(t)}
	set := must.Get(controller.Setup(mgr, controller.Options{
		Sharded: true, RunnerRoot: t.TempDir(), Watches: []watches.Watch{{GVK: schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"}}},
	}))(t)
	t.Cleanup(func() { set.Close(controller.ErrShutdown) })
	stopping := make(chan struct{})
	s := &shards{n: 2, set: set, stopping: stopping, newLease: func(int) *lease { return nil }}
	is := s.newSeat(0)
	mgr.ending = true
	if err := s.serve(t.Context(), is, nil); err == nil {
		t.Error("a shard is taken that cannot be served")
	}
	close(stopping)
	is = s.newSeat(1)
	is.giveUp()
	is.left = false // giveUp comes right after the shard is taken
	must.Do(t, s.serve(t.Context(), is, nil))
	if is.held {
		t.Error("the shard is not given up")
	}
}

// The common Lease proves leadership no longer than the Lease of any shard that is served.
func TestShards_AreProvedTogether(t *testing.T) {
	now := time.Now()
	l := &lease{until: now.Add(10 * time.Second)}
	s := &shards{seats: map[int]*seat{}}
	l.shareBy(s.proved)
	expect := func(when string, want time.Duration) {
		t.Helper()
		if got := l.proved(); !got.Equal(now.Add(want)) {
			t.Errorf("%s: proved for %s, want %s", when, got.Sub(now), want)
		}
	}
	expect("no shard", 10*time.Second)
	s.seats[3] = &seat{lease: &lease{until: now.Add(time.Second)}}
	expect("a shard that is not served", 10*time.Second)
	s.seats[3].held = true
	expect("a shard", time.Second)
	s.seats[4] = &seat{lease: &lease{until: now.Add(time.Minute)}, held: true}
	expect("another shard that is proved for longer", time.Second)
	delete(s.seats, 3)
	expect("the shard is given up", 10*time.Second)
	s.seats[4].lease.set(time.Time{})
	if l.held() == nil {
		t.Error("a shard is served and lost, and writes are let through")
	}
}

// If another replica has written the common Lease, this proves as much as a write by this replica at its previous look.
func TestLease_CommonIsRenewedByAnyReplica(t *testing.T) {
	synctest.Test(t, commonIsRenewedByAnyReplica)
}

func commonIsRenewedByAnyReplica(t *testing.T) {
	t.Helper()
	client, begun := leaseServer(), time.Now()
	replica := func() *lease {
		l := leaseOf(client.CoordinationV1(), "operators", "op", "8-shards", 10*time.Second, logr.Discard())
		l.stays, l.common = true, true
		return l
	}
	writes := func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				n++
			}
		}
		return n
	}
	record := func(second int) resourcelock.LeaderElectionRecord { // waits until that second
		at := begun.Add(time.Duration(second) * time.Second)
		time.Sleep(time.Until(at))
		return resourcelock.LeaderElectionRecord{HolderIdentity: "8-shards", RenewTime: metav1.Time{Time: at}}
	}
	a, b := replica(), replica()
	must.Do(t, a.Create(t.Context(), record(0)))
	for _, l := range []*lease{a, b} {
		_, _, err := l.Get(t.Context())
		must.Do(t, err)
	}
	must.Do(t, b.Update(t.Context(), record(2)))
	if n := writes(); n != 2 || b.held() != nil {
		t.Fatalf("%d writes, want 2; %v", n, b.held())
	}
	before := a.proved()
	must.Do(t, a.Update(t.Context(), record(3))) // b has written
	if n := writes(); n != 2 || !a.proved().Equal(before) {
		t.Errorf("%d writes, want 2; proved until %s, want %s, as when it looked before", n, a.proved(), before)
	}
	must.Do(t, a.Update(t.Context(), record(4))) // no replica has written
	if n := writes(); n != 3 || !a.proved().After(before) {
		t.Errorf("%d writes, want 3; proved until %s", n, a.proved())
	}
	must.Do(t, b.Update(t.Context(), record(5)))
	a.seenAt.Time = a.seenAt.Add(-6 * time.Second) // its previous look proves too little
	must.Do(t, a.Update(t.Context(), record(6)))
	if n := writes(); n != 4 {
		t.Errorf("%d writes, want 4: b's proves a little only", n)
	}
	other := leaseOf(client.CoordinationV1(), "operators", "op", "pod_1", 10*time.Second, logr.Discard())
	_, _, err := other.Get(t.Context())
	must.Do(t, err)
	must.Do(t, other.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "pod_1"}))
	if err := a.Update(t.Context(), record(9)); err == nil || a.held() == nil {
		t.Errorf("renewed what another holds: %v", err)
	}
}
