package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apicoordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/runner/supervise"
)

// podNamespaceFile exists in every Pod with a service account.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// lease is the leader's lock. It knows until when leadership is proved, since the
// elector notices a loss only some time after other replicas may lead. Time is measured by
// this process alone, from the moment before a renewal was sent, and goes on while the
// machine is suspended.
type lease struct {
	resourcelock.Interface
	// good is how long one renewal proves leadership: the renew deadline, which
	// is shorter than the time that others wait.
	good time.Duration

	// keeps is true for the client to which others leave the Lease. Each of its renewals
	// says so.
	keeps bool
	// stays is true for a Lease that no other client can ask for: replicas that share the
	// objects have several.
	stays bool
	// common is true for a Lease that several replicas hold together, under one name. seen is
	// what a replica last wrote to it, as this replica read or wrote it; seenAt is when that
	// read or write began.
	common bool
	seen   []byte
	seenAt moment
	// expired tells whether a version of the Lease has been there for so long that its holder
	// has lost it; nil if only the elector decides that.
	expired func(version string) bool

	mu sync.Mutex
	// shards returns until when the shards are proved to be held, if there are any; nil without shards.
	shards func() (until time.Time, shared bool)
	until  time.Time // zero while leadership is not held
	holder string    // as last read
	read   string    // the version that was last read
	yields yields
	from   moment // the moment from which until is counted; zero unless a renewal has proved it
	// boot is the clock that goes on while the machine is suspended; nil for [supervise.SinceBoot].
	boot func() time.Duration
}

// moment is a time by both clocks of this process: the clock of package time stops while the
// machine is suspended, and the clock since boot does not.
type moment struct {
	time.Time
	boot time.Duration
}

// newLease returns nil if there is no election.
func (o *runOptions) newLease(c cluster, log logr.Logger) (*lease, error) {
	if o.held != nil || !o.leaderElect {
		return o.held, nil
	}
	namespace := o.leaderNamespace
	if namespace == "" {
		data, err := os.ReadFile(podNamespaceFile)
		if err != nil {
			return nil, errors.New("--leader-elect needs a namespace for the Lease: outside of a Pod, set --leader-election-namespace")
		}
		namespace = strings.TrimSpace(string(data))
	}
	name, err := replicaName()
	if err != nil {
		return nil, err
	}
	if o.shards > 0 {
		name = layoutHolder(int(o.shards))
	}
	client, err := leaseClient(c, o.leaderRenewDeadline)
	if err != nil {
		return nil, err
	}
	l := leaseOf(client, namespace, o.leaderID, name, o.leaderRenewDeadline, log)
	l.stays, l.common = o.shards > 0, o.shards > 0
	return l, nil
}

func leaseClient(c cluster, renewDeadline time.Duration) (coordinationv1.LeasesGetter, error) {
	config := rest.AddUserAgent(rest.CopyConfig(c.config), "leader-election")
	// One request that hangs must not cost the leadership.
	config.Timeout = max(renewDeadline/2, time.Second)
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the Lease: %w", err)
	}
	return client, nil
}

// leaseOf returns the lock of a Lease, to be held under the name identity.
func leaseOf(client coordinationv1.LeasesGetter, namespace, name, identity string, renewDeadline time.Duration, log logr.Logger) *lease {
	l := &lease{good: renewDeadline, yields: yields{log: log}}
	l.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     seen{client, l.stamp, l.see},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	return l
}

// see takes note of the Lease that the API server returned.
func (l *lease) see(is *apicoordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yields.see(is, time.Now())
	l.read = is.ResourceVersion
}

// stamp writes into a Lease that is about to be written to whom it is left: to this client
// while it keeps the Lease, and to none once this client gives it up.
func (l *lease) stamp(is *apicoordinationv1.Lease) {
	switch {
	case !l.keeps:
	case is.Spec.HolderIdentity != nil && *is.Spec.HolderIdentity == l.Identity():
		yield{to: l.Identity(), until: time.Now().Add(yieldLength)}.annotate(is)
	default:
		yield{}.annotate(is)
	}
}

// onYield sets the function to call while the Lease is held and another client asks for it.
func (l *lease) onYield(leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yields.leave = leave
}

// yielded returns the client to which the Lease is left, if that is another one; empty if not.
func (l *lease) yielded() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keeps || l.stays {
		return ""
	}
	return l.yields.to(l.Identity(), time.Now())
}

// Get implements [resourcelock.Interface].
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	l.endIfLost(record.HolderIdentity)
	l.mu.Lock()
	l.holder = record.HolderIdentity
	leave, version := l.yields.leave, l.read
	l.mu.Unlock()
	if l.expired != nil && record.HolderIdentity != l.Identity() && l.expired(version) {
		free := *record
		free.HolderIdentity = ""
		return &free, fmt.Appendf(raw, " has expired"), nil
	}
	to := l.yielded()
	switch {
	case to == "":
	case record.HolderIdentity != l.Identity():
		// The elector waits as long as another client holds the Lease and renews it.
		held := *record
		held.HolderIdentity = to
		return &held, fmt.Appendf(raw, " left to %q at %s", to, time.Now()), nil
	case leave != nil:
		leave()
	}
	return record, raw, nil
}

// Create implements [resourcelock.Interface].
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, r, l.Interface.Create)
}

// Update implements [resourcelock.Interface].
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, r, l.Interface.Update)
}

func (l *lease) renew(ctx context.Context, r resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := l.now()
	before, after := "lease.before-write", "lease.written"
	if r.HolderIdentity != l.Identity() {
		l.set(time.Time{}) // giving it up means having lost it, whether that is known yet or not
		if holder := l.lastHolder(); holder != l.Identity() {
			// The elector acts on what it knew before it was frozen, and would free a
			// Lease although it has just read that another client holds it.
			return fmt.Errorf("the lease is not given up: it is held by %q by now", holder)
		}
		before, after = "lease.before-release", "lease.released"
	} else if l.lastHolder() != l.Identity() {
		// Normally Get has made the elector believe that it is held. This covers what it knew before.
		if to := l.yielded(); to != "" {
			return fmt.Errorf("the lease is left to %q", to)
		}
	}
	if l.common && l.lastHolder() == l.Identity() {
		if kept, err := l.keptByOthers(ctx); kept || err != nil {
			return err
		}
		began = l.now()
	}
	failpoint.Hit(before)
	err := write(ctx, r)
	failpoint.Hit(after)
	if err == nil && r.HolderIdentity == l.Identity() {
		l.prove(began)
		l.seen, _ = json.Marshal(r) // otherwise this write would count as another replica's, which proves as much
		l.seenAt = began
	}
	return err
}

// keptByOthers tells whether another replica has renewed the common Lease since this one last
// looked. That proves as much as a renewal of its own at that time would. So the replicas do not
// all write the Lease, and get in each other's way. Only the elector calls it.
func (l *lease) keptByOthers(ctx context.Context) (bool, error) {
	began := l.now()
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return false, err
	}
	if record.HolderIdentity != l.Identity() {
		l.endIfLost(record.HolderIdentity)
		// The elector acts on what it knew, and a write now would be based on what was just read.
		return false, fmt.Errorf("the lease is held by %q by now", record.HolderIdentity)
	}
	before, at := l.seen, l.seenAt
	l.seen, l.seenAt = raw, began
	if before == nil || bytes.Equal(before, raw) || time.Since(at.Time) > l.good/2 {
		return false, nil
	}
	l.prove(at)
	return true, nil
}

func (l *lease) set(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

func (l *lease) sinceBoot() time.Duration {
	if l.boot != nil {
		return l.boot()
	}
	return supervise.SinceBoot()
}

func (l *lease) now() moment { return moment{time.Now(), l.sinceBoot()} }

// prove records that a renewal which began at a moment has proved the leadership.
func (l *lease) prove(from moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.from = from.Add(l.good), from
}

// endIfLost ends the proof of the last renewal if another client holds the Lease by now. It
// does not set until to zero, because watch would then see no loss.
func (l *lease) endIfLost(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); holder != l.Identity() && now.Before(l.until) {
		l.until = now
	}
}

func (l *lease) lastHolder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// errNotLeading is the reason why a write is refused.
var errNotLeading = errors.New("this replica does not hold the leadership, or cannot prove it")

// watch returns a server that fails when leadership was held and can no longer be
// proved, after it has called lost. So a process that was frozen learns at once what
// its elector takes a whole renewal to find out. It looks when the proof ends, and so
// wakes no process that leads.
func (l *lease) watch(lost func()) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
			l.mu.Lock()
			led, left := !l.until.IsZero(), l.good/4 // a proof that arrives in the meantime lasts longer
			if l.shards != nil {
				left = min(left, 500*time.Millisecond) // shards may come and go
			}
			l.mu.Unlock()
			if led {
				left = min(left, time.Until(l.proved()))
			}
			if left < 0 {
				lost()
				return errNotLeading
			}
			timer.Reset(max(left, time.Millisecond))
		}
	}
}

// held returns nil while leadership is proved.
func (l *lease) held() error {
	if until := l.proved(); time.Now().Before(until) { // a process that is frozen between the two calls notices
		return nil
	}
	return errNotLeading
}

// proved returns until when leadership and all held shards are proved; zero if leadership is
// not held.
func (l *lease) proved() time.Time {
	l.mu.Lock()
	until, from, shards := l.until, l.from, l.shards
	l.mu.Unlock()
	if !until.IsZero() && from.boot != 0 {
		// The earlier of the two: the process may be frozen between reading the two clocks.
		if by := time.Now().Add(from.boot + l.good - l.sinceBoot()); by.Before(until) {
			until = by
		}
	}
	if shards == nil {
		return until
	}
	if of, shared := shards(); shared && of.Before(until) {
		return of
	}
	return until
}

// shareBy limits the proof of leadership to the time until which the held shards are proved.
func (l *lease) shareBy(proved func() (until time.Time, shared bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards = proved
}

// namespace returns the namespace of the Lease.
func (l *lease) namespace() string {
	namespace, _, _ := strings.Cut(l.Describe(), "/")
	return namespace
}

// free gives the Lease up, if it is held.
func (l *lease) free(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.good)
	defer cancel()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		is, _, err := l.Get(ctx)
		if err != nil || is.HolderIdentity != l.Identity() {
			l.set(time.Time{})
			return client.IgnoreNotFound(err)
		}
		now := metav1.Now()
		return l.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: is.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	})
}
