package dependent

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy"
)

// Version is what is known of one version of an object, with or without an owner.
type Version struct {
	UID             types.UID
	ResourceVersion string
	// Generation is 0 for kinds without generations.
	Generation int64
	Labels     map[string]string
	// owners are the owner references; annotations are the owner annotations.
	owners      []ownerReference
	annotations map[string]string
}

type ownerReference struct {
	uid              types.UID
	apiVersion, kind string
}

// OwnedBy reports whether the object has the owner's mark.
func (v Version) OwnedBy(owner proxy.Owner) bool {
	named := func(ref ownerReference) bool { return ref.uid == owner.UID }
	return slices.ContainsFunc(v.owners, named) || proxy.AnnotatedBy(v.annotations, owner)
}

// OwnedByAny reports whether the object has the mark of any owner of a kind.
func (v Version) OwnedByAny(kind schema.GroupKind) bool {
	named := func(ref ownerReference) bool {
		return schema.FromAPIVersionAndKind(ref.apiVersion, ref.kind).GroupKind() == kind
	}
	return slices.ContainsFunc(v.owners, named) || v.annotations[ownerTypeAnnotation] == kind.String()
}

// VersionOf returns the version of an object, by its metadata.
func VersionOf(o metav1.Object) Version {
	v := Version{UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(), Labels: o.GetLabels()}
	for _, ref := range o.GetOwnerReferences() {
		v.owners = append(v.owners, ownerReference{ref.UID, ref.APIVersion, ref.Kind})
	}
	if owner, has := o.GetAnnotations()[ownerAnnotation]; has {
		v.annotations = map[string]string{ownerAnnotation: owner, ownerTypeAnnotation: o.GetAnnotations()[ownerTypeAnnotation]}
	}
	return v
}

// NamedOptions are the callbacks of a [Named]. They are called concurrently and must not
// block.
type NamedOptions struct {
	// Changed is called when an object was created, changed or deleted.
	Changed func(id types.NamespacedName, v Version, exists bool)
	// Known is called once all objects are known, and again when a namespace that could not be listed before is known.
	Known func()
	// Refused is called when the result of [Named.Refused] changes; it may be nil.
	Refused func()
}

// Named knows all objects of a resource by name. It shares the resource's watch with
// all other users.
type Named struct {
	NamedOptions
	feed *feed
	// known is true once all objects were listed. It stays true: while a watch is broken, the last
	// known versions count. If at least one namespace is known, known does not wait for namespaces
	// that may not be listed.
	known bool
}

// Named begins to follow the objects of a resource by name.
func (r *Registry) Named(resource schema.GroupVersionResource, o NamedOptions) *Named {
	r.mu.Lock()
	f := r.feedOf(resource)
	n := &Named{NamedOptions: o, feed: f}
	f.used = true
	if f.versions == nil {
		f.versions = map[types.NamespacedName]Version{}
		f.relist()
	}
	f.named = append(f.named, n)
	notices := f.nowKnown()
	r.mu.Unlock()
	deliver(notices)
	return n
}

// Version returns the current version of an object. known is false until all objects of its namespace are known.
func (n *Named) Version(id types.NamespacedName) (v Version, exists, known bool) {
	n.feed.registry.mu.Lock()
	defer n.feed.registry.mu.Unlock()
	v, exists = n.feed.versions[id]
	return v, exists, n.knows(id)
}

// Knows reports whether the objects in a namespace are known.
func (n *Named) Knows(namespace string) bool {
	n.feed.registry.mu.Lock()
	defer n.feed.registry.mu.Unlock()
	return n.knows(types.NamespacedName{Namespace: namespace})
}

func (n *Named) knows(id types.NamespacedName) bool {
	s := n.feed.streamOf(id)
	return n.known && (s == nil || s.named)
}

// All returns the current versions of all objects. known is false until all are known.
func (n *Named) All() (all map[types.NamespacedName]Version, known bool) {
	n.feed.registry.mu.Lock()
	defer n.feed.registry.mu.Unlock()
	return maps.Clone(n.feed.versions), n.known
}

// Refused returns why the objects cannot be watched at the moment: the operator lacks the
// permission, the kind is gone, or the API server has failed since before they were listed.
// It is empty if no such reason is known.
func (n *Named) Refused() string {
	n.feed.registry.mu.Lock()
	defer n.feed.registry.mu.Unlock()
	return n.feed.refused
}

// refusals updates why objects cannot be watched. If that has changed, it returns notices for
// f.named.
func (f *feed) refusals() []notice {
	var all []string
	for _, s := range f.streams {
		if s.refused != "" && !slices.Contains(all, s.refused) {
			all = append(all, s.refused)
		}
	}
	is := strings.Join(all, "; ")
	if is == f.refused {
		return nil
	}
	f.refused = is
	var notices []notice
	for _, n := range f.named {
		if n.NamedOptions.Refused != nil {
			notices = append(notices, notice{tell: n.NamedOptions.Refused})
		}
	}
	return notices
}

// In returns the current versions of the objects in a namespace.
func (n *Named) In(namespace string) map[types.NamespacedName]Version {
	n.feed.registry.mu.Lock()
	defer n.feed.registry.mu.Unlock()
	all := map[types.NamespacedName]Version{}
	for id, v := range n.feed.versions {
		if id.Namespace == namespace {
			all[id] = v
		}
	}
	return all
}

// Close ends the following. A callback in progress may still end after it.
func (n *Named) Close() {
	f := n.feed
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	f.named = slices.DeleteFunc(f.named, func(other *Named) bool { return other == n })
	if len(f.named) == 0 {
		f.versions = nil
		for _, s := range f.streams {
			s.named = false
		}
	}
}

// relist makes all streams list at once.
func (f *feed) relist() {
	for _, s := range f.streams {
		s.working = false
	}
	close(f.wanted)
	f.wanted = make(chan struct{})
}

// nowKnown returns the notices for those in f.named whose objects are all known by now.
func (f *feed) nowKnown() []notice {
	if !slices.ContainsFunc(f.streams, func(s *stream) bool { return s.named }) ||
		slices.ContainsFunc(f.streams, func(s *stream) bool { return !s.named && (s.refused == "" || !s.failing.IsZero()) }) {
		return nil
	}
	var notices []notice
	for _, n := range f.named {
		if !n.known {
			n.known = true
			notices = append(notices, notice{tell: n.Known})
		}
	}
	return notices
}

// putVersion notes the version of an object; nil if the object is gone.
func (f *feed) putVersion(id types.NamespacedName, v *Version) []notice {
	was, had := f.versions[id]
	switch {
	case f.versions == nil, v == nil && !had:
		return nil
	case v == nil:
		delete(f.versions, id)
	case had && was.UID == v.UID && was.ResourceVersion == v.ResourceVersion:
		return nil
	default:
		f.versions[id] = *v
	}
	var notices []notice
	for _, n := range f.named {
		notices = append(notices, notice{tell: func() {
			if v == nil {
				n.Changed(id, Version{}, false)
			} else {
				n.Changed(id, *v, true)
			}
		}})
	}
	return notices
}

// mergeVersions takes over what a list has found; found is nil if names are not followed.
func (f *feed) mergeVersions(s *stream, found map[types.NamespacedName]Version) []notice {
	if f.versions == nil || found == nil {
		return nil
	}
	var notices []notice
	for id := range f.versions {
		if _, there := found[id]; !there && s.covers(id) {
			notices = append(notices, f.putVersion(id, nil)...)
		}
	}
	for id, v := range found {
		notices = append(notices, f.putVersion(id, &v)...)
	}
	if !s.named {
		s.named, notices = true, nil // after the first list, Known is enough: no notices for single objects
		for _, n := range f.named {
			if n.known {
				notices = append(notices, notice{tell: n.Known})
			}
		}
	}
	return append(notices, f.nowKnown()...)
}
