package dependent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxVersions is how many versions of one object are remembered until the watch
// has shown them. If the watch is further behind, the oldest versions count as
// changes by others.
const maxVersions = 32

// own is what runs did to one object, as far as no event has shown it yet.
type own struct {
	id        types.NamespacedName
	versions  []ownVersion
	deletedBy []ownerKey
}

// ownVersion is a version that a run of the owner has written.
type ownVersion struct {
	owner   ownerKey
	uid     types.UID // of the owner
	version string
}

// remaining returns the part of a change that the owner's runs did not make
// themselves; false if there is none. w may be nil.
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
		// A list has shown several changes as one, among them the owner's.
		if newer(ch.is, v.version) && (ch.was == "" || newer(v.version, ch.was)) {
			ch.was, ch.verdict = v.version, unclear
		}
	}
	return ch, ch.was != ""
}

// wroteFor reports whether a run of the owner has written the object and not
// deleted it.
func (w *own) wroteFor(key ownerKey) bool {
	return !slices.Contains(w.deletedBy, key) &&
		slices.ContainsFunc(w.versions, func(v ownVersion) bool { return v.owner == key })
}

// forget drops the versions up to handled, which the watch or a list has shown.
func (w *own) forget(handled string) {
	w.versions = slices.DeleteFunc(w.versions, func(v ownVersion) bool { return reached(handled, v.version) })
}

func (w *own) leave(k *Kind) {
	w.versions = slices.DeleteFunc(w.versions, func(v ownVersion) bool { return v.owner.kind == k })
	w.deletedBy = slices.DeleteFunc(w.deletedBy, func(key ownerKey) bool { return key.kind == k })
}

// reached reports whether position is at or after a version.
func reached(position, version string) bool {
	return position == version || newer(position, version)
}

// ownOf returns the entry for what runs did to an object; nil if nothing would ever remove it.
func (f *feed) ownOf(id types.NamespacedName, uid types.UID) *own {
	w := f.own[uid]
	if w == nil {
		if s := f.streamOf(id); s != nil && s.denied && f.records[id] == nil {
			return nil // no list will come and remove the entry
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

// expectDeletion remembers that a run has deleted an object, unless the watch has
// shown that already or the object is not on record.
func (f *feed) expectDeletion(id types.NamespacedName, uid types.UID, key ownerKey) {
	rec := f.records[id]
	if (rec == nil || rec.uid != uid) && f.own[uid] == nil && f.complete() {
		return
	}
	if w := f.ownOf(id, uid); w != nil && !slices.Contains(w.deletedBy, key) {
		w.deletedBy = append(w.deletedBy, key)
	}
}

// tidy drops the entry of an object if it is empty.
func (f *feed) tidy(uid types.UID) {
	if w := f.own[uid]; w != nil && len(w.versions)+len(w.deletedBy) == 0 {
		delete(f.own, uid)
	}
}

// lost reports the objects that runs wrote but that are missing in a list with
// version listed. It drops the versions that the list includes.
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

// writersUpTo returns the owners whose runs wrote versions of the object up to
// position.
func (w *own) writersUpTo(position string) []ownership {
	var owners []ownership
	for _, v := range w.versions {
		if reached(position, v.version) {
			owners = add(owners, ownership{kind: v.owner.kind, owner: v.owner.name, uid: v.uid})
		}
	}
	return owners
}
