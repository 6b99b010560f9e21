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
// exists, and forgotten if it does not. The API server is asked about one resource
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
	for {
		var retry <-chan time.Time
		if r.restoreAll(ctx) {
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

// restoreAll looks up each recorded resource once. It returns false if the API
// server could not be asked about all of them.
func (r *Registry) restoreAll(ctx context.Context) bool {
	r.mu.Lock()
	resources := slices.SortedFunc(maps.Keys(r.recorded), compareResources) // so that each group version's document is read once
	r.mu.Unlock()
	answered := true
	silent := map[schema.GroupVersion]bool{} // those without an answer in this round
	for _, resource := range resources {
		if silent[resource.GroupVersion()] {
			continue
		}
		_, _, err := r.opts.Lookup(ctx, resource)
		if ctx.Err() != nil {
			return false
		}
		if err != nil && !errors.Is(err, discovery.ErrNotFound) {
			answered = false
			silent[resource.GroupVersion()] = true
			continue
		}
		r.mu.Lock()
		owners := r.recorded[resource]
		delete(r.recorded, resource)
		for owner := range owners {
			if err == nil {
				r.feedOf(resource).hint(owner.kind, owner.name)
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
