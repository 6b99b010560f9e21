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

	// members are the objects that start runs.
	members map[types.NamespacedName]member
	// digests are those of the members by what they start.
	digests map[started]digest
	// changes are the last ones, in order.
	changes []triggerChange
}

// started are the objects of a watch that a member starts: those with the name in the
// namespace, where an empty one is any.
type started types.NamespacedName

func (s started) has(key types.NamespacedName) bool {
	return (s.Namespace == "" || s.Namespace == key.Namespace) && (s.Name == "" || s.Name == key.Name)
}

type member struct {
	starts  started
	version string
}

// digest is one of members. Its zero value is that of none.
type digest [16]byte

// toggle adds a member, or removes it: which objects there are counts, not their order.
func (d *digest) toggle(id types.NamespacedName, version string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, version))
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d *digest) String() string { return hex.EncodeToString(d[:]) }

// triggerChange is a change of what starts some objects, and the digest before it.
type triggerChange struct {
	of     started
	before digest
	says   string
}

// maxChanges bounds the changes of one trigger that are remembered.
const maxChanges = 100

// triggered is what is known of a trigger for one object.
type triggered struct {
	*trigger
	// value is what counts as an input.
	value string
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
	return &trigger{
		Trigger: w, kind: kind, selector: selector, owners: owners, namespaced: namespaced,
		members: map[types.NamespacedName]member{}, digests: map[started]digest{},
	}
}

// name is what the trigger is called as an input.
func (t *trigger) name() string {
	with := t.selector.String()
	if t.NameFromLabel != "" {
		with = strings.TrimPrefix(with+","+t.NameFromLabel, ",")
	}
	return t.kind.label + " with " + cmp.Or(with, "any labels")
}

// apart is true if the objects in each namespace are started by others.
func (t *trigger) apart() bool {
	return t.MapTo != watches.MapToAll && t.namespaced && (t.kind.namespaced || t.ofNamespaces())
}

func (t *trigger) ofNamespaces() bool {
	return t.GVK.GroupKind() == schema.GroupKind{Kind: "Namespace"}
}

// startedBy are the objects that an object starts; false if it is no member.
func (t *trigger) startedBy(id types.NamespacedName, v dependent.Version) (s started, ok bool) {
	name := v.Labels[t.NameFromLabel]
	if !t.selector.Matches(labels.Set(v.Labels)) || t.NameFromLabel != "" && name == "" || v.OwnedByAny(t.owners) {
		return s, false
	}
	s.Name = name
	if t.apart() {
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
	if t.apart() {
		s.Namespace = key.Namespace
	}
	return s
}

// put notes what an object is now, and returns the objects that it starts, or started, if
// that has changed.
func (t *trigger) put(id types.NamespacedName, v dependent.Version, exists bool) []started {
	var is member
	matches := false
	if exists {
		is.starts, matches = t.startedBy(id, v)
		is.version = versionName(v)
	}
	was, matched := t.members[id]
	if matches == matched && (!matches || is == was) {
		return nil
	}
	says := target{t.kind, id}.String() + " was changed"
	if !exists {
		says = target{t.kind, id}.String() + " was deleted"
	}
	var of []started
	if matched {
		of = append(of, was.starts)
	}
	if matches && (!matched || is.starts != was.starts) {
		of = append(of, is.starts)
	}
	for _, s := range of {
		t.changes = append(t.changes, triggerChange{s, t.digests[s], says})
	}
	t.changes = slices.Delete(t.changes, 0, max(len(t.changes)-maxChanges, 0))
	delete(t.members, id)
	if matched {
		t.toggle(was.starts, id, was.version)
	}
	if matches {
		t.members[id] = is
		t.toggle(is.starts, id, is.version)
	}
	return of
}

func (t *trigger) toggle(s started, id types.NamespacedName, version string) {
	d := t.digests[s]
	if d.toggle(id, version); d == (digest{}) {
		delete(t.digests, s)
		return
	}
	t.digests[s] = d
}

// known notes all objects of a kind, once they are known.
func (f *referring) known(k *referredKind) {
	f.mu.Lock()
	if k.followed != nil {
		all, known := k.followed.All()
		for _, t := range f.triggers {
			for id, v := range all {
				if known && t.kind == k {
					t.put(id, v, true)
				}
			}
		}
		k.scanned = k.scanned || known
	}
	f.mu.Unlock()
	f.lookAll()
}

// triggered is what is known of the triggers for an object. known is false before all of
// it is: then the object is looked at again when it is.
func (f *referring) triggered(key types.NamespacedName) (all []triggered, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known = true
	for _, t := range f.triggers {
		d := t.digests[t.starting(key)]
		all = append(all, triggered{t, d.String()})
		known = known && (t.kind.scanned || t.kind.followed == nil && t.kind.absent)
	}
	return all, known
}

// membersOf are those that start an object. The caller holds the lock.
func (t *trigger) membersOf(key types.NamespacedName) []referred {
	var all []referred
	for id, m := range t.members {
		if m.starts == t.starting(key) {
			all = append(all, referred{target: target{t.kind, id}, version: m.version, value: m.version})
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
		is.value = is.version
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
	for _, ch := range slices.Backward(is.changes) {
		if ch.of != is.starting(key) {
			continue
		}
		if !slices.Contains(all, ch.says) {
			all = append(all, ch.says)
		}
		if fingerprint.Had(packed, is.part(ch.before.String())) {
			slices.Reverse(all)
			return all
		}
	}
	return nil
}
