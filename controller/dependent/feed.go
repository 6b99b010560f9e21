package dependent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/rolewright/rolewright/internal/proxy"
)

// feed has what is known of the owned objects of one resource. The registry's lock
// guards it.
type feed struct {
	registry *Registry
	resource schema.GroupVersionResource
	// kind is the resource's kind; empty until it is looked up.
	kind string
	// streams follow the namespaces; empty until the kind is looked up.
	streams []*stream
	// kinds are the owner kinds whose dependents are looked for. The slice is
	// replaced, never modified, so that a list can use it without the lock.
	kinds []*Kind
	// wanted is closed, and replaced, when there is a reason to list at once.
	wanted chan struct{}

	records map[types.NamespacedName]*record
	// own has, by the objects' UIDs, what runs did and no event has shown yet.
	own map[types.UID]*own
	// hints are owners that are reported to own objects here. They are dropped
	// when a list has shown what they own.
	hints map[ownerKey]struct{}
	// runs are the runs in progress that write objects of the resource.
	runs map[*Run]struct{}
	// named follow objects by name. versions are the versions of all objects of the
	// resource; nil if named is empty.
	named    []*Named
	versions map[types.NamespacedName]Version
	// refused is why objects cannot be watched, as it was last reported to named.
	refused string
	// used is true if the feed was used since retire last checked it.
	used bool
}

type ownerKey struct {
	kind *Kind
	name types.NamespacedName
}

// record is what is kept of an owned object.
type record struct {
	uid     types.UID
	version string
	// first is the version at which the record began: later changes were seen
	// one by one, or judged at a list.
	first  string
	owners []ownership
	// creator is the UID of the owner whose run created the object, by the object's creation mark; empty for none.
	creator types.UID
	facts   facts
}

func newFeed(r *Registry, resource schema.GroupVersionResource) *feed {
	return &feed{
		registry: r, resource: resource, used: true, wanted: make(chan struct{}),
		records: map[types.NamespacedName]*record{},
		own:     map[types.UID]*own{},
		hints:   map[ownerKey]struct{}{},
		runs:    map[*Run]struct{}{},
	}
}

// has reports whether dependents of owner kind k are looked for.
func (f *feed) has(k *Kind) bool { return slices.Contains(f.kinds, k) }

// join makes the feed look for dependents of owner kind k. It returns false if k
// blacklists the resource's kind.
func (f *feed) join(k *Kind) bool {
	f.used = true
	if f.has(k) {
		return true
	}
	if gvk := f.resource.GroupVersion().WithKind(f.kind); k.blacklisted(gvk) {
		logUnwatched(f.registry.opts.Log, k, gvk)
		return false
	}
	f.kinds = append(slices.Clone(f.kinds), k)
	f.relist() // no stream has listed what objects of k own
	return true
}

// leave removes an owner kind from the feed.
func (f *feed) leave(k *Kind) {
	f.kinds = slices.DeleteFunc(slices.Clone(f.kinds), func(other *Kind) bool { return other == k })
	for id, rec := range f.records {
		rec.owners = slices.DeleteFunc(rec.owners, func(o ownership) bool { return o.kind == k })
		if len(rec.owners) == 0 {
			delete(f.records, id)
		}
	}
	maps.DeleteFunc(f.hints, func(key ownerKey, _ struct{}) bool { return key.kind == k })
	for uid, w := range f.own {
		w.leave(k)
		f.tidy(uid)
	}
	maps.DeleteFunc(f.runs, func(r *Run, _ struct{}) bool { return r.kind == k })
}

func (f *feed) hint(k *Kind, name types.NamespacedName) {
	if f.join(k) && !f.complete() {
		f.hints[ownerKey{k, name}] = struct{}{}
	}
}

// complete reports whether all owned objects are known and followed.
func (f *feed) complete() bool {
	return len(f.streams) > 0 && !slices.ContainsFunc(f.streams, func(s *stream) bool { return !s.working })
}

// needed reports whether the watch is of use.
func (f *feed) needed() bool {
	return len(f.named) > 0 || len(f.kinds) > 0 && len(f.records)+len(f.hints)+len(f.runs) > 0
}

// ownsFor reports whether the owner owns, or is reported to own, objects of the resource.
func (f *feed) ownsFor(k *Kind, name types.NamespacedName) bool {
	if o := k.owners[name]; o != nil && o.objects[f] > 0 {
		return true
	}
	if _, ok := f.hints[ownerKey{k, name}]; ok {
		return true
	}
	for _, w := range f.own {
		if w.wroteFor(ownerKey{k, name}) {
			return true
		}
	}
	return false
}

// put replaces the record of an object; nil, or a record without owners, removes it.
func (f *feed) put(id types.NamespacedName, next *record) {
	f.used = true
	last := f.records[id]
	delete(f.records, id)
	if next != nil && len(next.owners) > 0 {
		f.records[id] = next
		for _, o := range next.owners {
			o.kind.owner(o.owner).objects[f]++
		}
	}
	if last == nil {
		return
	}
	for _, o := range last.owners {
		known := o.kind.owner(o.owner)
		if known.objects[f]--; known.objects[f] <= 0 {
			delete(known.objects, f)
		}
		o.kind.release(o.owner)
	}
}

// newRecord returns the record of an object with these owners.
func newRecord(o metav1.Object, owners []ownership) *record {
	return &record{
		uid: o.GetUID(), version: o.GetResourceVersion(), first: o.GetResourceVersion(),
		owners: owners, creator: proxy.Creator(o), facts: factsOf(o),
	}
}

func idOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// updated handles an object that was created or changed.
func (f *feed) updated(o metav1.Object) []notice {
	id, uid := idOf(o), o.GetUID()
	last := f.records[id]
	owners := ownersOf(o, f.kinds)
	var notices []notice
	if last != nil || len(owners) > 0 {
		next := newRecord(o, owners)
		notices = f.replace(id, last, next)
	}
	if w := f.own[uid]; w != nil {
		w.forget(o.GetResourceVersion())
		f.tidy(uid)
	}
	return notices
}

// replace judges the change from the last record to the next one, and replaces it.
func (f *feed) replace(id types.NamespacedName, last, next *record) []notice {
	var notices []notice
	if last != nil && last.uid != next.uid {
		notices, last = f.deleted(id), nil
	}
	if last != nil {
		next.first = last.first
	}
	switch {
	case next.facts.terminating: // the deletion counts when the object is gone
	case last == nil: // created, or newly owned, which is not a change
		notices = append(notices, f.sinceWritten(id, next)...)
	case last.version != next.version:
		notices = f.report(id, last.owners, change{
			uid: last.uid, was: last.version, is: next.version, verdict: judge(last.facts, next.facts), part: part(last.facts, next.facts),
		})
	}
	f.put(id, next)
	return notices
}

// sinceWritten judges an object that is seen for the first time, in a version after
// one that a run wrote.
func (f *feed) sinceWritten(id types.NamespacedName, next *record) []notice {
	w := f.own[next.uid]
	if w == nil {
		return nil
	}
	var owners []ownership
	for _, o := range next.owners {
		if w.wroteFor(ownerKey{o.kind, o.owner}) {
			owners = append(owners, o)
		}
	}
	return f.report(id, owners, change{uid: next.uid, is: next.version, verdict: unclear})
}

// before returns the change between a version that a run wrote and the first version
// of the object that was seen; false if that is not later.
func (f *feed) before(id types.NamespacedName, uid types.UID, version string) (change, bool) {
	ch := change{feed: f, id: id, uid: uid, was: version, verdict: unclear}
	rec := f.records[id]
	switch {
	case rec != nil && rec.uid == uid && newer(rec.first, version) && !rec.facts.terminating:
		ch.is = rec.first
		return ch, true
	case (rec == nil || rec.uid != uid) && f.listedAfter(id, version):
		ch.verdict = changed
		return ch, true
	default:
		return ch, false
	}
}

// deleted handles an object that is gone, or no longer has an owner.
func (f *feed) deleted(id types.NamespacedName) []notice {
	last := f.records[id]
	if last == nil {
		return nil
	}
	notices := f.report(id, last.owners, change{uid: last.uid, was: last.version, verdict: changed})
	f.put(id, nil)
	delete(f.own, last.uid)
	return notices
}

// report decides for each owner what a change means. It returns the notices to
// deliver at once.
func (f *feed) report(id types.NamespacedName, owners []ownership, ch change) []notice {
	ch.feed, ch.id = f, id
	var notices, unsure []notice
	// Owners may have written different versions.
	asked := map[string][]notice{}
	for _, o := range owners {
		own, ok := f.own[ch.uid].remaining(ownerKey{o.kind, o.owner}, ch)
		if !ok || !o.kind.counts(own.verdict) {
			continue
		}
		own.mark = o.uid
		if known := o.kind.owner(o.owner); known.runs > 0 {
			known.keep(own, o.owner)
			continue
		}
		n := o.kind.notice(o.owner, own)
		if own.verdict == unclear {
			asked[own.was] = append(asked[own.was], n)
			continue
		}
		notices = append(notices, n)
	}
	for was, ns := range asked {
		q := ch
		q.was = was
		unsure = append(unsure, f.registry.ask(q.question(ns...))...)
	}
	return append(notices, unsure...)
}

func (k *Kind) notice(name types.NamespacedName, ch change) notice {
	what := "was changed"
	switch {
	case ch.is == "":
		what = "was deleted"
	case ch.verdict == changed && ch.part != "":
		what += ": its " + ch.part
	}
	object := ch.id.Name
	if ch.id.Namespace != "" {
		object = ch.id.String()
	}
	why := fmt.Sprintf("%s %s %s", ch.feed.resource.GroupResource(), object, what)
	return notice{kind: k, owner: name, uid: ch.mark, why: why, otherNamespace: ch.inOtherNamespace(name)}
}

// inOtherNamespace reports whether the object is in another namespace than its owner, where clients may write
// that the owner's namespace does not trust. It is false if the object or the owner is cluster-scoped.
func (ch change) inOtherNamespace(owner types.NamespacedName) bool {
	return ch.id.Namespace != "" && owner.Namespace != "" && ch.id.Namespace != owner.Namespace
}

func (ch change) question(notices ...notice) question {
	return question{resource: ch.feed.resource, id: ch.id, uid: ch.uid, was: ch.was, is: ch.is, notices: notices}
}

// newer reports whether resource version a is later than b. A version that is not a
// number, as some other API servers have, is not later than any.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

func logUnwatched(log logr.Logger, k *Kind, gvk schema.GroupVersionKind) {
	log.V(1).Info("Resource will not be watched/cached.", "GVK", gvk.String(), "owner", k.spec.GVK.String())
}
