package dependent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxVersions is how many versions of one object are remembered until the
// watch has shown them. A watch that is so far behind lets the oldest count as
// another's.
const maxVersions = 32

// own is what runs did to one object and no event has shown yet.
type own struct {
	id        types.NamespacedName
	versions  []ownVersion
	deletedBy []ownerKey
}

// ownVersion is a version that a run of the owner has written.
type ownVersion struct {
	owner   ownerKey
	uid     types.UID // the owner's
	version string
}

// remaining returns what of a change the owner has not done itself; false if
// there is nothing. It is good for nil.
func (w *own) remaining(key ownerKey, ch change) (change, bool) {
	if w == nil {
		return ch, true
	}
	if ch.is == "" {
		return ch, !slices.Contains(w.deletedBy, key)
	}
	for _, v := range w.versions {
		if v.owner != key {
			continue
		}
		if v.version == ch.is {
			return ch, false
		}
		// A list has shown several changes as one; the owner's is among them.
		if newer(ch.is, v.version) && (ch.was == "" || newer(v.version, ch.was)) {
			ch.was, ch.verdict = v.version, unclear
		}
	}
	return ch, ch.was != ""
}

// wroteFor is true if a run of the owner has written the object and not
// deleted it.
func (w *own) wroteFor(key ownerKey) bool {
	return !slices.Contains(w.deletedBy, key) &&
		slices.ContainsFunc(w.versions, func(v ownVersion) bool { return v.owner == key })
}

// forget drops the versions up to one that was handled.
func (w *own) forget(handled string) {
	w.versions = slices.DeleteFunc(w.versions, func(v ownVersion) bool { return reached(handled, v.version) })
}

func (w *own) leave(k *Kind) {
	w.versions = slices.DeleteFunc(w.versions, func(v ownVersion) bool { return v.owner.kind == k })
	w.deletedBy = slices.DeleteFunc(w.deletedBy, func(key ownerKey) bool { return key.kind == k })
}

// reached is true if what was seen up to position includes a version.
func reached(position, version string) bool {
	return position == version || newer(position, version)
}

// ownOf returns what runs did to an object; nil if no one is going to see it.
func (f *feed) ownOf(id types.NamespacedName, uid types.UID) *own {
	w := f.own[uid]
	if w == nil {
		if s := f.streamOf(id); s != nil && s.denied && f.records[id] == nil {
			return nil // no list comes that would clear it away
		}
		w = &own{id: id}
		f.own[uid] = w
	}
	return w
}

// expectVersion remembers a version that a run has written.
func (f *feed) expectVersion(id types.NamespacedName, uid types.UID, v ownVersion) {
	w := f.ownOf(id, uid)
	if w == nil {
		return
	}
	if len(w.versions) >= maxVersions {
		w.versions = slices.Delete(w.versions, 0, 1)
	}
	w.versions = append(w.versions, v)
}

// expectDeletion remembers that a run has deleted an object, unless that was
// seen already or no one is interested.
func (f *feed) expectDeletion(id types.NamespacedName, uid types.UID, key ownerKey) {
	rec := f.records[id]
	if (rec == nil || rec.uid != uid) && f.own[uid] == nil && f.complete() {
		return
	}
	if w := f.ownOf(id, uid); w != nil && !slices.Contains(w.deletedBy, key) {
		w.deletedBy = append(w.deletedBy, key)
	}
}

// tidy drops what is nothing any more.
func (f *feed) tidy(uid types.UID) {
	if w := f.own[uid]; w != nil && len(w.versions)+len(w.deletedBy) == 0 {
		delete(f.own, uid)
	}
}

// lost reports the objects that runs wrote and a list does not have, and drops
// what the list has settled.
func (f *feed) lost(s *stream, listed string) []notice {
	var notices []notice
	for uid, w := range f.own {
		if !s.covers(w.id) {
			continue
		}
		rec := f.records[w.id]
		absent := rec == nil || rec.uid != uid
		if absent {
			notices = append(notices, f.report(w.id, w.writersUpTo(listed), change{uid: uid, verdict: changed})...)
		}
		w.forget(listed)
		if absent && len(w.versions) == 0 {
			delete(f.own, uid)
		}
		f.tidy(uid)
	}
	return notices
}

// writersUpTo returns the owners whose runs wrote the object in versions up to
// one.
func (w *own) writersUpTo(position string) []ownership {
	var owners []ownership
	for _, v := range w.versions {
		if reached(position, v.version) {
			owners = add(owners, ownership{kind: v.owner.kind, owner: v.owner.name, uid: v.uid})
		}
	}
	return owners
}
