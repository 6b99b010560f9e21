package dependent

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy"
)

// Run is one run of an owner. While it is in progress, changes of the owner's
// dependents are only kept, not judged: the watch may show a write before the API
// proxy has its answer.
//
// The caller must report a write with the version that it made. A write that changed
// nothing must not be reported: reporting the version that was there before may hide
// a change by another client.
type Run struct {
	kind  *Kind
	owner types.NamespacedName
	uid   types.UID
	// feeds are the feeds that stay in use while the run is in progress.
	feeds map[*feed]struct{}
	ended bool
}

var _ proxy.Tracker = (*Run)(nil)

// Expect begins to watch the child's resource.
func (r *Run) Expect(c proxy.Child) {
	registry := r.kind.registry
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if r.over() {
		return
	}
	if !r.kind.watches(c) {
		logUnwatched(registry.opts.Log, r.kind, c.Resource.GroupVersion().WithKind(c.Kind))
		return
	}
	f := registry.feedOf(c.Resource)
	if f.join(r.kind) {
		f.runs[r] = struct{}{}
		r.feeds[f] = struct{}{}
	}
}

// Found begins to watch the resource of a child that the run has only read.
func (r *Run) Found(c proxy.Child) {
	registry := r.kind.registry
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if !r.over() && r.kind.watches(c) {
		registry.feedOf(c.Resource).hint(r.kind, r.owner)
	}
}

// Wrote marks the version of the child as the run's own.
func (r *Run) Wrote(c proxy.Child) {
	registry := r.kind.registry
	registry.mu.Lock()
	defer registry.mu.Unlock()
	f := registry.feeds[c.Resource.GroupResource()]
	if r.over() || f == nil || !f.has(r.kind) || !r.kind.watches(c) || c.Name == "" || c.UID == "" || c.ResourceVersion == "" {
		return
	}
	id := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if c.Subresource != "" && !f.owns(id, c.UID, r) {
		return // a write of a subresource does not tell whose object it is
	}
	if !f.complete() {
		f.hints[ownerKey{r.kind, r.owner}] = struct{}{}
	}
	if f.seen(id, c.ResourceVersion) {
		r.recognise(f, id, c)
		return
	}
	f.expectVersion(id, c.UID, ownVersion{ownerKey{r.kind, r.owner}, r.uid, c.ResourceVersion})
}

// owns reports whether the object is known to belong to the run's owner.
func (f *feed) owns(id types.NamespacedName, uid types.UID, r *Run) bool {
	rec := f.records[id]
	return rec != nil && rec.uid == uid && slices.ContainsFunc(rec.owners, func(o ownership) bool {
		return o.kind == r.kind && o.owner == r.owner
	})
}

// recognise handles a version that the watch showed before the answer came. It drops
// the change from those that are kept. If the object was first seen in a later version,
// it keeps the change from the run's version to that one.
func (r *Run) recognise(f *feed, id types.NamespacedName, c proxy.Child) {
	o := r.kind.owner(r.owner)
	o.kept = slices.DeleteFunc(o.kept, func(ch change) bool {
		return ch.feed == f && ch.uid == c.UID && ch.is == c.ResourceVersion
	})
	if ch, ok := f.before(id, c.UID, c.ResourceVersion); ok {
		ch.mark = r.uid
		o.keep(ch, r.owner)
	}
}

// Deleted marks the deletion of the child as the run's own, whether the watch has
// shown it already or shows it later.
func (r *Run) Deleted(c proxy.Child) {
	registry := r.kind.registry
	registry.mu.Lock()
	defer registry.mu.Unlock()
	f := registry.feeds[c.Resource.GroupResource()]
	if r.over() || f == nil || !f.has(r.kind) || c.UID == "" || !r.kind.watches(c) {
		return
	}
	o := r.kind.owner(r.owner)
	o.kept = slices.DeleteFunc(o.kept, func(ch change) bool {
		return ch.feed == f && ch.uid == c.UID && ch.is == ""
	})
	f.expectDeletion(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, c.UID, ownerKey{r.kind, r.owner})
}

func (r *Run) over() bool { return r.ended || r.kind.closed }

// End must be called when the run and all its requests have ended. It judges what
// others did meanwhile, and returns the same as [Kind.owned]. Further calls only
// return that.
func (r *Run) End() []schema.GroupVersionResource {
	registry := r.kind.registry
	registry.mu.Lock()
	var notices []notice
	if !r.over() {
		notices = r.conclude()
	}
	r.ended = true
	for f := range r.feeds {
		delete(f.runs, r)
		f.used = true
	}
	owned := r.kind.owned(r.owner)
	registry.mu.Unlock()
	deliver(notices)
	return owned
}

// conclude judges the changes that were kept during the owner's runs, if none of them is left.
func (r *Run) conclude() []notice {
	o := r.kind.owner(r.owner)
	if o.runs--; o.runs > 0 {
		return nil
	}
	kept, missed, missedElsewhere := o.kept, o.missed, o.missedElsewhere
	o.kept, o.missed, o.missedElsewhere = nil, false, false
	r.kind.release(r.owner)
	var notices []notice
	for otherNamespace, so := range map[bool]bool{false: missed, true: missedElsewhere} {
		if so {
			notices = append(notices, notice{kind: r.kind, owner: r.owner, why: "many dependents were changed", otherNamespace: otherNamespace})
		}
	}
	type from struct {
		mark           types.UID
		otherNamespace bool
	}
	of := func(ch change) from { return from{ch.mark, ch.inOtherNamespace(r.owner)} }
	told := map[from]bool{} // one notice of each sort is enough
	for _, ch := range kept {
		if ch.verdict != unclear && !told[of(ch)] {
			told[of(ch)] = true
			notices = append(notices, r.kind.notice(r.owner, ch))
		}
	}
	for _, ch := range kept {
		if ch.verdict == unclear && !told[of(ch)] {
			notices = append(notices, r.kind.registry.ask(ch.question(r.kind.notice(r.owner, ch)))...)
		}
	}
	return notices
}

// keep remembers a change until the end of the owner's run; name is the owner's name. If there are too many changes in the
// owner's namespace, or in others, it drops them all, and notes only that there were many.
func (o *owner) keep(ch change, name types.NamespacedName) {
	otherNamespace, missed, n := ch.inOtherNamespace(name), &o.missed, 0
	if otherNamespace {
		missed = &o.missedElsewhere
	}
	if *missed {
		return
	}
	alike := func(other change) bool { return other.inOtherNamespace(name) == otherNamespace }
	for _, other := range o.kept {
		if alike(other) {
			n++
		}
	}
	if n < maxKept {
		o.kept = append(o.kept, ch)
		return
	}
	o.kept, *missed = slices.DeleteFunc(o.kept, alike), true
}
