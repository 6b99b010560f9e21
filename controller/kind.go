package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/watches"
)

// kind keeps one watched kind served: it waits until the kind is installed and
// the operator may read it, runs a controller with its own caches as long as that
// is so, and starts over. The caches are its own because a shared cache is ready
// only when every kind in it is.
type kind struct {
	watch  watches.Watch
	name   string // the controller label of metrics
	opts   *Options
	set    *Set
	cfg    *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
	store  *runstore.Store
	log    logr.Logger
	// watchers holds all watches of the kind; claimIndex is the index of this one.
	watchers   *watchers
	claimIndex int

	// shard restricts which objects are served; nil for no restriction.
	shard *Shard

	// stopped ends when stop is called: the kind is no longer served. ended is closed when
	// serving has ended. after are the predecessors whose end Start waits for.
	stopped context.Context // the kind's own lifetime
	stop    context.CancelCauseFunc
	ended   chan struct{}
	after   []<-chan struct{}
	// leaving ends when the operator stops, or leave is called: runs as Jobs are left to another operator then.
	leaving context.Context // it is the kind's own
	leave   context.CancelFunc

	mu      sync.Mutex
	state   error       // why the kind is not served; nil while it is
	served  *reconciler // of the current or last service; nil before the first one
	content *contentVersion
	// refused is set when the API server refuses a list or watch while the kind is served.
	refused atomic.Bool
}

// Reasons for which a kind is not served.
var (
	errNotStarted   = errors.New("not started")
	errWaiting      = errors.New("not started yet; runs of the previous watch may still be in progress")
	errNotInstalled = errors.New("the kind is not installed")
	errChanged      = errors.New("the kind has changed")
	errNotSeen      = errors.New("changes of objects are not seen")
)

// resource is how the API server serves a kind.
type resource struct {
	plural     string
	namespaced bool
	// hasStatus is true if there is a status subresource.
	hasStatus bool
}

// Start serves the kind until ctx or k.stopped ends. It implements manager.Runnable
// and needs leadership.
func (k *kind) Start(ctx context.Context) error {
	defer close(k.ended)
	defer k.dropMetrics() // before the next watch of the kind sees the objects
	if !k.set.enter() {
		return nil
	}
	defer k.set.active.Done()
	defer context.AfterFunc(ctx, k.leave)()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.stopped, func() { cancel(context.Cause(k.stopped)) })() //nolint:contextcheck // the kind ends with either
	k.awaitBefore()
	for {
		res, where, err := k.discoverKind(ctx)
		if err == nil {
			err = k.serve(ctx, res, where)
		}
		if ctx.Err() != nil {
			return nil // the end was requested
		}
		k.report(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.opts.KindPollInterval):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *kind) NeedLeaderElection() bool { return true }

// discoverKind asks the API server how it serves the kind, and where the operator may serve it.
func (k *kind) discoverKind(ctx context.Context) (resource, reach, error) {
	res, err := k.installed(ctx)
	if err != nil {
		return resource{}, reach{}, k.stillAbsent(err)
	}
	c, err := k.client(res)
	if err != nil {
		return resource{}, reach{}, err
	}
	where, err := k.reach(ctx, c, res)
	return res, where, err
}

// mayServe asks the API server whether the operator has the permissions to serve
// the kind. A missing vital permission is an error; other missing ones are logged.
func (k *kind) mayServe(ctx context.Context, c client.Client, res resource, namespace string) error {
	needs := []struct {
		verb, subresource string
		needed, vital     bool
	}{
		{verb: "get", needed: true, vital: true},
		{verb: "list", needed: true, vital: true},
		{verb: "watch", needed: true, vital: true},
		{verb: "patch", needed: k.watch.Finalizer != nil || k.watch.PruneOnDelete},
		{verb: "patch", subresource: "status", needed: k.watch.ManageStatus && res.hasStatus},
	}
	var vital, other []string
	for _, n := range needs {
		if !n.needed {
			continue
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: n.verb, Group: k.watch.GVK.Group, Version: k.watch.GVK.Version,
				Resource: res.plural, Subresource: n.subresource,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("ask for permissions on %s: %w", res.plural, err)
		}
		what := n.verb
		if n.subresource != "" {
			what += " of " + n.subresource
		}
		switch {
		case review.Status.Allowed:
		case n.vital:
			vital = append(vital, what)
		default:
			other = append(other, what)
		}
	}
	if len(vital) > 0 {
		return fmt.Errorf("%w: grant the operator %s on %s in group %q, namespace %q", errDenied,
			strings.Join(append(vital, other...), ", "), res.plural, k.watch.GVK.Group, namespace)
	}
	if len(other) > 0 {
		k.log.Error(errDenied, "Grant the operator what is missing; finalizers and status depend on it",
			"missing", other, "resource", res.plural, "group", k.watch.GVK.Group, "namespace", namespace)
	}
	return nil
}

// mapper returns a mapper that knows only the discovered kind. So discovery is not
// asked again, and a kind that returns with another scope is served with that.
func (k *kind) mapper(res resource) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	scope := meta.RESTScope(meta.RESTScopeRoot)
	if res.namespaced {
		scope = meta.RESTScopeNamespace
	}
	gv := k.watch.GVK.GroupVersion()
	reviews := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	m.AddSpecific(k.watch.GVK, gv.WithResource(res.plural), gv.WithResource(res.plural), scope)
	m.AddSpecific(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), reviews, reviews, meta.RESTScopeRoot)
	return m
}

func (k *kind) client(res resource) (client.Client, error) {
	c, err := client.New(k.cfg, client.Options{HTTPClient: k.http, Scheme: k.scheme, Mapper: k.mapper(res)})
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", k.watch.GVK, err)
	}
	return c, nil
}

// serve runs the kind's caches and controller until ctx ends or the kind goes.
func (k *kind) serve(ctx context.Context, res resource, where reach) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := k.client(res)
	if err != nil {
		return err
	}
	kinds := &caches{}
	r := newReconciler(k, res, kinds, c)
	defer r.places.Close()
	defer context.AfterFunc(ctx, r.places.Drain)()
	defer r.subscribe()()
	defer r.metrics.WatchAges(r.gvk, r.ages)()
	k.mu.Lock()
	k.served = r
	k.mu.Unlock()
	k.set.showReady(r.gvk)
	ctl, err := k.newController(r)
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	part := func(run func(context.Context) error) {
		wg.Go(func() { cancel(run(ctx)) })
	}
	following, unfollow := context.WithCancel(context.WithoutCancel(ctx))
	defer unfollow()
	s := &service{kind: k, r: r, ctl: ctl, kinds: kinds, part: part, following: following}
	for _, ns := range where.in { // before the controller starts, since it waits for these caches
		if err := s.begin(ctx, ns); err != nil {
			cancel(err)
		}
	}
	part(func(ctx context.Context) error { return k.poll(ctx, res) })
	part(func(ctx context.Context) error { return s.spread(ctx, where) })
	part(func(ctx context.Context) error {
		defer unfollow()
		return ctl.Start(ctx) // returns after the last run
	})
	if r.referring != nil {
		wg.Go(func() { r.referring.serve(following, k.opts.KindPollInterval) })
	}
	wg.Wait()
	r.liveReads.Wait()
	return context.Cause(ctx)
}

// poll returns when two checks in a row find that the kind is gone or has changed. One is not enough: an API server that has
// just started may answer 404 for a kind that it does not know yet, and the end of the kind stops all its runs.
func (k *kind) poll(ctx context.Context, was resource) error {
	tick := time.NewTicker(k.opts.KindPollInterval)
	defer tick.Stop()
	for before := error(nil); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		is, err := k.installed(ctx)
		switch {
		case errors.Is(err, ErrKindGone):
		case errors.Is(err, errNotInstalled):
			err = ErrKindGone
		case err == nil && is != was:
			err = fmt.Errorf("%w: %w", errChanged, ErrKindGone)
		default:
			err = nil
		}
		if err != nil && before != nil {
			return err
		}
		before = err
	}
}

func (k *kind) newController(r *reconciler) (ctrl.Controller, error) {
	unique := true // the same kind may be served again under the same name
	c, err := ctrl.NewUnmanaged(k.name, ctrl.Options{
		SkipNameValidation:      &unique,
		MaxConcurrentReconciles: max(k.watch.MaxConcurrentReconciles, 1) + spareWorkers,
		Reconciler:              r,
		LogConstructor: func(req *reconcile.Request) logr.Logger {
			log := k.log.WithValues("controller", k.name)
			if req != nil {
				log = log.WithValues("namespace", req.Namespace, "name", req.Name)
			}
			return log
		},
		// listFails reports an initial list that fails; the controller must not give up.
		CacheSyncTimeout: 24 * time.Hour,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			k.opts.RetryMin, k.opts.RetryMax),
	})
	if err != nil {
		return nil, fmt.Errorf("controller for %s: %w", k.watch.GVK, err)
	}
	if err := c.Watch(r.queueSource()); err != nil {
		return nil, fmt.Errorf("watch %s: %w", k.watch.GVK, err)
	}
	return c, nil
}

// report stores the state for Ready, and logs each change of it once.
func (k *kind) report(state error) {
	k.mu.Lock()
	was := k.state
	k.state = state
	k.mu.Unlock()
	k.set.showReady(k.watch.GVK)
	if absence(was) != absence(state) {
		k.comesOrGoes()
	}
	if was == nil && state == nil || was != nil && state != nil && was.Error() == state.Error() {
		return
	}
	var disabled notEnabledError
	switch {
	case state == nil:
		k.log.Info("Serving kind", "gvk", k.watch.GVK.String())
	case errors.As(state, &disabled):
		k.log.Info("Waiting for an API to be installed that enabledIf of the watch names", "gvk", k.watch.GVK.String(), "api", disabled.api.String())
	case errors.Is(state, errChanged):
		k.log.Info("Kind is served again: its scope or its status subresource has changed", "gvk", k.watch.GVK.String())
	case errors.Is(state, errNotInstalled), errors.Is(state, ErrKindGone):
		k.log.Info("Waiting for kind to be installed; install its CustomResourceDefinition", "gvk", k.watch.GVK.String())
	case errors.Is(state, errNotSeen):
		k.log.Error(state, "Kind is not served any more: its list or watch is refused", "gvk", k.watch.GVK.String())
	case errors.Is(state, errPartly):
		k.log.Error(state, "Kind is not served in all namespaces; it is in the others", "gvk", k.watch.GVK.String())
	default:
		k.log.Error(state, "Kind cannot be served yet", "gvk", k.watch.GVK.String())
	}
}

// stillAbsent returns err; but if the kind was absent and err does not say whether it still is, it returns the old state, so
// that another watch goes on with the objects.
func (k *kind) stillAbsent(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !absence(k.state) || absence(err) {
		return err
	}
	k.log.V(1).Info("The API server does not say whether the kind is installed", "gvk", k.watch.GVK.String(), "error", err.Error())
	return k.state
}

// absence reports whether state says that the API server does not serve the kind or an API in enabledIf ([notEnabledError]).
func absence(state error) bool {
	return errors.Is(state, errNotInstalled) || errors.Is(state, ErrKindGone)
}

// ready returns why the kind makes the operator unready; nil for ready. A kind that is not installed is no reason: an
// operator may start before its CustomResourceDefinitions. Neither is a kind served in only some of its namespaces: the
// others wait for a permission, and a rollout of the operator must not wait with them.
func (k *kind) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, fine := range []error{nil, errPartly, errWaiting, errNotInstalled, ErrKindGone} {
		if errors.Is(k.state, fine) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", k.watch.GVK, k.state)
}
