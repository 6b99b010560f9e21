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
	// errDenied says that the operator lacks a permission for serving a kind.
	errDenied = errors.New("no permission")
	// errPartly says that a kind is served, but not in all namespaces.
	errPartly = errors.New("not in all namespaces")
)

// getter reads one object.
type getter interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// caches are the caches of a kind: either one for all namespaces, or one per namespace. A cache for
// several namespaces would be in sync only when each of them can be read.
type caches struct {
	of sync.Map // from a namespace, or NamespaceAll, to its cache.Cache
}

// Get reads an object. It finds none in a namespace that is not served.
func (c *caches) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	for _, ns := range []string{key.Namespace, metav1.NamespaceAll} {
		if is, has := c.of.Load(ns); has {
			return is.(cache.Cache).Get(ctx, key, obj, opts...)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: obj.GetObjectKind().GroupVersionKind().Group}, key.Name)
}

// reach says where a kind may be served: in has the namespaces, or NamespaceAll; out has the
// others, with the reason why the kind is not served there.
type reach struct {
	in  []string
	out map[string]error
}

// why returns the reasons why the kind is not served in some namespaces, without duplicates.
func (w reach) why() string {
	var all []string
	for err := range maps.Values(w.out) {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// missing returns an error if the kind is not served in some namespaces; else nil.
func (w reach) missing() error {
	if len(w.out) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errPartly, w.why())
}

// reach asks the API server where the kind may be served. It returns an error if that is nowhere.
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

// may returns an error unless the operator has all permissions to serve the kind in a namespace.
func (k *kind) may(ctx context.Context, c client.Client, res resource, namespace string) error {
	if err := k.mayServe(ctx, c, res, namespace); err != nil {
		return err
	}
	return k.mayRefer(ctx, c, namespace)
}

// service is a kind while it is served.
type service struct {
	*kind
	r     *reconciler
	ctl   ctrl.Controller
	kinds *caches
	// part runs a function as a part of the service. The service ends when any part returns.
	part func(run func(context.Context) error)
	// following ends after the last run. Until then, runs are told when their objects are deleted or cancel the run, even
	// while the kind or its shard is handed over.
	following context.Context
}

// firstLists is how many initial lists are read at a time, so that the API server does not have to send the objects of forty
// kinds, or of eight shards of five kinds, at once. A list that takes longer than firstListLimit does not delay the others.
const (
	firstLists     = 4
	firstListLimit = time.Minute
)

// begin starts the cache of a namespace, as soon as it is the turn of its initial list, and has its objects reconciled.
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

// spread serves the kind first in the namespaces where it may be served, and in each of the others as soon as it may be.
// It does not interrupt the service in the first ones.
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

// state returns an error about the namespaces in which the kind is not served: those where it may not be served, and, after
// the API server has refused a list or watch, those whose objects the operator can no longer read. It is errNotSeen if
// these are all namespaces, and nil if there are none.
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

// lists tries to list objects in a namespace. The permission is not enough if, for example, the objects cannot be converted.
func (s *service) lists(ctx context.Context, namespace string) error {
	one := &unstructured.UnstructuredList{}
	one.SetGroupVersionKind(s.watch.GVK.GroupVersion().WithKind(s.watch.GVK.Kind + "List"))
	if err := s.r.client.List(ctx, one, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("list the objects: %w", err)
	}
	return nil
}

// listFails is called when a list or watch of the kind's objects has failed; it is retried. Before the initial list, the
// failure is reported as the reason why the kind is not served. Later, a refusal or an internal error of the API server
// makes state check the namespaces, since nothing else would notice.
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

// settle reports that the kind is served in namespaces, and starts their sweep.
func (s *service) settle(where reach, namespaces ...string) {
	s.report(where.missing())
	s.part(func(ctx context.Context) error {
		s.r.sweepUntilDone(ctx, namespaces)
		<-ctx.Done()
		return nil
	})
}

// join serves the kind in a namespace if it may be served there by now. The error says why it is not served.
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

// follow waits for the initial list of a namespace, until patience ends, and has runs notified of changes of their objects.
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

// newCache returns a cache for one namespace, or for all. It calls fails when a list or watch has failed.
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
		// With a finalizer, an object has to stay in the cache even when it no longer
		// matches: it may be deleted later, and waits for the operator then.
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
