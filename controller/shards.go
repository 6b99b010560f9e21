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

// Shard is a share of the objects of all kinds. The replica that holds it serves each kind with a
// separate cache and reconciler for the objects of the shard.
type Shard struct {
	Name string
	// Has reports whether an object belongs to the shard.
	Has func(types.UID) bool
	// Selector asks the API server for only the objects of the shard, in the form of shardSelector
	// in [metav1.ListOptions]; if it is empty, the API server is asked for all objects.
	Selector string
}

// ofShard identifies a kind in a shard; without sharding, shard is nil.
type ofShard struct {
	shard *Shard
	gvk   schema.GroupVersionKind
}

// Hold serves the objects of a shard from now on. It must be called after all other replicas have
// stopped to serve them.
func (s *Set) Hold(shard *Shard) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.shards = append(s.shards, shard)
	return s.serve(shard, s.watched)
}

// Release stops serving the objects of a shard: no new runs start, and the runs in progress go on to their end. left waits
// for that. Once only runs as Jobs are left, it leaves them to the next holder of the shard, which finds them by the
// status.
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

// left returns a function that waits until the runs of a shard have ended, including those of watches
// from before a change of watches.yaml. The caller must hold change.
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
		return awaitAll(ctx, apart)
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

// Objects returns how many objects are served.
func (s *Set) Objects() (n int) {
	for _, k := range s.all() {
		if r := k.reconciler(); r != nil {
			n += r.objects.known()
		}
	}
	return n
}

// known returns how many existing objects were reconciled.
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

// dropMetrics removes the metrics of the objects that the kind has served, since another replica,
// another watch or nothing serves them from now on.
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

// foreign reports whether a UID belongs to another shard. It is false if uid is empty.
func (r *reconciler) foreign(uid types.UID) bool {
	return r.shard != nil && uid != "" && !r.shard.Has(uid)
}

// informer returns an informer for only the objects of the shard.
func (s *Shard) informer(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(s.share(toolscache.ToListerWatcherWithContext(lw)), of, resync, by)
}

// share lists and watches the objects of the shard. An API server without the feature
// ShardedListAndWatch sends the objects of all shards, of which share drops the others. The UID of an
// object never changes, so an object never moves to another shard.
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

// selected asks for the objects of a shard. If the API server refuses the selector, it asks for all:
// the selector is an alpha feature, and its syntax may change.
func selected[T any](selector string, options metav1.ListOptions, ask func(metav1.ListOptions) (T, error)) (T, error) {
	options.ShardSelector = selector
	is, err := ask(options)
	if selector != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err)) {
		options.ShardSelector = ""
		return ask(options)
	}
	return is, err
}

// shareWatch passes on the events of a shard's objects, and events that are not about objects. It ends
// with the underlying watch, or when it is stopped.
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
