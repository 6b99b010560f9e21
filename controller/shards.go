package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/internal/watches"
)

// Shard is a share of the objects of all kinds. Who holds it serves each kind with a cache and
// a reconciler of its own for the objects of the shard.
type Shard struct {
	Name string
	// Has reports whether an object is of the shard.
	Has func(types.UID) bool
	// Selector asks the API server for the objects of the shard only, as [metav1.ListOptions]
	// say of shardSelector; without it, for all.
	Selector string
}

// ofShard names what there is of a kind in each shard; nil is all objects.
type ofShard struct {
	shard *Shard
	gvk   schema.GroupVersionKind
}

// Hold has the objects of a shard served from now on. It is called after everyone else has
// ended to serve them.
func (s *Set) Hold(shard *Shard) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.shards = append(s.shards, shard)
	return s.serve(shard, s.watched)
}

// Release has the objects of a shard not served any more: their runs end as they have begun,
// and no new one starts. left waits until nothing is left of them; it leaves those in Pods of their own, which go on, to who holds the
// shard next and finds them by the status, once no other is left.
func (s *Set) Release(shard *Shard) (left func(context.Context) error, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	left = s.left(shard)
	s.shards = slices.DeleteFunc(s.shards, func(is *Shard) bool { return is == shard })
	err = s.serve(shard, nil)
	delete(s.watchers, shard)
	maps.DeleteFunc(s.ending, func(of ofShard, _ []<-chan struct{}) bool { return of.shard == shard })
	return left, err
}

// left returns what waits until nothing is left of what is served of a shard, and of what was
// served before watches.yaml changed, whose runs may still be in progress. The caller holds change.
func (s *Set) left(shard *Shard) func(context.Context) error {
	of := slices.DeleteFunc(s.all(), func(k *kind) bool { return k.shard != shard })
	var ended, apart []<-chan struct{}
	for at, before := range s.ending {
		if at.shard == shard {
			ended = append(ended, before...)
		}
	}
	for _, k := range of {
		if r := k.reconciler(); k.watch.Executor == watches.ExecutorJob && r != nil && r.writesStatus() {
			apart = append(apart, k.ended)
		} else {
			ended = append(ended, k.ended)
		}
	}
	return func(ctx context.Context) error {
		if err := awaitAll(ctx, ended); err != nil {
			return err
		}
		for _, k := range of { // none before: until another one holds the shard, no one answers them
			k.leave()
		}
		if err := awaitAll(ctx, apart); err != nil {
			return err
		}
		for _, k := range of {
			k.dropMetrics()
		}
		return nil
	}
}

// awaitAll waits until all have ended, or ctx has.
func awaitAll(ctx context.Context, ended []<-chan struct{}) error {
	for _, end := range ended {
		select {
		case <-end:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Objects is how many objects are served.
func (s *Set) Objects() (n int) {
	for _, k := range s.all() {
		if r := k.reconciler(); r != nil {
			n += r.objects.known()
		}
	}
	return n
}

// known is how many objects were looked at and are there.
func (o *objects) known() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.table {
		if e.memory != nil {
			n++
		}
	}
	return n
}

// dropMetrics removes the metrics of the objects that the kind has served: another replica
// has them from now on.
func (k *kind) dropMetrics() {
	r := k.reconciler()
	if r == nil {
		return
	}
	r.objects.mu.Lock()
	keys := make([]types.NamespacedName, 0, len(r.objects.table))
	for key := range r.objects.table {
		keys = append(keys, key)
	}
	r.objects.mu.Unlock()
	for _, key := range keys {
		r.forgetMetrics(key)
	}
}

// foreign reports whether an object with a UID is of another shard.
func (r *reconciler) foreign(uid types.UID) bool {
	return r.shard != nil && uid != "" && !r.shard.Has(uid)
}

// informer is what keeps the objects of a kind up to date that are of the shard, and no others.
func (s *Shard) informer(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(s.share(toolscache.ToListerWatcherWithContext(lw)), of, resync, by)
}

// share lists and watches the objects of the shard. An API server without the feature
// ShardedListAndWatch sends those of all shards; what is of others is dropped as it comes. The
// UID of an object never changes, so that none comes or goes but with its creation and its deletion.
func (s *Shard) share(all toolscache.ListerWatcherWithContext) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			is, err := selected(s.Selector, options, func(o metav1.ListOptions) (runtime.Object, error) { return all.ListWithContext(ctx, o) })
			if err != nil {
				return nil, err
			}
			list, ok := is.(*unstructured.UnstructuredList)
			if !ok {
				return nil, fmt.Errorf("a list of a shard is a %T", is)
			}
			list.Items = slices.DeleteFunc(list.Items, func(obj unstructured.Unstructured) bool { return !s.Has(obj.GetUID()) })
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			is, err := selected(s.Selector, options, func(o metav1.ListOptions) (watch.Interface, error) { return all.WatchWithContext(ctx, o) })
			if err != nil {
				return nil, err
			}
			w := &shareWatch{all: is, events: make(chan watch.Event), stopped: make(chan struct{})}
			go w.forward(s.Has)
			return w, nil
		},
	}
}

// selected asks for the objects of a shard, and for all where the API server refuses the selector:
// it is an alpha feature, whose syntax may change.
func selected[T any](selector string, options metav1.ListOptions, ask func(metav1.ListOptions) (T, error)) (T, error) {
	options.ShardSelector = selector
	is, err := ask(options)
	if selector != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err)) {
		options.ShardSelector = ""
		return ask(options)
	}
	return is, err
}

// shareWatch passes on the events of a shard, and those that are of no object. It ends with
// what it is made of, or when it is stopped.
type shareWatch struct {
	all     watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (w *shareWatch) forward(has func(types.UID) bool) {
	defer close(w.events)
	for e := range w.all.ResultChan() {
		if obj, ok := e.Object.(metav1.Object); ok && e.Type != watch.Bookmark && e.Type != watch.Error && !has(obj.GetUID()) {
			continue
		}
		select {
		case w.events <- e:
		case <-w.stopped:
			return
		}
	}
}

// Stop implements [watch.Interface].
func (w *shareWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.all.Stop()
}

// ResultChan implements [watch.Interface].
func (w *shareWatch) ResultChan() <-chan watch.Event { return w.events }
