package dependent

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object that an owner owns.
type Object struct {
	Resource schema.GroupVersionResource
	Kind     string
	types.NamespacedName
	UID types.UID
	// Version is the resource version that was last seen.
	Version string
	// Created is true if the object has the mark that a run of the owner created it.
	Created bool
}

// Objects returns, sorted, the objects of the owner with that UID, as far as they are
// watched. known is false while a watch has yet to show the owned objects, unless the
// API server has refused the watch.
func (k *Kind) Objects(name types.NamespacedName, uid types.UID) (objects []Object, known bool) {
	r := k.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	known = true
	for _, f := range r.feeds {
		if f.ownsFor(k, name) && !f.complete() && !slices.ContainsFunc(f.streams, func(s *stream) bool { return s.denied }) {
			known = false
		}
	}
	for _, owners := range r.recorded {
		if _, said := owners[ownerKey{k, name}]; said {
			known = false
		}
	}
	o := k.owners[name]
	if o == nil {
		return nil, known
	}
	for f := range o.objects {
		for id, rec := range f.records {
			mine := slices.ContainsFunc(rec.owners, func(o ownership) bool {
				return o.kind == k && o.owner == name && (o.uid == "" || o.uid == uid)
			})
			if mine && !rec.facts.terminating {
				objects = append(objects, Object{f.resource, f.kind, id, rec.uid, rec.version, rec.creator == uid})
			}
		}
	}
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(compareResources(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects, known
}
