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

// trigger is one of the triggers of a watch. The lock of referring guards it.
type trigger struct {
	watches.Trigger
	kind     *referredKind
	selector labels.Selector
	// owners is the kind of the watch: what its objects own is a dependent, and no member.
	// namespaced is true if they are in namespaces.
	owners     schema.GroupKind
	namespaced bool
	// namespaces restricts the namespaces of members, of the kind namespace, and matching are
	// those that match; both are nil where all do.
	namespaces labels.Selector
	namespace  *referredKind
	matching   map[string]bool

	// members are the objects that start runs.
	members map[types.NamespacedName]member
	// digests are those of the members by what they start, and total is that of all.
	digests map[started]digest
	total   digest
	// changes are the last ones, in order.
	changes []triggerChange
}

// started are the objects of a watch that a member starts: those with the name in the
// namespace, where an empty one is any.
type started types.NamespacedName

func (s started) has(key types.NamespacedName) bool {
	return (s.Namespace == "" || s.Namespace == key.Namespace) && (s.Name == "" || s.Name == key.Name)
}

// member is an object that starts runs. Its version identifies what it is, and value what
// counts of it.
type member struct {
	starts         started
	uid            types.UID
	version, value string
}

// digest is one of members. Its zero value is that of none.
type digest [16]byte

// toggle adds a member, or removes it: which objects there are counts, not their order.
func (d *digest) toggle(id types.NamespacedName, value string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, value))
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d *digest) String() string { return hex.EncodeToString(d[:]) }

// triggerChange is a change of what starts some objects, and the digest before it. It says
// nothing if it is none that starts runs.
type triggerChange struct {
	of     started
	before digest
	says   string
}

// maxChanges bounds the changes of one trigger that are remembered.
const maxChanges = 1000

// triggered is what is known of a trigger for one object.
type triggered struct {
	*trigger
	// value is what counts as an input, and total what counts for all objects together.
	value string
	total digest
}

func (is triggered) part(value string) fingerprint.Part {
	return fingerprint.Part{Group: fingerprint.OfTriggers, Name: is.name(), Value: value}
}

// newTrigger is a trigger of a watch. The selector is valid.
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

// name is what the trigger is called as an input.
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

// valueOf is what counts of a version. Where updates start nothing, it is which object it is.
func (t *trigger) valueOf(v dependent.Version) string {
	if t.Counts(watches.Update) {
		return versionName(v)
	}
	return string(v.UID)
}

// perNamespace is true if the objects in each namespace are started by others.
func (t *trigger) perNamespace() bool {
	return t.MapTo != watches.MapToAll && t.namespaced && (t.kind.namespaced || t.ofNamespaces())
}

func (t *trigger) ofNamespaces() bool { return t.GVK.GroupKind() == namespaceKind().GroupKind() }

// startedBy are the objects that an object starts; false if it is no member.
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

// starting is what an object has in common with those that its members start.
func (t *trigger) starting(key types.NamespacedName) (s started) {
	if t.NameFromLabel != "" {
		s.Name = key.Name
	}
	if t.perNamespace() {
		s.Namespace = key.Namespace
	}
	return s
}

// put notes what an object is now, and returns the objects that it starts, or started, if
// that has changed. why says what has changed if it is not the object.
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
		says = target{t.kind, id}.String() + " is new" // it was created, or has the labels now
	}
	var starts []started
	note := func(of started, all ...watches.Change) {
		ch := triggerChange{of: of, before: t.digests[of]}
		if slices.ContainsFunc(all, t.Counts) {
			ch.says, starts = says, append(starts, of)
		}
		if t.scanned() { // else it is not known when it happened
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

// digestFor is the digest that counts for an object whose last run has packed inputs. It is
// that of then, if nothing has happened since but changes that start no runs. What has
// happened that was not seen may have been any change.
func (t *trigger) digestFor(key types.NamespacedName, packed string) digest {
	is := t.digests[t.starting(key)]
	if t.Counts(watches.Create) && t.Counts(watches.Delete) {
		return is // no other change makes another digest
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

// known notes all objects of a kind, once they are known.
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

// matches notes the labels of a namespace, and returns what is started by objects in it
// that are, or are no more, in a namespace that matches. The caller holds the lock.
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

// triggered is what is known of the triggers for an object whose last run has packed inputs.
// known is false before all of it is: then the object is looked at again when it is.
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

// knows is true once the members are known that start an object, where they are in its namespace. Members
// in a namespace that may not be listed hold up no object in another. The caller holds the lock.
func (t *trigger) knows(key types.NamespacedName) bool {
	return !t.perNamespace() || t.kind.followed == nil || t.kind.followed.Knows(key.Namespace)
}

// scanned is true once all members were seen. The caller holds the lock.
func (t *trigger) scanned() bool {
	return t.kind.scanned && (t.namespace == nil || t.namespace.scanned)
}

// settled is true once it is known which objects of the kind there are. The caller holds the lock.
func (k *referredKind) settled() bool { return k.scanned || k.followed == nil && k.absent }

// membersOf are those that start an object. The caller holds the lock.
func (t *trigger) membersOf(key types.NamespacedName) []referred {
	var all []referred
	for id, m := range t.members {
		if m.starts == t.starting(key) {
			all = append(all, referred{target: target{t.kind, id}, version: m.version, value: m.value})
		}
	}
	return all
}

// memberNow is what is known of an object that was a member.
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

// digestOf is the input that comes of members.
func digestOf(members []referred) string {
	var d digest
	for _, is := range members {
		if is.value != missing {
			d.toggle(is.NamespacedName, is.value)
		}
	}
	return d.String()
}

// triggeredSince are the changes since the inputs of a run were packed; none if not all
// were seen.
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
