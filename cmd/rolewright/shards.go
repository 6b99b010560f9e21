package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/shard"
)

const (
	// autoShards is the number for --shards=auto: up to that many replicas have work, and each
	// shard costs a Lease that is renewed every two seconds, and a watch of each kind.
	autoShards = 8
	maxShards  = 64
)

// shardCount is the flag for the number of shards; 0 for one leader.
type shardCount int

func (c *shardCount) String() string { return strconv.Itoa(int(*c)) }

// Set implements pflag.Value.
func (c *shardCount) Set(text string) error {
	if text == "auto" {
		*c = autoShards
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n != 0 && (n < 2 || n > maxShards) {
		return fmt.Errorf("%q is not a number of shards: give 2 to %d, auto for %d, or 0 for one leader", text, maxShards, autoShards)
	}
	*c = shardCount(n)
	return nil
}

// Type implements pflag.Value.
func (c *shardCount) Type() string { return "number" }

// shards are the shards that a replica holds, each through a Lease of its own. See docs/scaling.md.
type shards struct {
	n             int
	newLease      func(i int) *lease
	replicas      *replicas
	leaseDuration time.Duration
	renewDeadline time.Duration
	recorder      *metrics.Recorder
	log           logr.Logger
	set           *controller.Set
	// adopt finds runs of a shard's objects that are still going on as Jobs; nil if none are made.
	adopt func(ctx context.Context, has func(types.UID) bool)
	// stopping is closed when this replica is asked to end.
	stopping <-chan struct{}

	failed chan error
	wg     sync.WaitGroup // the seats

	mu    sync.Mutex
	seats map[int]*seat
	// holders are the Pods that held the shards at the last look, by the number of the shard.
	holders []string
}

// seat is a shard that this replica holds or is trying to get.
type seat struct {
	number int
	shard  *controller.Shard
	lease  *lease
	// held is true from before the shard is served until serving it has left nothing behind.
	held bool
	// leave is closed when the replica is to give the shard up.
	leave chan struct{}
	left  bool // whether it is closed
}

// newShards makes this replica share the objects with others while it holds l. Holding l means
// that no replica runs that shares them in another way.
func (o *runOptions) newShards(c cluster, l *lease, recorder *metrics.Recorder, log logr.Logger) (*shards, error) {
	client, err := leaseClient(c, o.leaderRenewDeadline)
	if err != nil {
		return nil, err
	}
	me, err := replicaName()
	if err != nil {
		return nil, err
	}
	n, all := int(o.shards), newReplicas(client.Leases(l.namespace()), o.leaderID, me, o.leaderLeaseDuration)
	s := &shards{
		n: n, leaseDuration: o.leaderLeaseDuration, renewDeadline: o.leaderRenewDeadline, recorder: recorder, log: log,
		replicas: all,
		newLease: func(i int) *lease {
			is := leaseOf(client, l.namespace(), shardLease(o.leaderID, i), me, o.leaderRenewDeadline, log)
			is.stays, is.expired = true, all.expired
			return is
		},
		failed: make(chan error, n+1), seats: map[int]*seat{}, holders: make([]string, n),
	}
	l.shareBy(s.proved)
	return s, nil
}

// share returns servers that make set serve this replica's shards, until their context ends.
// When ctx ends, they start to give the shards up.
func (op *operator) share(ctx context.Context, set *controller.Set, elected <-chan struct{}) ([]func(context.Context) error, error) {
	s, err := op.newShards(op.cluster, op.lease, op.Recorder, op.log.WithName("shards"))
	if err != nil {
		return nil, err
	}
	s.set, s.adopt, s.stopping = set, op.adopt, ctx.Done()
	op.sharing.Store(s)
	run := func(serving context.Context) error {
		err := s.run(serving, ctx, elected)
		if err != nil {
			set.Abort(controller.ErrLeadershipLost)
		}
		return err
	}
	return []func(context.Context) error{run, s.wait}, nil
}

// sharedAs says how the replicas share the objects, as far as this one knows.
func (op *operator) sharedAs() *api.Shards {
	s := op.sharing.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is := &api.Shards{Replica: podOf(s.replicas.me), Holders: slices.Clone(s.holders)}
	for i, seat := range s.seats {
		if seat.held {
			is.Holders[i] = is.Replica
		}
	}
	return is
}

// has reports whether this replica serves the shard of an object.
func (op *operator) has(uid types.UID) bool {
	s := op.sharing.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.seats[shard.Of(uid, s.n)]
	return is != nil && is.held
}

// proved returns until when all shards that are served here are proved to be held; shared is
// false if there is none.
func (s *shards) proved() (until time.Time, shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, is := range s.seats {
		if !is.held {
			continue
		}
		if proved := is.lease.proved(); !shared || proved.Before(until) {
			until, shared = proved, true
		}
	}
	return until, shared
}

// run takes the shards that fall to this replica, once elected is closed, and gives up those
// that no longer do, until ctx ends. When stopping ends, it takes no more, and gives up each
// shard as soon as its runs have ended. An error is the loss of a shard.
func (s *shards) run(ctx, stopping context.Context, elected <-chan struct{}) error {
	select {
	case <-elected:
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(leaderRetryPeriod)
	defer tick.Stop()
	for stopping.Err() == nil && ctx.Err() == nil {
		s.look(ctx)
		select {
		case <-tick.C:
		case <-stopping.Done():
		case <-ctx.Done():
		case err := <-s.failed:
			return err
		}
	}
	if err := s.replicas.leave(context.WithoutCancel(ctx)); err != nil {
		s.log.Error(err, "The Lease of this replica stays; the others notice that it has left when the Lease expires")
	}
	s.mu.Lock()
	for _, is := range s.seats {
		is.giveUp()
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// wait returns after ctx has ended and all held shards have been given up.
func (s *shards) wait(ctx context.Context) error {
	<-ctx.Done()
	s.wg.Wait()
	return nil
}

// look meets the other replicas, and decides which shards are this one's.
func (s *shards) look(ctx context.Context) {
	live, settled, err := s.replicas.meet(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsForbidden(err):
		s.failed <- fmt.Errorf("%w; --shards needs get, list, create, update and delete on leases: grant the operator what config/shards does", err)
		return
	case err != nil:
		s.log.Error(err, "The Leases of the replicas cannot be read or written: no shard changes its replica")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders = s.replicas.holders(s.n)
	// All live replicas together decide who asks for a shard. Those that have stayed for a while decide who keeps one.
	held, keeps := 0, shard.Assign(s.n, settled)
	for i, replica := range shard.Assign(s.n, live) {
		is, mine := s.seats[i], replica == s.replicas.me
		switch {
		case mine && is == nil && !s.replicas.free(i):
			// This loop finds out earlier than an elector would that the shard is free.
		case mine && is == nil:
			is = s.newSeat(i)
			s.seats[i] = is
			s.wg.Go(func() { s.sit(ctx, is) })
		case mine || is == nil:
		case is.held && (keeps[i] == s.replicas.me || !slices.Contains(settled, replica)):
			// A replica that has just come takes free shards, but none that this one holds.
		default:
			is.giveUp()
		}
		if is != nil && is.held && !is.left {
			held++
		}
	}
	s.recorder.Shards(s.n, held, s.set.Objects())
}

func (s *shards) newSeat(i int) *seat {
	n := s.n
	return &seat{number: i, lease: s.newLease(i), leave: make(chan struct{}), shard: &controller.Shard{
		Name: fmt.Sprintf("%d/%d", i, n), Has: func(uid types.UID) bool { return shard.Of(uid, n) == i }, Selector: shard.Selector(i, n),
	}}
}

// giveUp must be called with the lock of the shards held.
func (is *seat) giveUp() {
	if !is.left {
		is.left = true
		close(is.leave)
	}
}

// sit holds a shard, from when its Lease is free until the replica has to give it up or ctx
// ends. ctx ends when the runs of all shards have ended.
func (s *shards) sit(ctx context.Context, is *seat) {
	election, end := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), s.log.V(1)))
	led, ended := make(chan struct{}), make(chan struct{})
	defer func() {
		end()
		<-ended
	}()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: is.lease, LeaseDuration: s.leaseDuration, RenewDeadline: s.renewDeadline, RetryPeriod: leaderRetryPeriod, Name: is.lease.Describe(),
		// After a loss, runs have to end first. The Lease becomes free when it expires.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		close(ended)
		s.failed <- fmt.Errorf("election of the shard %s: %w", is.shard.Name, err)
		return
	}
	go func() {
		defer close(ended)
		elector.Run(election)
	}()
	select {
	case <-led:
		if err := s.serve(ctx, is, ended); err != nil {
			s.failed <- fmt.Errorf("shard %s: %w", is.shard.Name, err)
			return // it stays held, but without a proof: nothing is written any more
		}
	case <-is.leave:
	case <-ctx.Done():
	}
	end()
	<-ended
	if err := is.lease.free(context.WithoutCancel(ctx)); err != nil {
		s.log.Error(err, "A shard is not given up; another replica takes it when its Lease expires", "shard", is.shard.Name)
	}
	s.mu.Lock()
	delete(s.seats, is.number)
	s.mu.Unlock()
}

// serve serves the objects of a shard until it has to be given up and nothing of it is left.
// lost is closed if its Lease is lost.
func (s *shards) serve(ctx context.Context, is *seat, lost <-chan struct{}) error {
	if !s.hold(is, true) {
		return nil
	}
	s.recorder.ShardMoved(true)
	s.log.Info("This replica takes a shard", "shard", is.shard.Name)
	if s.adopt != nil {
		s.adopt(ctx, is.shard.Has)
	}
	if err := s.set.Hold(is.shard); err != nil {
		select {
		case <-s.stopping: // it takes no more kinds, and is told to give the shard up
		default:
			return err
		}
	}
	select {
	case <-is.leave:
	case <-ctx.Done():
	case <-lost:
		return errNotLeading
	}
	s.log.Info("This replica gives a shard up; its runs in progress end first", "shard", is.shard.Name)
	leaving, stop := context.WithCancel(ctx)
	defer stop()
	left, err := s.set.Release(is.shard)
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	s.wg.Go(func() {
		defer close(gone)
		_ = left(leaving) // this returns early when ctx ends, which is when the runs have ended
	})
	select {
	case <-gone:
	case <-lost:
		stop()
		<-gone
		return errNotLeading
	}
	s.hold(is, false)
	s.recorder.ShardMoved(false)
	s.log.Info("This replica has given a shard up", "shard", is.shard.Name)
	return nil
}

// hold notes whether a shard is served. It returns false if the shard has to be given up before it is served.
func (s *shards) hold(is *seat, held bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held && is.left {
		return false
	}
	is.held = held
	return true
}
