package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// referring follows the objects that those of a kind refer to, and those that start their
// runs, while the kind is served.
// It is safe for concurrent use.
type referring struct {
	fields []reference.Field
	// reported are the kinds of what commands name by reports.
	reported []schema.GroupVersionKind
	triggers []*trigger
	kinds    []*referredKind
	// namespace is the kind of namespaces; nil if no trigger asks for their labels.
	namespace *referredKind
	// namespaces are those of which objects are seen; none for all.
	namespaces []string
	discovery  *discovery.Cache
	registry   *dependent.Registry
	// look has an object looked at, lookAt has some, and lookAll has all.
	look    func(types.NamespacedName)
	lookAt  func(started)
	lookAll func()
	log     logr.Logger
	// unwatched is told whether objects of a resource cannot be watched.
	unwatched func(resource string, is bool)

	mu sync.Mutex
	// targets are what each object refers to, and from is the reverse.
	targets map[types.NamespacedName][]target
	from    map[target]map[types.NamespacedName]struct{}
	// runs are the runs in progress of objects that refer to others.
	runs map[types.NamespacedName]*referringRun
}

// referredKind is a kind of which objects are referred to.
type referredKind struct {
	gvk schema.GroupVersionKind
	// label is the kind's resource for people. It does not depend on whether the kind is
	// installed.
	label string

	// What follows is guarded by the lock of referring.

	// absent is true once the API server has said that there is no such kind; followed is
	// nil before it has said that there is.
	// scanned is true once all objects are known to the triggers.
	absent   bool
	followed *dependent.Named
	// refused is why objects that are followed cannot be watched now; empty if they can.
	scanned    bool
	refused    string
	resource   schema.GroupVersionResource
	namespaced bool
}

// target is an object that is referred to.
type target struct {
	kind *referredKind
	types.NamespacedName
}

func (t target) String() string {
	if t.Namespace == "" {
		return t.kind.label + " " + t.Name
	}
	return t.kind.label + " " + t.NamespacedName.String()
}

// referred is what is known of one object that is referred to.
type referred struct {
	target
	// version identifies its version, or is missing.
	version string
	// value is what counts as an input. What the object owns counts as missing: it is a
	// dependent.
	value string
}

// missing is the version of an object that does not exist.
const missing = "missing"

// versionName identifies what counts of a version: a generation where the kind has one, so
// that its status does not count, and else the resource version.
func versionName(v dependent.Version) string {
	if v.Generation > 0 {
		return string(v.UID) + " generation " + strconv.FormatInt(v.Generation, 10)
	}
	return string(v.UID) + " version " + v.ResourceVersion
}

// valueOf is what counts of a version as an input of owner.
func valueOf(v dependent.Version, owner proxy.Owner) string {
	if v.OwnedBy(owner) {
		return missing
	}
	return versionName(v)
}

// newReferring returns nil if the watch refers to nothing.
func newReferring(r *reconciler) *referring {
	fields, reported := reference.Fields(r.watch), reference.Reported(r.watch)
	if len(fields)+len(reported)+len(r.watch.Triggers) == 0 {
		return nil
	}
	f := &referring{
		fields: fields, reported: reported, namespaces: r.opts.Namespaces, discovery: r.opts.Proxy.Discovery(), registry: r.set.dependents, lookAll: r.objects.queueAll, log: r.log,
		look: func(key types.NamespacedName) {
			r.objects.mark(key, r.now())
			r.objects.enqueue(key)
		},
		lookAt:    func(s started) { r.objects.lookAt(s, r.now()) },
		unwatched: func(resource string, is bool) { r.metrics.ReferencesUnwatched(r.gvk, resource, is) },
		targets:   map[types.NamespacedName][]target{}, from: map[target]map[types.NamespacedName]struct{}{}, runs: map[types.NamespacedName]*referringRun{},
	}
	for _, gvk := range referredKinds(r.watch) {
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		f.kinds = append(f.kinds, &referredKind{gvk: gvk, label: resource.GroupResource().String()})
	}
	for _, w := range r.watch.Triggers {
		t := newTrigger(w, f.kind(w.GVK), r.gvk.GroupKind(), r.res.namespaced)
		if w.OfNamespaces() {
			f.namespace = f.kind(namespaceKind())
			t.namespace = f.namespace
		}
		f.triggers = append(f.triggers, t)
	}
	return f
}

// kind is one of the kinds.
func (f *referring) kind(gvk schema.GroupVersionKind) *referredKind {
	return f.kinds[slices.IndexFunc(f.kinds, func(k *referredKind) bool { return k.gvk == gvk })]
}

func namespaceKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
}

// referredKinds are the kinds that a watch refers to, and those of its triggers, each once.
func referredKinds(w watches.Watch) []schema.GroupVersionKind {
	kinds := reference.Reported(w)
	for _, f := range reference.Fields(w) {
		kinds = append(kinds, f.GVK)
	}
	for _, t := range w.Triggers {
		kinds = append(kinds, t.GVK)
		if t.OfNamespaces() {
			kinds = append(kinds, namespaceKind())
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}

// serve follows the kinds until ctx ends. Those that are not installed are looked for every interval. The error is nil.
func (f *referring) serve(ctx context.Context, interval time.Duration) error {
	var wg sync.WaitGroup
	for _, k := range f.kinds {
		wg.Go(func() {
			for !f.follow(ctx, k) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(interval):
				}
			}
			<-ctx.Done()
			k.followed.Close()
		})
	}
	wg.Wait()
	return nil
}

// follow begins to follow a kind; false if that is not possible yet.
func (f *referring) follow(ctx context.Context, k *referredKind) bool {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	res, err := f.discovery.LookupKind(ctx, k.gvk)
	f.mu.Lock()
	was := k.absent
	k.absent = k.absent || errors.Is(err, discovery.ErrNotFound)
	if err == nil {
		k.resource, k.namespaced = res.GVR, res.Namespaced
	}
	absent := k.absent
	f.mu.Unlock()
	switch {
	case absent && !was:
		f.log.Info("A kind that the watch refers to is not installed; its objects count as missing", "referredKind", k.gvk.String())
		f.lookAll()
	case err != nil && !errors.Is(err, discovery.ErrNotFound):
		f.log.V(1).Info("A kind that the watch refers to is not known yet", "referredKind", k.gvk.String(), "error", err.Error())
	case err == nil:
		followed := f.registry.Named(res.GVR, dependent.NamedOptions{
			Changed: func(id types.NamespacedName, v dependent.Version, exists bool) { f.changed(target{k, id}, v, exists) },
			Known:   func() { f.known(k) },
			Refused: func() { f.refused(k) },
		})
		f.mu.Lock()
		k.followed = followed
		nowhere := !k.namespaced && slices.ContainsFunc(f.triggers, func(t *trigger) bool { return t.kind == k && t.namespaces != nil })
		f.mu.Unlock()
		if nowhere {
			f.log.Info("A trigger with a namespaceSelector starts nothing, because its objects are in no namespaces; remove the selector from the watch", "referredKind", k.gvk.String())
		}
		f.known(k) // maybe it was known before the kind was followed here
		f.refused(k)
	}
	return err == nil
}

// refused notes whether objects of a kind cannot be watched now.
func (f *referring) refused(k *referredKind) {
	f.mu.Lock()
	was := k.refused
	if k.followed != nil {
		k.refused = k.followed.Refused()
		f.unwatched(k.label, k.refused != "")
	}
	changed := k.refused != was
	f.mu.Unlock()
	if changed {
		f.lookAll()
	}
}

// notWatched says what cannot be watched of that which an object refers to, and which starts it.
func (f *referring) notWatched(all []referred) (says []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kinds {
		starts := slices.ContainsFunc(f.triggers, func(t *trigger) bool { return t.kind == k || t.namespace == k })
		if k.refused != "" && (starts || slices.ContainsFunc(all, func(is referred) bool { return is.kind == k })) {
			says = append(says, k.label+": "+k.refused)
		}
	}
	return says
}

// changed has the objects looked at that refer to one that has changed, or that it starts.
func (f *referring) changed(t target, v dependent.Version, exists bool) {
	version := missing
	if exists {
		version = versionName(v)
	}
	f.mu.Lock()
	keys := slices.Collect(maps.Keys(f.from[t]))
	for _, run := range f.runs {
		run.see(t, version)
	}
	var starts []started
	if t.kind == f.namespace {
		starts = f.matches(t.Name, v, exists)
	}
	for _, trigger := range f.triggers {
		if trigger.kind == t.kind && t.kind.followed != nil {
			starts = append(starts, trigger.put(t.NamespacedName, v, exists, "")...)
		}
	}
	f.mu.Unlock()
	for _, s := range starts {
		f.lookAt(s)
	}
	for _, key := range keys {
		f.look(key)
	}
}

// refer notes what an object refers to, and returns what is known of that. known is false
// before all of it is: then the object is looked at again when it is.
func (f *referring) refer(key types.NamespacedName, owner proxy.Owner, refs []reference.Reference) (all []referred, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
	known = true
	for _, gvk := range f.reported { // what a run names it has to compare
		_, listed := f.current(target{kind: f.kind(gvk)}, owner)
		known = known && listed
	}
	for _, ref := range refs {
		t := f.target(ref)
		f.targets[key] = append(f.targets[key], t)
		if f.from[t] == nil {
			f.from[t] = map[types.NamespacedName]struct{}{}
		}
		f.from[t][key] = struct{}{}
		is, listed := f.current(t, owner)
		all, known = append(all, is), known && listed
	}
	return all, known
}

func (f *referring) target(ref reference.Reference) target {
	t := target{f.kind(ref.GVK), ref.NamespacedName}
	if t.kind.followed != nil && !t.kind.namespaced {
		t.Namespace = ""
	}
	return t
}

// now is what is known of an object that is referred to.
func (f *referring) now(t target, owner proxy.Owner) referred {
	f.mu.Lock()
	defer f.mu.Unlock()
	is, _ := f.current(t, owner)
	return is
}

func (f *referring) current(t target, owner proxy.Owner) (is referred, known bool) {
	is = referred{target: t, version: missing, value: missing}
	if t.kind.followed == nil {
		return is, t.kind.absent
	}
	v, exists, known := t.kind.followed.Version(t.NamespacedName)
	if exists {
		is.version, is.value = versionName(v), valueOf(v, owner)
	}
	return is, known
}

// forget drops what is known of an object that is gone.
func (f *referring) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
}

func (f *referring) drop(key types.NamespacedName) {
	for _, t := range f.targets[key] {
		delete(f.from[t], key)
		if len(f.from[t]) == 0 {
			delete(f.from, t)
		}
	}
	delete(f.targets, key)
}

// watched is true while changes of an object are seen.
func (f *referring) watched(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.kind.refused == "" && f.seen(t)
}

// seen is true if changes of an object are seen at all.
func (f *referring) seen(t target) bool {
	return t.Namespace == "" || len(f.namespaces) == 0 || slices.Contains(f.namespaces, t.Namespace)
}

// nowhere is true for an object that has to be in a namespace, of which none is given.
func (f *referring) nowhere(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.Namespace == "" && t.kind.followed != nil && t.kind.namespaced
}

// referencesKey is where a trimmed object keeps what it refers to, as [packReferences]
// writes it.
const referencesKey = "rolewright.dev/references"

func packReferences(refs []reference.Reference) string {
	text, _ := json.Marshal(refs) // which are texts
	return string(text)
}

func unpackReferences(packed string) []reference.Reference {
	var refs []reference.Reference
	_ = json.Unmarshal([]byte(packed), &refs) // it is packed by this process
	return refs
}

// targetOf is the object that a reference names.
func (f *referring) targetOf(ref reference.Reference) target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target(ref)
}
