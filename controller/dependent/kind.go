package dependent

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy"
)

// OwnerKind is a kind of custom resources whose dependents are watched.
type OwnerKind struct {
	// GVK is the kind. Dependents may name it in any version.
	GVK schema.GroupVersionKind
	// Namespaced is true if the kind is namespaced.
	Namespaced bool
	// ClusterScoped also follows the owner annotations of cluster-scoped dependents.
	// Owner references are always followed.
	ClusterScoped bool
	// Status makes status writes count.
	Status bool
	// Blacklist has the kinds of dependents that are not watched.
	Blacklist []schema.GroupVersionKind
	// Changed is called when a dependent was changed or deleted, but not by the
	// owner's own run. uid is the UID in the owner mark; it is empty if only
	// annotations name the owner. Changed is called concurrently and must not
	// block. No run of the owner is in progress unless it began just now.
	// otherNamespace is true if the dependent is in another namespace than the owner: there,
	// clients that the owner's namespace does not trust may have set the mark.
	Changed func(owner types.NamespacedName, uid types.UID, why string, otherNamespace bool)
}

// Kind is a subscribed kind of owners.
type Kind struct {
	registry *Registry
	spec     OwnerKind
	closed   bool
	owners   map[types.NamespacedName]*owner
}

// owner is what is known of one custom resource. It is dropped when it is empty.
type owner struct {
	// objects counts, per feed, the records that name the owner.
	objects map[*feed]int
	// runs is the number of runs in progress.
	runs int
	// kept are changes seen during a run, to be judged at its end.
	kept []change
	// missed and missedElsewhere are true if there were too many changes to keep: in the
	// owner's namespace, or in other namespaces.
	missed, missedElsewhere bool
}

// change is what happened to one object.
type change struct {
	feed *feed
	id   types.NamespacedName
	uid  types.UID
	// mark is the owner's UID: the one in the object's owner mark or, if the object
	// was never seen, the UID of the owner whose run wrote it.
	mark types.UID
	// was and is are the resource versions; is is empty for a deletion.
	was, is string
	verdict verdict
	// part is the part of the object that has changed; empty if the metadata does not
	// tell.
	part string
}

// maxKept is how many changes of one owner's dependents are kept during a run,
// usually only until the answer shows that the run itself made them. Changes in
// other namespaces have a separate limit, so that they cannot displace the others.
const maxKept = 1000

func (k *Kind) owner(name types.NamespacedName) *owner {
	o := k.owners[name]
	if o == nil {
		o = &owner{objects: map[*feed]int{}}
		k.owners[name] = o
	}
	return o
}

// release drops the entry of an owner if it is empty.
func (k *Kind) release(name types.NamespacedName) {
	if o := k.owners[name]; o != nil && o.runs == 0 && len(o.objects) == 0 {
		delete(k.owners, name)
	}
}

// counts reports whether a verdict is a reason to run an owner of the kind.
func (k *Kind) counts(v verdict) bool {
	return v == changed || v == unclear || (v == statusWrite && k.spec.Status)
}

func (k *Kind) blacklisted(gvk schema.GroupVersionKind) bool {
	return slices.Contains(k.spec.Blacklist, gvk)
}

// Begin must be called when a run of an owner starts. uid is the owner's UID, so that
// the run's writes are not attributed to a later object with the same name.
func (k *Kind) Begin(name types.NamespacedName, uid types.UID) *Run {
	k.registry.mu.Lock()
	defer k.registry.mu.Unlock()
	if !k.closed {
		k.owner(name).runs++
	}
	return &Run{kind: k, owner: name, uid: uid, feeds: map[*feed]struct{}{}}
}

// owned returns, sorted, the resources of which an owner owns objects. While a watch
// does not work yet, recorded resources and those that runs wrote count as owned. The
// owner is identified by its name, so the result includes what an earlier object with
// the name has left. The caller must hold the lock.
func (k *Kind) owned(name types.NamespacedName) []schema.GroupVersionResource {
	var resources []schema.GroupVersionResource
	for _, f := range k.registry.feeds {
		if f.ownsFor(k, name) {
			resources = append(resources, f.resource)
		}
	}
	for resource, owners := range k.registry.recorded {
		if _, said := owners[ownerKey{k, name}]; said && !slices.Contains(resources, resource) {
			resources = append(resources, resource)
		}
	}
	return sorted(resources)
}

// Forget drops what Restore and runs have reported about an owner that is gone.
// Objects that still name it are followed until they are gone, too.
func (k *Kind) Forget(name types.NamespacedName) {
	k.registry.mu.Lock()
	defer k.registry.mu.Unlock()
	for _, f := range k.registry.feeds {
		delete(f.hints, ownerKey{k, name})
	}
	k.registry.unrecord(func(o ownerKey) bool { return o == ownerKey{k, name} })
}

// Close ends the subscription. A call of Changed in progress may still
// end after it.
func (k *Kind) Close() {
	k.registry.mu.Lock()
	defer k.registry.mu.Unlock()
	k.closed = true
	for _, f := range k.registry.feeds {
		f.leave(k)
	}
	k.registry.unrecord(func(o ownerKey) bool { return o.kind == k })
	clear(k.owners)
}

// watches reports whether the child's owner mark is followed, and its namespace and
// kind are watched.
func (k *Kind) watches(c proxy.Child) bool {
	if !k.spec.Namespaced || k.followsAnnotations(c.Namespace) {
		all := len(k.registry.opts.Namespaces) == 0 || c.Namespace == ""
		if all || slices.Contains(k.registry.opts.Namespaces, c.Namespace) {
			return !k.blacklisted(c.Resource.GroupVersion().WithKind(c.Kind))
		}
	}
	return false
}

func compareResources(a, b schema.GroupVersionResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource))
}
