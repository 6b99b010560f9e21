package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// scriptedLock is a lock that answers as its test says.
type scriptedLock struct {
	resourcelock.Interface // nil: the tests call only what is scripted
	write                  func() error
	holder                 string // what Get returns
}

func (l *scriptedLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (l *scriptedLock) Identity() string { return "me" }

func (l *scriptedLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return l.write()
}

func (l *scriptedLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return l.write()
}

// errLost is the error of a renewal that the API server did not answer.
var errLost = errors.New("no answer")

func TestLease_HoldsAsLongAsItsLastRenewalProves(t *testing.T) {
	const good = 10 * time.Second
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	type step struct {
		// takes is how long this step's write takes, pause how long the test waits after it.
		takes, pause time.Duration
		record       resourcelock.LeaderElectionRecord
		fails        error
		held         bool
	}
	for name, steps := range map[string][]step{
		"not asked for":              {},
		"renewed":                    {{record: mine, held: true}},
		"almost over":                {{record: mine, pause: good - 1, held: true}},
		"over, and no elector tells": {{record: mine, pause: good}},
		"renewed in time":            {{record: mine, pause: 9 * time.Second, held: true}, {record: mine, pause: 9 * time.Second, held: true}},
		"renewed too late":           {{record: mine, pause: good}, {record: mine, held: true}},
		"a failed renewal extends nothing": {
			{record: mine, pause: 6 * time.Second, held: true}, {record: mine, fails: errLost, held: true}, {record: mine, fails: errLost, pause: 4 * time.Second},
		},
		"a failed first one is nothing": {{record: mine, fails: errLost}},
		"a slow renewal counts from its beginning": {
			{record: mine, takes: 6 * time.Second, held: true}, {record: mine, takes: 3 * time.Second, pause: 7*time.Second - 1, held: true}, {record: mine, takes: good},
		},
		"a slow renewal that fails":        {{record: mine, held: true}, {record: mine, takes: good, fails: errLost}},
		"given up":                         {{record: mine, held: true}, {}},
		"given up, though the write fails": {{record: mine, held: true}, {fails: errLost}},
		"given to another":                 {{record: mine, held: true}, {record: resourcelock.LeaderElectionRecord{HolderIdentity: "other"}}},
		"got back":                         {{record: mine, held: true}, {}, {record: mine, held: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := &scriptedLock{}
				l := &lease{Interface: lock, good: good, holder: "me"}
				if err := l.held(); !errors.Is(err, errNotLeading) {
					t.Errorf("before anything: %v", err)
				}
				for i, s := range steps {
					write := l.Update
					if i == 0 {
						write = l.Create
					}
					lock.write = func() error { time.Sleep(s.takes); return s.fails }
					if err := write(t.Context(), s.record); !errors.Is(err, s.fails) {
						t.Errorf("step %d: %v", i, err)
					}
					time.Sleep(s.pause)
					if err := l.held(); (err == nil) != s.held {
						t.Errorf("step %d: held is %v, want %t", i, err, s.held)
					}
				}
			})
		})
	}
}

func TestLease_IsNotHeldFromTheMomentItIsGivenUp(t *testing.T) {
	lock := &scriptedLock{write: func() error { return nil }}
	l := &lease{Interface: lock, good: time.Hour, holder: "me"}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil || l.held() != nil {
		t.Fatal(err, l.held())
	}
	asked := false
	lock.write = func() error {
		asked = true
		if l.held() == nil {
			t.Error("held while others see that it is free")
		}
		return nil
	}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil || !asked {
		t.Error(err, asked)
	}
}

// The clock of package time stands still while the machine is suspended. Another replica may lead by then.
func TestLease_IsNotHeldAfterTheMachineWasSuspended(t *testing.T) {
	booted := time.Hour
	l := &lease{
		Interface: &scriptedLock{write: func() error { booted += 20 * time.Minute; return nil }},
		good:      time.Hour, holder: "me", boot: func() time.Duration { return booted },
	}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil || l.held() != nil {
		t.Fatal(err, l.held())
	}
	if booted += 20 * time.Minute; l.held() != nil {
		t.Error("not held after a shorter time than a renewal is good for")
	}
	if booted += 21 * time.Minute; l.held() == nil {
		t.Error("held after a longer one, since the renewal was sent")
	}
}

// A replica that sees that another one leads stops being the leader at once. It ends before its own renewal would have run
// out.
func TestLease_IsNotHeldOnceItIsSeenToBeAnothers(t *testing.T) {
	const good = 10 * time.Second
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	for name, read := range map[string]func(*lease) error{
		"by a read": func(l *lease) error { _, _, err := l.Get(t.Context()); return err },
		"in place of a renewal": func(l *lease) error {
			l.common = true
			if l.Update(t.Context(), mine) == nil {
				return errors.New("it is renewed")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := &scriptedLock{write: func() error { return nil }, holder: "me"}
				l, lost := &lease{Interface: lock, good: good, holder: "me"}, false
				must.Do(t, l.Update(t.Context(), mine))
				ended := make(chan error, 1)
				go func() { ended <- l.watch(func() { lost = true })(t.Context()) }()
				lock.holder = "other"
				must.Do(t, read(l))
				if err := l.held(); !errors.Is(err, errNotLeading) {
					t.Errorf("it is still held: %v", err)
				}
				time.Sleep(good / 2)
				synctest.Wait()
				if !lost {
					t.Error("the loss is not noticed")
				}
				if err := <-ended; !errors.Is(err, errNotLeading) {
					t.Errorf("the watch of the lease ended with %v", err)
				}
			})
		})
	}
}

// An elector that was frozen relies on what it observed before. When it ends, it reads the lease and then frees it, even
// if another replica holds it by now. The lease must not be freed then.
func TestLease_GivesUpNoneButItsOwn(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	client := kubernetes.NewForConfigOrDie(cfg)
	lock := func(name string) resourcelock.Interface {
		return &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lead"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
	}
	l, other := &lease{Interface: lock("me"), good: time.Hour}, lock("other")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	led := make(chan struct{})
	var frozen sync.Mutex // while it is locked, the elector renews nothing
	elector := must.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &freezing{l, &frozen}, LeaseDuration: 1000 * time.Hour, RenewDeadline: 100 * time.Hour, RetryPeriod: 50 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(led) }, OnStoppedLeading: func() {}},
	}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	<-led
	frozen.Lock()
	record, _, err := other.Get(t.Context())
	if err == nil {
		record.HolderIdentity = "other"
		err = other.Update(t.Context(), *record)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	frozen.Unlock()
	<-ended
	if record, _, err = other.Get(t.Context()); err != nil || record.HolderIdentity != "other" {
		t.Errorf("the lease is held by %q, %v; other had taken it", record.HolderIdentity, err)
	}
}

// freezing is a lock that cannot be reached while the process is frozen.
type freezing struct {
	resourcelock.Interface
	frozen *sync.Mutex
}

func (f *freezing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	f.frozen.Lock()
	defer f.frozen.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f.Interface.Update(ctx, r)
}

// replica takes part in an election until its context ends.
func replica(ctx context.Context, t *testing.T, client kubernetes.Interface, namespace, name string) *lease {
	t.Helper()
	const deadline = 2 * time.Second
	l := &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lead"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		good: deadline,
	}
	elector := must.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: 3 * time.Second, RenewDeadline: deadline, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	}()
	t.Cleanup(func() { <-ended })
	return l
}

func TestLease_TwoReplicasNeverBothHoldIt(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	var both, changes atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	watch := func(l, other *lease) {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// l held the lease before and after other did, so both held it.
			if l.held() == nil && other.held() == nil && l.held() == nil {
				both.Add(1)
			}
			time.Sleep(time.Millisecond)
		}
	}
	base, end := context.WithCancel(t.Context())
	defer end()
	var leases [2]*lease
	var leave [2]context.CancelFunc
	start := func(i, generation int) {
		ctx, cancel := context.WithCancel(base)
		leave[i], leases[i] = cancel, replica(ctx, t, client, namespace, []string{"a", "b"}[i]+string(rune('0'+generation)))
	}
	start(0, 0)
	for generation := 1; generation <= 6; generation++ {
		leading := (generation - 1) % 2
		testenv.Eventually(t, "a replica to lead", func(context.Context) error { return leases[leading].held() })
		start(1-leading, generation)
		l, other := leases[leading], leases[1-leading]
		wg.Go(func() { watch(l, other) })
		changes.Add(1)
		leave[leading]() // frees the lease, so that the other replica leads
	}
	testenv.Eventually(t, "the last replica to lead", func(context.Context) error { return leases[0].held() })
	close(stop)
	wg.Wait()
	if n := both.Load(); n != 0 {
		t.Errorf("two replicas have held the lease at once, as was seen %d times in %d changes", n, changes.Load())
	}
	end()
}

// A process that was frozen until its lease ran out notices it at once, and writes nothing.
func TestLease_WatchAndFenceWhenLeadershipCannotBeProved(t *testing.T) {
	const good = 10 * time.Second
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	synctest.Test(t, func(t *testing.T) {
		l := &lease{Interface: &scriptedLock{write: func() error { return nil }}, good: good}
		sent := map[string]int{}
		client := assembly.Fence(&rest.Config{}, l.held).WrapTransport(roundTrip(func(req *http.Request) (*http.Response, error) {
			sent[req.Method+" "+req.URL.Path]++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		send := func(method, path string) error {
			req := must.Get(http.NewRequestWithContext(t.Context(), method, "http://server"+path, strings.NewReader("{}")))(t)
			answer, err := client.RoundTrip(req)
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		}
		lost := make(chan struct{})
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { ended <- l.watch(func() { close(lost) })(ctx) }()

		time.Sleep(time.Hour) // no replica leads, so nothing is lost
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if err := send(method, "/api/v1/things"); !errors.Is(err, errNotLeading) {
				t.Errorf("%s by a replica that does not lead: %v", method, err)
			}
		}
		for range 5 {
			must.Do(t, l.Update(ctx, mine))
			if err := send(http.MethodPatch, "/api/v1/things"); err != nil {
				t.Errorf("a write by the leader: %v", err)
			}
			time.Sleep(good - time.Second)
		}
		select {
		case <-lost:
			t.Fatal("leadership was lost while it was renewed")
		default:
		}
		time.Sleep(time.Second + 500*time.Millisecond)
		<-lost
		if err := <-ended; !errors.Is(err, errNotLeading) {
			t.Errorf("the watch of the lease ended with %v", err)
		}
		if err := send(http.MethodPatch, "/api/v1/things"); !errors.Is(err, errNotLeading) {
			t.Errorf("a write after the lease: %v", err)
		}
		for path, method := range map[string]string{
			"/api/v1/things": http.MethodGet, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": http.MethodPost,
			"/apis/authentication.k8s.io/v1/tokenreviews": http.MethodPost,
		} {
			if err := send(method, path); err != nil {
				t.Errorf("%s %s: %v", method, path, err)
			}
		}
		if n := sent["PATCH /api/v1/things"]; n != 5 {
			t.Errorf("%d writes were sent, want those of the leader, 5", n)
		}
	})
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The API proxy refuses writes of the Leases of the operator's election, with one leader and with shards.
func TestNewProxy_RefusesWritesOfTheLeases(t *testing.T) {
	c := cluster{config: &rest.Config{Host: "http://127.0.0.1:1"}} // no server is there
	o := &runOptions{leaderElect: true, leaderID: "op", leaderNamespace: "system", leaderRenewDeadline: time.Second, proxyAnonymous: true}
	for _, o.shards = range []shardCount{0, 8} {
		l := must.Get(o.newLease(c, logr.Discard()))(t)
		l.set(time.Now().Add(time.Hour))
		p := must.Get(o.newProxy(t.Context(), c, l, func(proxy.Owner) proxy.Grant { return proxy.Grant{} }, nil, nil, logr.Discard()))(t)
		for name, refused := range map[string]bool{"op": true, "op-shard-3": true, "mine": false} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/apis/coordination.k8s.io/v1/namespaces/system/leases/"+name, http.NoBody)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if (w.Code == http.StatusForbidden) != refused {
				t.Errorf("with %d shards, a run deletes the Lease %s: %d %s", o.shards, name, w.Code, w.Body)
			}
		}
	}
}
