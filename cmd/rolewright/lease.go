package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// podNamespaceFile exists in every Pod with a service account.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// lease is the lock of the leader. It knows until when leadership is proved,
// since the elector notices a loss some time after other replicas may lead. Time
// is measured by this process alone, from the moment before a renewal was sent.
type lease struct {
	resourcelock.Interface
	// good is how long one renewal proves leadership: the renew deadline, which
	// is shorter than what others wait for.
	good time.Duration

	mu     sync.Mutex
	until  time.Time // zero while leadership is not held
	holder string    // as last read
}

// newLease is nil if there is no election.
func (o *runOptions) newLease(c cluster) (*lease, error) {
	if !o.leaderElect {
		return nil, nil
	}
	namespace := o.leaderNamespace
	if namespace == "" {
		data, err := os.ReadFile(podNamespaceFile)
		if err != nil {
			return nil, errors.New("--leader-elect needs a namespace for the Lease: outside of a Pod, set --leader-election-namespace")
		}
		namespace = strings.TrimSpace(string(data))
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this replica: %w", err)
	}
	config := rest.AddUserAgent(rest.CopyConfig(c.config), "leader-election")
	// One request that hangs must not lose the leadership.
	config.Timeout = max(o.leaderRenewDeadline/2, time.Second)
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the Lease: %w", err)
	}
	return &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: o.leaderID},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
		},
		good: o.leaderRenewDeadline,
	}, nil
}

// Get implements [resourcelock.Interface].
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.mu.Lock()
		l.holder = record.HolderIdentity
		l.mu.Unlock()
	}
	return record, raw, err
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
	began := time.Now()
	before, after := "lease.before-write", "lease.written"
	if r.HolderIdentity != l.Identity() {
		l.set(time.Time{}) // to give it up is to have lost it, whether that is known yet or not
		if holder := l.lastHolder(); holder != l.Identity() {
			// The elector goes by what it knew before it was frozen, and would free
			// what it has just read to be another's.
			return fmt.Errorf("the lease is not given up: it is held by %q by now", holder)
		}
		before, after = "lease.before-release", "lease.released"
	}
	failpoint.Hit(before)
	err := write(ctx, r)
	failpoint.Hit(after)
	if err == nil && r.HolderIdentity == l.Identity() {
		l.set(began.Add(l.good))
	}
	return err
}

func (l *lease) set(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

func (l *lease) lastHolder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// errNotLeading is why a write is refused.
var errNotLeading = errors.New("this replica does not hold the leadership, or cannot prove it")

// watch returns a server that fails when leadership was held and cannot be
// proved any more, after it has called lost. A process that was frozen learns so
// in half a second what its elector takes a whole renewal to find out.
func (l *lease) watch(lost func()) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-tick.C:
				l.mu.Lock()
				over := !l.until.IsZero() && now.After(l.until)
				l.mu.Unlock()
				if over {
					lost()
					return errNotLeading
				}
			}
		}
	}
}

// fence returns config for clients whose writes are refused unless leadership is
// proved at that moment. Reviews write nothing, with any verb.
func (l *lease) fence(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next: next, held: l.held} })
	return config
}

// fenced is the transport of such clients.
type fenced struct {
	next http.RoundTripper
	held func() error
}

// RoundTrip implements [http.RoundTripper].
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	review := strings.HasPrefix(req.URL.Path, "/apis/authorization.k8s.io/") || strings.HasPrefix(req.URL.Path, "/apis/authentication.k8s.io/")
	if reads || review {
		return f.next.RoundTrip(req)
	}
	if err := f.held(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as the interface demands
		}
		return nil, err
	}
	return f.next.RoundTrip(req)
}

// held is nil while leadership is proved.
func (l *lease) held() error {
	if time.Now().Before(l.proved()) {
		return nil
	}
	return errNotLeading
}

// proved is until when leadership is proved; zero if it is not held.
func (l *lease) proved() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}
