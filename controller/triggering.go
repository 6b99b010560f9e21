package controller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/watches"
)

// trigger is a trigger of a watch. The lock of referring guards it.
type trigger struct {
	watches.Trigger
	kind     *referredKind
	selector labels.Selector
	// owners is the watched kind: what its objects own is a dependent, not a member.
	// namespaced is true if the watched kind is namespaced.
	owners     schema.GroupKind
	namespaced bool
	// namespaces restricts the namespaces of members; nil for no restriction. namespace is the
	// kind of namespaces, nil without restriction; matching has the namespaces that match.
	namespaces labels.Selector
	namespace  *referredKind
	matching   map[string]bool

	// members are the objects that start runs.
	members map[types.NamespacedName]member
	// digests has the digests of the members, by what they start; total is the digest of all members.
	digests map[started]digest
	total   digest
	// changes are the last [maxChanges] changes, oldest first.
	changes []triggerChange
}

// started identifies the objects that a member starts: those with the name in the namespace. An
// empty name or namespace means any.
type started types.NamespacedName

func (s started) has(key types.NamespacedName) bool {
	return (s.Namespace == "" || s.Namespace == key.Namespace) && (s.Name == "" || s.Name == key.Name)
}

// member is an object that starts runs. version identifies its version; value is the input
// from it.
type member struct {
	starts         started
	uid            types.UID
	version, value string
}

// digest is a digest of members. The zero value is the digest of no members.
type digest [16]byte

// toggle adds a member, or removes it if it was added before. The order of members does not matter.
func (d *digest) toggle(id types.NamespacedName, value string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, value))
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d *digest) String() string { return hex.EncodeToString(d[:]) }

// triggerChange is a change of the members that start some objects, with their digest before it.
// says describes the change; it is empty if the change does not start runs.
type triggerChange struct {
	of     started
	before digest
	says   string
}

// maxChanges is the largest number of changes that a trigger remembers.
const maxChanges = 1000

// triggered is what is known of a trigger for one object.
type triggered struct {
	*trigger
	// value is the input from the trigger; total is the digest of all its members.
	value string
	total digest
}

func (is triggered) part(value string) fingerprint.Part {
	return fingerprint.Part{Group: fingerprint.OfTriggers, Name: is.name(), Value: value}
}

// newTrigger returns a trigger of a watch. If a selector is invalid, nothing matches it.
func newTrigger(w watches.Trigger, kind *referredKind, owners schema.GroupKind, namespaced bool) *trigger {
	selector, err := metav1.LabelSelectorAsSelector(&w.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	t := &trigger{
		Trigger: w, kind: kind, selector: selector, owners: owners, namespaced: namespaced,
		matching: map[string]bool{}, members: map[types.NamespacedName]member{}, digests: map[started]digest{},
	}
	if w.OfNamespaces() {
		if t.namespaces, err = metav1.LabelSelectorAsSelector(&w.NamespaceSelector); err != nil {
			t.namespaces = labels.Nothing()
		}
	}
	return t
}

// name returns the trigger's name in inputs and messages.
func (t *trigger) name() string {
	with := t.selector.String()
	if t.NameFromLabel != "" {
		with = strings.TrimPrefix(with+","+t.NameFromLabel, ",")
	}
	name := t.kind.label + " with " + cmp.Or(with, "any labels")
	if t.namespaces != nil {
		name += " in namespaces with " + t.namespaces.String()
	}
	for i, on := range t.On {
		name += []string{" on ", " or "}[min(i, 1)] + string(on)
	}
	return name
}

// valueOf returns the input from a member: its version, or only its UID if updates do not start runs.
func (t *trigger) valueOf(v dependent.Version) string {
	if t.Counts(watches.Update) {
		return versionName(v)
	}
	return string(v.UID)
}

// perNamespace reports whether a member starts only the objects in one namespace.
func (t *trigger) perNamespace() bool {
	return t.MapTo != watches.MapToAll && t.namespaced && (t.kind.namespaced || t.ofNamespaces())
}

func (t *trigger) ofNamespaces() bool { return t.GVK.GroupKind() == namespaceKind().GroupKind() }

// startedBy returns what an object with version v starts; ok is false if it is not a member.
func (t *trigger) startedBy(id types.NamespacedName, v dependent.Version) (s started, ok bool) {
	name := v.Labels[t.NameFromLabel]
	if t.namespaces != nil && !t.matching[id.Namespace] || !t.selector.Matches(labels.Set(v.Labels)) || t.NameFromLabel != "" && name == "" || v.OwnedByAny(t.owners) {
		return s, false
	}
	s.Name = name
	if t.perNamespace() {
		s.Namespace = id.Namespace
		if t.ofNamespaces() {
			s.Namespace = id.Name
		}
	}
	return s, true
}

// starting returns which members start the watched object with this key: those with the same [started].
func (t *trigger) starting(key types.NamespacedName) (s started) {
	if t.NameFromLabel != "" {
		s.Name = key.Name
	}
	if t.perNamespace() {
		s.Namespace = key.Namespace
	}
	return s
}

// put notes the current version of an object, and returns what the change starts. why says what
// has changed if that is not the object itself; else it is empty.
func (t *trigger) put(id types.NamespacedName, v dependent.Version, exists bool, why string) []started {
	var is member
	matches := false
	if exists {
		is.starts, matches = t.startedBy(id, v)
		is.uid, is.version, is.value = v.UID, versionName(v), t.valueOf(v)
	}
	was, matched := t.members[id]
	if matches == matched && (!matches || is == was) {
		return nil
	}
	says := cmp.Or(why, target{t.kind, id}.String()+" was changed")
	switch {
	case !exists:
		says = target{t.kind, id}.String() + " was deleted"
	case why == "" && !matched:
		says = target{t.kind, id}.String() + " is new" // it was created, or got the labels
	}
	var starts []started
	note := func(of started, all ...watches.Change) {
		ch := triggerChange{of: of, before: t.digests[of]}
		if slices.ContainsFunc(all, t.Counts) {
			ch.says, starts = says, append(starts, of)
		}
		if t.scanned() { // before that, it is not known when a change happened
			t.changes = append(t.changes, ch)
		}
	}
	same := matched && matches && is.starts == was.starts
	switch {
	case same && is.value == was.value:
	case same && is.uid == was.uid:
		note(is.starts, watches.Update)
	case same:
		note(is.starts, watches.Create, watches.Delete)
	default:
		if matched {
			note(was.starts, watches.Delete)
		}
		if matches {
			note(is.starts, watches.Create)
		}
	}
	t.changes = slices.Delete(t.changes, 0, max(len(t.changes)-maxChanges, 0))
	delete(t.members, id)
	if matched {
		t.toggle(was.starts, id, was.value)
	}
	if matches {
		t.members[id] = is
		t.toggle(is.starts, id, is.value)
	}
	return starts
}

func (t *trigger) toggle(s started, id types.NamespacedName, value string) {
	t.total.toggle(id, value)
	d := t.digests[s]
	if d.toggle(id, value); d == (digest{}) {
		delete(t.digests, s)
		return
	}
	t.digests[s] = d
}

// digestFor returns the digest that counts as the input of an object; packed are the inputs of its
// last run. If only changes that start no runs have happened since, it is the digest of the last
// run. Changes that were not seen may have been of any sort.
func (t *trigger) digestFor(key types.NamespacedName, packed string) digest {
	is := t.digests[t.starting(key)]
	if t.Counts(watches.Create) && t.Counts(watches.Delete) {
		return is // each change of the digest starts runs
	}
	had := fingerprint.Had(packed)
	value := func(d digest) fingerprint.Part { return triggered{trigger: t}.part(d.String()) }
	if had(value(is)) {
		return is
	}
	for _, ch := range slices.Backward(t.changes) {
		switch {
		case ch.of != t.starting(key):
		case ch.says != "":
			return is
		case had(value(ch.before)):
			return ch.before
		}
	}
	return is
}

// known adds all objects of a kind to the triggers, if they are known, and queues all watched objects.
func (f *referring) known(k *referredKind) {
	f.mu.Lock()
	if k.followed != nil {
		all, known := k.followed.All()
		if known && k == f.namespace {
			for id, v := range all {
				f.matches(id.Name, v, true)
			}
		}
		for _, t := range f.triggers {
			for id, v := range all {
				if known && t.kind == k {
					t.put(id, v, true, "")
				}
			}
		}
		k.scanned = k.scanned || known
	}
	f.mu.Unlock()
	f.lookAll()
}

// matches notes the labels of a namespace. If the namespace begins or ceases to match a trigger, it
// returns what the objects in it start. The caller must hold the lock.
func (f *referring) matches(namespace string, v dependent.Version, exists bool) (starts []started) {
	for _, t := range f.triggers {
		if t.namespaces == nil {
			continue
		}
		matches := exists && t.namespaces.Matches(labels.Set(v.Labels))
		if matches == t.matching[namespace] {
			continue
		}
		t.matching[namespace] = matches
		if !matches {
			delete(t.matching, namespace)
		}
		if t.kind.followed == nil {
			continue
		}
		for id, v := range t.kind.followed.In(namespace) {
			starts = append(starts, t.put(id, v, true, f.namespace.label+" "+namespace+" was changed")...)
		}
	}
	return starts
}

// triggered returns what is known of the triggers for an object; packed are the inputs of its last
// run. If known is false, something is not known yet; the object is queued when it is.
func (f *referring) triggered(key types.NamespacedName, packed string) (all []triggered, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known = true
	for _, t := range f.triggers {
		d := t.digestFor(key, packed)
		all = append(all, triggered{t, d.String(), t.total})
		known = known && t.kind.settled() && (t.namespace == nil || t.namespace.settled()) && t.knows(key)
	}
	return all, known
}

// knows reports whether the members in the object's namespace are known, if the trigger works per namespace. So
// a namespace that may not be listed does not delay objects in other namespaces. The caller must hold the lock.
func (t *trigger) knows(key types.NamespacedName) bool {
	return !t.perNamespace() || t.kind.followed == nil || t.kind.followed.Knows(key.Namespace)
}

// scanned reports whether all members were seen. The caller must hold the lock.
func (t *trigger) scanned() bool {
	return t.kind.scanned && (t.namespace == nil || t.namespace.scanned)
}

// settled reports whether all objects of the kind are known. The caller must hold the lock.
func (k *referredKind) settled() bool { return k.scanned || k.followed == nil && k.absent }

// membersOf returns the members that start an object. The caller must hold the lock.
func (t *trigger) membersOf(key types.NamespacedName) []referred {
	var all []referred
	for id, m := range t.members {
		if m.starts == t.starting(key) {
			all = append(all, referred{target: target{t.kind, id}, version: m.version, value: m.value})
		}
	}
	return all
}

// memberNow returns what is known of an object that was a member; its value is [missing] if it is no longer one.
func (f *referring) memberNow(t *trigger, key types.NamespacedName, of target) referred {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := referred{target: of, version: missing, value: missing}
	v, exists, _ := t.kind.followed.Version(of.NamespacedName)
	if !exists {
		return is
	}
	is.version = versionName(v)
	if starts, matches := t.startedBy(of.NamespacedName, v); matches && starts == t.starting(key) {
		is.value = t.valueOf(v)
	}
	return is
}

// digestOf returns the input from members.
func digestOf(members []referred) string {
	var d digest
	for _, is := range members {
		if is.value != missing {
			d.toggle(is.NamespacedName, is.value)
		}
	}
	return d.String()
}

// triggeredSince returns texts about the changes since the run with these packed inputs; nil if not
// all changes were seen.
func (f *referring) triggeredSince(is triggered, key types.NamespacedName, packed string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	had := fingerprint.Had(packed)
	for _, ch := range slices.Backward(is.changes) {
		if ch.of != is.starting(key) {
			continue
		}
		if ch.says != "" && !slices.Contains(all, ch.says) {
			all = append(all, ch.says)
		}
		if had(is.part(ch.before.String())) {
			slices.Reverse(all)
			return all
		}
	}
	return nil
}
