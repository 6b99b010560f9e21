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

// referring follows the references and triggers of a watch's objects while the kind is
// served. It is safe for concurrent use.
type referring struct {
	fields []reference.Field
	// reported are the kinds of the references that commands may report.
	reported []schema.GroupVersionKind
	triggers []*trigger
	kinds    []*referredKind
	// namespace is the kind of namespaces; nil if no trigger asks for their labels.
	namespace *referredKind
	// namespaces are the namespaces whose objects are seen; empty for all.
	namespaces []string
	discovery  *discovery.Cache
	registry   *dependent.Registry
	// look queues one object, lookAt some, and lookAll all.
	look    func(types.NamespacedName)
	lookAt  func(started)
	lookAll func()
	log     logr.Logger
	// unwatched is called with whether the objects of a resource cannot be watched.
	unwatched func(resource string, is bool)

	mu sync.Mutex
	// targets has the references of each object; from is the reverse.
	targets map[types.NamespacedName][]target
	from    map[target]map[types.NamespacedName]struct{}
	// runs are the runs in progress of objects that refer to others.
	runs map[types.NamespacedName]*referringRun
}

// referredKind is the kind of references or triggers.
type referredKind struct {
	gvk schema.GroupVersionKind
	// label is the name of the kind's resource in messages. It does not depend on whether
	// the kind is installed.
	label string

	// The lock of referring guards the following fields.

	// absent is true once the API server has said that it does not serve the kind; followed
	// is nil until the API server serves it. scanned is true once the triggers know all objects.
	absent   bool
	followed *dependent.Named
	// refused is why the followed objects cannot be watched at the moment; empty if they can.
	scanned    bool
	refused    string
	resource   schema.GroupVersionResource
	namespaced bool
}

// target is the name of a referenced object, or of a member of a trigger.
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

// referred is what is known of one target.
type referred struct {
	target
	// version identifies the target's version; [missing] if it does not exist.
	version string
	// value is the input from the target. A target that the object itself owns counts as
	// [missing], since it is a dependent.
	value string
}

// missing is the version of an object that does not exist.
const missing = "missing"

// versionName identifies a version: by its generation if the kind has one, so that the status
// does not count, else by its resource version.
func versionName(v dependent.Version) string {
	if v.Generation > 0 {
		return string(v.UID) + " generation " + strconv.FormatInt(v.Generation, 10)
	}
	return string(v.UID) + " version " + v.ResourceVersion
}

// valueOf returns the input of owner's runs from a version.
func valueOf(v dependent.Version, owner proxy.Owner) string {
	if v.OwnedBy(owner) {
		return missing
	}
	return versionName(v)
}

// newReferring returns nil if the watch has no references and no triggers.
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

// kind returns the one of f.kinds with gvk, which must exist.
func (f *referring) kind(gvk schema.GroupVersionKind) *referredKind {
	return f.kinds[slices.IndexFunc(f.kinds, func(k *referredKind) bool { return k.gvk == gvk })]
}

func namespaceKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
}

// referredKinds returns the kinds of a watch's references and triggers, without duplicates.
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

// serve follows the kinds until ctx ends. It looks for kinds that are not installed every interval.
func (f *referring) serve(ctx context.Context, interval time.Duration) {
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
}

// follow begins to follow a kind. It returns false if that is not possible yet.
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
		f.known(k) // its objects may have been known before
		f.refused(k)
	}
	return err == nil
}

// refused notes whether the objects of a kind cannot be watched at the moment.
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

// notWatched returns texts about the kinds of all, and of the triggers, that cannot be watched.
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

// changed queues the objects that refer to t, or that t starts, after t has changed.
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

// refer notes the references of an object, and returns what is known of them. If known is false,
// something is not known yet; the object is queued when it is.
func (f *referring) refer(key types.NamespacedName, owner proxy.Owner, refs []reference.Reference) (all []referred, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
	known = true
	for _, gvk := range f.reported { // a run may report any of their objects
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

// now returns what is known of t.
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

// forget drops the references of an object that is gone.
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

// watched reports whether changes of t are seen at the moment.
func (f *referring) watched(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.kind.refused == "" && f.seen(t)
}

// seen reports whether t is cluster-scoped or in a namespace that the operator watches.
func (f *referring) seen(t target) bool {
	return t.Namespace == "" || len(f.namespaces) == 0 || slices.Contains(f.namespaces, t.Namespace)
}

// nowhere reports whether t needs a namespace and has none.
func (f *referring) nowhere(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.Namespace == "" && t.kind.followed != nil && t.kind.namespaced
}

// referencesKey is the field of a trimmed object that holds its references, encoded by
// [packReferences].
const referencesKey = "rolewright.dev/references"

func packReferences(refs []reference.Reference) string {
	text, _ := json.Marshal(refs) // strings can always be encoded
	return string(text)
}

func unpackReferences(packed string) []reference.Reference {
	var refs []reference.Reference
	_ = json.Unmarshal([]byte(packed), &refs) // this process has packed it
	return refs
}

// targetOf returns the target that a reference names.
func (f *referring) targetOf(ref reference.Reference) target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target(ref)
}
