package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rolewright/rolewright/controller/reference"
)

var (
	// errDenied is that the operator may not do what serving a kind takes.
	errDenied = errors.New("no permission")
	// errPartly is that a kind is served, but not in all namespaces.
	errPartly = errors.New("not in all namespaces")
)

// getter reads one object.
type getter interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// caches have the objects of a kind: one those of all namespaces, or one those of each, as a cache of
// several is in step only when each of them can be read.
type caches struct {
	of sync.Map // of a namespace, or NamespaceAll, to its cache.Cache
}

// Get reads an object. In a namespace that is not served there is none.
func (c *caches) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	for _, ns := range []string{key.Namespace, metav1.NamespaceAll} {
		if is, has := c.of.Load(ns); has {
			return is.(cache.Cache).Get(ctx, key, obj, opts...)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: obj.GetObjectKind().GroupVersionKind().Group}, key.Name)
}

// reach is where a kind may be served, and why it may not elsewhere.
type reach struct {
	in  []string
	out map[string]error
}

// why says why the kind is not served in some namespaces, each reason once.
func (w reach) why() string {
	var all []string
	for err := range maps.Values(w.out) {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// missing is an error while the kind is not served in some namespaces.
func (w reach) missing() error {
	if len(w.out) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errPartly, w.why())
}

// reach asks where the kind may be served. It is an error if that is nowhere.
func (k *kind) reach(ctx context.Context, c client.Client, res resource) (reach, error) {
	namespaces := k.opts.Namespaces
	if len(namespaces) == 0 || !res.namespaced {
		namespaces = []string{metav1.NamespaceAll}
	}
	where := reach{out: map[string]error{}}
	for _, ns := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
		switch err := k.may(ctx, c, res, ns); {
		case err == nil:
			where.in = append(where.in, ns)
		case errors.Is(err, errDenied):
			where.out[ns] = err
		default:
			return reach{}, err
		}
	}
	if len(where.in) == 0 {
		return reach{}, errors.New(where.why())
	}
	return where, nil
}

// may asks for all that serving the kind in a namespace takes.
func (k *kind) may(ctx context.Context, c client.Client, res resource, namespace string) error {
	if err := k.mayServe(ctx, c, res, namespace); err != nil {
		return err
	}
	return k.mayRefer(ctx, c, namespace)
}

// service is a kind that is served.
type service struct {
	*kind
	r     *reconciler
	ctl   ctrl.Controller
	kinds *caches
	// part runs a function until the service ends, which it does when one of them returns.
	part func(run func(context.Context) error)
	// following ends after the last run: until then, runs hear of their objects' deletion and cancel, also while the
	// kind or its shard is handed over.
	following context.Context
}

// firstLists is how many first lists of objects are read at a time: the API server need not send the objects of forty kinds at
// once, or of eight shards of five. One that takes longer than firstListLimit holds up no other.
const (
	firstLists     = 4
	firstListLimit = time.Minute
)

// begin has the objects in a namespace reconciled as soon as it is the turn of their first list.
func (s *service) begin(ctx context.Context, namespace string) error {
	failed, fails := context.WithCancel(ctx)
	is, err := s.newCache(s.r.res, namespace, fails)
	if err != nil {
		fails()
		return err
	}
	s.kinds.of.Store(namespace, is)
	src := source.Kind[client.Object](is, s.r.newObject(), &firstList{}, changes(s.r.responsible), s.r.note())
	if err := s.ctl.Watch(src); err != nil {
		return fmt.Errorf("watch %s: %w", s.r.gvk, err)
	}
	s.part(func(ctx context.Context) error {
		defer fails()
		if s.set.firstLists.Acquire(ctx, 1) != nil {
			return nil // ctx has ended
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		wg.Go(func() {
			defer s.set.firstLists.Release(1)
			first, cancel := context.WithTimeout(ctx, firstListLimit)
			defer cancel()
			defer context.AfterFunc(failed, cancel)()
			if _, err := is.GetInformer(first, s.r.newObject()); err == nil {
				is.WaitForCacheSync(first)
			}
		})
		return is.Start(s.following) //nolint:contextcheck // it ends later than ctx
	})
	return nil
}

// spread has the kind served in all namespaces: in those where it may be, and then in each of the others when it may.
// It ends no run: what is served goes on.
func (s *service) spread(ctx context.Context, where reach) error {
	for _, ns := range where.in {
		if err := s.follow(ctx, ns); err != nil {
			return nil // ctx has ended
		}
	}
	s.settle(where, where.in...)
	tick := time.NewTicker(s.opts.KindPollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for ns := range where.out {
			if where.out[ns] = s.join(ctx, ns); where.out[ns] == nil {
				delete(where.out, ns)
				where.in = append(where.in, ns)
				s.settle(where, ns)
			}
		}
		if err := s.state(ctx, where); ctx.Err() == nil {
			s.report(err)
		}
	}
}

// state says in which namespaces the kind is not served: where it may not be, and where the operator may not see the objects any
// more, or cannot ask, after the API server has refused a list or watch. It is errNotSeen if that is everywhere.
func (s *service) state(ctx context.Context, where reach) error {
	is := reach{out: maps.Clone(where.out)}
	if s.refused.Swap(false) {
		for _, ns := range where.in {
			err := s.may(ctx, s.r.client, s.r.res, ns)
			if err == nil {
				err = s.lists(ctx, ns)
			}
			if err != nil {
				is.out[ns] = err
				s.refused.Store(true)
			}
		}
	}
	if len(is.out) == len(where.in)+len(where.out) {
		return fmt.Errorf("%w: %s", errNotSeen, is.why())
	}
	return is.missing()
}

// lists asks the API server for an object in a namespace: a permission to see them is not enough where none can be converted.
func (s *service) lists(ctx context.Context, namespace string) error {
	one := &unstructured.UnstructuredList{}
	one.SetGroupVersionKind(s.watch.GVK.GroupVersion().WithKind(s.watch.GVK.Kind + "List"))
	if err := s.r.live.List(ctx, one, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("list the objects: %w", err)
	}
	return nil
}

// listFails is called when a list or a watch of the kind's objects has failed, which is tried again. Before the first list
// that is why the kind is not served. Later a refusal is looked into, and an error of the API server's own, since nothing else tells of it.
func (k *kind) listFails(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	k.mu.Lock()
	served := k.state == nil || errors.Is(k.state, errPartly) || errors.Is(k.state, errNotSeen)
	k.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case !served:
		k.report(fmt.Errorf("list the objects: %w", err))
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInternalError(err):
		k.refused.Store(true)
	}
}

// settle notes that the kind is served in namespaces.
func (s *service) settle(where reach, namespaces ...string) {
	s.report(where.missing())
	s.part(func(ctx context.Context) error {
		s.r.sweepUntilDone(ctx, namespaces)
		<-ctx.Done()
		return nil
	})
}

// join has the kind served in a namespace, if it may be now. The error says why it is not.
func (s *service) join(ctx context.Context, namespace string) error {
	if err := s.may(ctx, s.r.client, s.r.res, namespace); err != nil {
		return err
	}
	if _, begun := s.kinds.of.Load(namespace); !begun {
		if err := s.begin(ctx, namespace); err != nil {
			return err
		}
	}
	patience, cancel := context.WithTimeout(ctx, s.opts.KindPollInterval)
	defer cancel()
	return s.follow(patience, namespace)
}

// follow waits for the first list of the objects in a namespace, until patience ends, and has runs follow them.
func (s *service) follow(patience context.Context, namespace string) error {
	found, _ := s.kinds.of.Load(namespace)
	is := found.(cache.Cache)
	informer, err := is.GetInformer(patience, s.r.newObject())
	if err == nil && !is.WaitForCacheSync(patience) {
		err = errors.New("no list yet")
	}
	if err == nil {
		_, err = informer.AddEventHandler(s.r.watchObjects(s.following)) //nolint:contextcheck // as above
	}
	if err != nil {
		return fmt.Errorf("list the objects in namespace %q: %w", namespace, err)
	}
	return nil
}

// newCache has the objects of one namespace, or of all. fails is called when their list or watch has.
func (k *kind) newCache(res resource, namespace string, fails func()) (cache.Cache, error) {
	opts := cache.Options{
		HTTPClient: k.http,
		Scheme:     k.scheme,
		Mapper:     k.mapper(res),
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			fails()
			k.listFails(ctx, r, err)
		},
		DefaultTransform: trim(k.watch.GVK, ofObject(k.watch), k.watchers.selects(), k.watch.ManageStatus && res.hasStatus, reference.Fields(k.watch)...),
	}
	if k.watch.Finalizer == nil && !k.watch.PruneOnDelete {
		// With a finalizer, an object that ceases to match has to stay in view:
		// it may be deleted later, and waits for us then.
		opts.DefaultLabelSelector = k.watchers.claims[k.claimIndex].Selector
	}
	if namespace != metav1.NamespaceAll {
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	if k.shard != nil {
		opts.NewInformer = k.shard.informer
	}
	c, err := cache.New(k.cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("cache for %s: %w", k.watch.GVK, err)
	}
	return c, nil
}
