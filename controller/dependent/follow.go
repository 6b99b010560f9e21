package dependent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// run watches until ctx ends or the feed has been unused for a while.
func (f *feed) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { f.follow(ctx) })
	ticker := time.NewTicker(f.registry.opts.Idle)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.retire() {
				return
			}
		}
	}
}

// retire removes the feed from the registry, and returns true, if the feed was not
// used between two calls.
func (f *feed) retire() bool {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	if f.needed() || f.used {
		f.used = f.needed()
		return false
	}
	delete(f.registry.feeds, f.resource.GroupResource())
	f.registry.opts.Log.V(1).Info("No dependents are left; they are not watched any more", "resource", f.resource.GroupResource().String())
	return true
}

// follow runs the streams.
func (f *feed) follow(ctx context.Context) {
	streams := f.resolve(ctx)
	var wg sync.WaitGroup
	for _, s := range streams {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
}

// resolve looks up the resource until that succeeds, and creates its streams.
func (f *feed) resolve(ctx context.Context) []*stream {
	r := f.registry
	for delay := minDelay; ; delay = min(2*delay, r.denied) {
		r.mu.Lock()
		resource := f.resource
		r.mu.Unlock()
		is, err := r.opts.Lookup(ctx, resource)
		if err == nil {
			f.move(resource, is.GVR)
			return f.begin(is.Kind, is.Namespaced)
		}
		r.opts.Log.V(1).Info("Resource of dependents is not known yet", "resource", resource.String(), "error", err.Error())
		if !pause(ctx, delay) {
			return nil
		}
	}
}

// move replaces the version of the resource, unless another one has been asked for since.
func (f *feed) move(was, is schema.GroupVersionResource) {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	if f.resource != was || is == was {
		return
	}
	f.resource = is
	f.registry.opts.Log.Info("An API version of dependents is not served any more; they are watched in another one", "was", was.String(), "is", is.String())
}

// begin creates the streams of a resource whose kind is known now. Owner kinds
// that blacklist the kind leave.
func (f *feed) begin(kind string, namespaced bool) []*stream {
	r := f.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	f.kind = kind
	gvk := f.resource.GroupVersion().WithKind(kind)
	for _, k := range f.kinds {
		if k.blacklisted(gvk) {
			f.leave(k)
			logUnwatched(r.opts.Log, k, gvk)
		}
	}
	namespaces := []string{""}
	if namespaced && len(r.opts.Namespaces) > 0 {
		namespaces = r.opts.Namespaces
	}
	for _, namespace := range namespaces {
		f.streams = append(f.streams, &stream{feed: f, namespace: namespace})
	}
	return f.streams
}

// merge compares what a list has found with the records, and replaces them.
func (f *feed) merge(s *stream, found map[types.NamespacedName]*record, listed string) []notice {
	var notices []notice
	for id := range f.records {
		if s.covers(id) && found[id] == nil {
			notices = append(notices, f.deleted(id)...)
		}
	}
	for id, next := range found {
		next.owners = slices.DeleteFunc(next.owners, func(o ownership) bool { return !f.has(o.kind) })
		notices = append(notices, f.replace(id, f.records[id], next)...)
	}
	notices = append(notices, f.lost(s, listed)...)
	s.listed, s.position = listed, listed
	return notices
}

// abandon drops what no future list will settle: what runs did to objects without
// a record, and, if the resource itself is gone, everything.
func (f *feed) abandon(s *stream, gone bool) {
	maps.DeleteFunc(f.own, func(_ types.UID, w *own) bool { return s.covers(w.id) && (gone || f.records[w.id] == nil) })
	if !gone {
		return
	}
	clear(f.hints)
	for id := range f.records {
		if s.covers(id) {
			f.put(id, nil)
		}
	}
}

// streamOf returns the stream that covers an object; nil if there is none yet.
func (f *feed) streamOf(id types.NamespacedName) *stream {
	for _, s := range f.streams {
		if s.covers(id) {
			return s
		}
	}
	return nil
}

// seen reports whether a version of an object was handled already.
func (f *feed) seen(id types.NamespacedName, version string) bool {
	s := f.streamOf(id)
	return s != nil && reached(s.position, version)
}

// listedAfter reports whether the last list is at or after a version.
func (f *feed) listedAfter(id types.NamespacedName, version string) bool {
	s := f.streamOf(id)
	return s != nil && reached(s.listed, version)
}
