package dependent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/discovery"
)

// Restore tells the registry the resources of which an owner is recorded to own
// objects. Each resource is watched once the API server has confirmed that it
// exists, and forgotten if it does not, at two look-ups in a row. The API server is asked about one resource
// after the other, whatever the number of owners. Restore does not block.
func (k *Kind) Restore(name types.NamespacedName, resources []schema.GroupVersionResource) {
	r := k.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.closed {
		return
	}
	for _, resource := range resources {
		if r.recorded[resource] == nil {
			r.recorded[resource] = map[ownerKey]struct{}{}
		}
		r.recorded[resource][ownerKey{k, name}] = struct{}{}
	}
	select {
	case r.restoring <- struct{}{}:
	default: // a token is there already
	}
}

// restore looks up recorded resources until ctx ends.
func (r *Registry) restore(ctx context.Context) {
	delay := minDelay
	absent := map[schema.GroupVersionResource]time.Time{}
	for {
		var retry <-chan time.Time
		if r.restoreAll(ctx, absent) {
			delay = minDelay
		} else {
			retry = time.After(delay)
			delay = min(2*delay, r.denied)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.restoring:
		case <-retry:
		}
	}
}

// absentFor is how long after a resource was not found it is looked up again, before it
// is forgotten: an API server that has just started does not know all of them yet. It is
// longer than the time for which the answer is kept.
const absentFor = 3 * time.Second

// restoreAll looks up each recorded resource at most once. It returns false if not all
// are settled. absent has those that were not found, with the time.
func (r *Registry) restoreAll(ctx context.Context, absent map[schema.GroupVersionResource]time.Time) bool {
	r.mu.Lock()
	maps.DeleteFunc(absent, func(resource schema.GroupVersionResource, _ time.Time) bool { return r.recorded[resource] == nil })
	resources := slices.SortedFunc(maps.Keys(r.recorded), compareResources) // so that each group version's document is read once
	r.mu.Unlock()
	answered := true
	silent := map[schema.GroupVersion]bool{} // those without an answer in this round
	for _, resource := range resources {
		if silent[resource.GroupVersion()] {
			continue
		}
		if since, ok := absent[resource]; ok && time.Since(since) < absentFor {
			answered = false
			continue
		}
		is, err := r.opts.Lookup(ctx, resource)
		if ctx.Err() != nil {
			return false
		}
		if err != nil && !errors.Is(err, discovery.ErrNotFound) {
			answered = false
			silent[resource.GroupVersion()] = true
			continue
		}
		if _, again := absent[resource]; err != nil && !again {
			absent[resource] = time.Now()
			answered = false
			continue
		}
		delete(absent, resource)
		r.mu.Lock()
		owners := r.recorded[resource]
		delete(r.recorded, resource)
		for owner := range owners {
			if err == nil {
				r.feedOf(is.GVR).hint(owner.kind, owner.name)
			}
		}
		r.mu.Unlock()
		if err != nil {
			r.opts.Log.V(1).Info("Recorded resource of dependents does not exist", "resource", resource.String())
		}
	}
	return answered
}

// unrecord drops the recorded resources of owners. The caller must hold the lock.
func (r *Registry) unrecord(which func(ownerKey) bool) {
	for resource, owners := range r.recorded {
		maps.DeleteFunc(owners, func(o ownerKey, _ struct{}) bool { return which(o) })
		if len(owners) == 0 {
			delete(r.recorded, resource)
		}
	}
}
