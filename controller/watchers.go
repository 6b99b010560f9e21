package controller

import (
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/watches"
)

// watchers are the watches of one kind, in all its versions. One of them runs each object:
// [watches.Responsible] says which, leaving out watches whose kind the API server does not
// serve at the moment. It is safe for concurrent use.
type watchers struct {
	// claims are in the order of the file. They do not change.
	claims []watches.Claim

	mu    sync.Mutex
	kinds []*kind // one for each claim

	// unmatchedMu makes sure that only one watch logs that no watch matches an object.
	unmatchedMu sync.Mutex
}

// newWatchers returns the watchers of all watches, one for each kind. It reuses those in before
// whose claims are the same. at has the index of each watch's claim.
func newWatchers(all []watches.Watch, before map[schema.GroupKind]*watchers) (by map[schema.GroupKind]*watchers, at []int, err error) {
	by, at = map[schema.GroupKind]*watchers{}, make([]int, len(all))
	for i, w := range all {
		claim, err := watches.ClaimOf(w)
		if err != nil {
			return nil, nil, err
		}
		is := by[w.GVK.GroupKind()]
		if is == nil {
			is = &watchers{}
			by[w.GVK.GroupKind()] = is
		}
		at[i] = len(is.claims)
		is.claims = append(is.claims, claim)
	}
	for kind, is := range by {
		if was := before[kind]; was != nil && slices.EqualFunc(was.claims, is.claims, sameClaim) {
			by[kind] = was
		}
	}
	return by, at, nil
}

func sameClaim(a, b watches.Claim) bool {
	return a.String() == b.String() && slices.Equal(a.Finalizers, b.Finalizers)
}

// shared reports whether the kind has several watches.
func (w *watchers) shared() bool { return w != nil && len(w.claims) > 1 }

// selects reports whether an object's labels decide which watch runs it.
func (w *watchers) selects() bool {
	return slices.ContainsFunc(w.claims, func(c watches.Claim) bool { return !c.Selector.Empty() })
}

// set sets the kinds that serve the claims.
func (w *watchers) set(kinds []*kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds = kinds
}

func (w *watchers) all() []*kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.kinds)
}

// responsible returns the index of the claim whose watch runs an object; -1 for none. asks is the claim
// of the watch that asks, which is never left out.
func (w *watchers) responsible(obj metav1.Object, asks int) int {
	claims := w.claims
	if w.shared() {
		claims = slices.Clone(claims)
		for i, k := range w.all() {
			if i != asks && k.absent() {
				claims[i] = watches.Claim{Selector: labels.Nothing()}
			}
		}
	}
	return watches.Responsible(claims, obj)
}

// absent reports whether the API server does not serve what the kind's watch needs.
func (k *kind) absent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return absence(k.state)
}

// comesOrGoes is called when the API server begins or ceases to serve the kind. It queues the objects of
// the kind's other watches.
func (k *kind) comesOrGoes() {
	for _, other := range k.watchers.all() {
		if r := other.reconciler(); other != k && r != nil {
			r.objects.queueAll()
		}
	}
}

// reconciler returns the reconciler of the current or last service; nil before the first one.
func (k *kind) reconciler() *reconciler {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.served
}

// otherWatches returns the reconcilers of the kind's other watches that were served.
func (r *reconciler) otherWatches() (all []*reconciler) {
	if !r.watchers.shared() {
		return nil
	}
	for i, k := range r.watchers.all() {
		if other := k.reconciler(); i != r.claimIndex && other != nil {
			all = append(all, other)
		}
	}
	return all
}

// responsible reports whether this watch runs the object.
func (r *reconciler) responsible(obj metav1.Object) bool {
	return r.watchers.responsible(obj, r.claimIndex) == r.claimIndex
}

// handles reports whether this watch reconciles the object: it is responsible for the object; or it was, no watch is now,
// and the object is being deleted and has our finalizer. It also updates the entry of an object that another watch handles.
func (r *reconciler) handles(obj *unstructured.Unstructured) bool {
	key := client.ObjectKeyFromObject(obj)
	if r.watchers.shared() {
		// Noted first, so that comesOrGoes queues the object if a watch comes or goes meanwhile.
		r.objects.with(key, func(e *entry) { e.elsewhere = true })
	}
	at := r.watchers.responsible(obj, r.claimIndex)
	var m *memory
	r.objects.with(key, func(e *entry) {
		m, e.elsewhere = e.memory, at != r.claimIndex && r.watchers.claims[r.claimIndex].Matches(obj)
		if at != r.claimIndex {
			e.listed = false // if this watch runs it later, something has changed
		}
		if at != r.claimIndex && at >= 0 {
			e.dependentChanged, e.changedInOtherNamespace, e.deleted, e.drifted, e.failed = "", "", time.Time{}, false, false
		}
	})
	if at >= 0 {
		return at == r.claimIndex
	}
	return m != nil && m.uid == obj.GetUID() && obj.GetDeletionTimestamp() != nil && r.hasOurFinalizer(obj)
}

// unmatchedAfter is after how many times opts.RetryMax since its deletion an object counts as unmatched: by then, another
// operator would have had time to run its finalizer.
const unmatchedAfter = 5

// warnUnmatched logs, once, that no watch matches an object that has been in deletion for a while and has our finalizer. It
// returns the delay until the next check; zero for none. Of several watches, only one logs it. It does no more than log,
// since another operator may run the object.
func (r *reconciler) warnUnmatched(obj *unstructured.Unstructured) (again time.Duration) {
	r.watchers.unmatchedMu.Lock()
	defer r.watchers.unmatchedMu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	var since time.Time
	if obj.GetDeletionTimestamp() != nil && r.hasOurFinalizer(obj) && watches.Responsible(r.watchers.claims, obj) < 0 &&
		!slices.ContainsFunc(r.otherWatches(), func(other *reconciler) bool {
			e := other.objects.get(key)
			return !e.deleted.IsZero() || e.memory != nil && e.memory.uid == obj.GetUID()
		}) {
		again = r.opts.RetryMax
		if at := obj.GetDeletionTimestamp().Time; r.now().Sub(at) >= unmatchedAfter*r.opts.RetryMax {
			since = at
		}
	}
	var was time.Time
	r.objects.with(key, func(e *entry) { was, e.deleted = e.deleted, since })
	if was.Equal(since) || since.IsZero() {
		return again
	}
	ours := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return !r.isOurFinalizer(f) })
	r.log.Info("An object that is being deleted matches the selector of no watch, and bears a finalizer of the operator: "+
		"give it its labels back, so that its finalizer runs, or remove the finalizer if no other operator runs it",
		"namespace", key.Namespace, "name", key.Name, "finalizers", ours)
	return again
}

// takeOver makes the other watches forget an object that this watch runs. If one of them runs the object
// later, it begins with what the status records.
func (r *reconciler) takeOver(key types.NamespacedName) {
	for _, other := range r.otherWatches() {
		other.objects.with(key, func(e *entry) {
			e.memory, e.dependentChanged, e.changedInOtherNamespace, e.deleted, e.drifted, e.failed = nil, "", "", time.Time{}, false, false
		})
		if other.dependents != nil {
			other.dependents.Forget(key)
		}
		if other.referring != nil {
			other.referring.forget(key)
		}
	}
}

// knownElsewhere reports whether another watch of the same version, or another shard, knows an object
// with this name. Two objects that have had the same name may be in different shards.
func (r *reconciler) knownElsewhere(key types.NamespacedName) bool {
	if r.shard != nil {
		for _, k := range r.set.all() {
			if other := k.reconciler(); other != nil && k.shard != r.shard && other.gvk == r.gvk && other.objects.get(key).memory != nil {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.otherWatches(), func(other *reconciler) bool {
		return other.gvk == r.gvk && other.objects.get(key).memory != nil
	})
}

// unneeded returns the finalizers of the kind's other watches, which a living object of this watch does
// not need.
func (r *reconciler) unneeded() (names []string) {
	for i, c := range r.watchers.claims {
		if i != r.claimIndex {
			names = append(names, slices.DeleteFunc(slices.Clone(c.Finalizers), r.isOurFinalizer)...)
		}
	}
	return names
}

// ofWatch returns the part of a run's inputs that names its watch among several of the kind. It does
// not belong to the fingerprint.
func (r *reconciler) ofWatch(claim int) fingerprint.Part {
	return fingerprint.Part{Group: fingerprint.OfWatch, Name: "claim", Value: r.watchers.claims[claim].String()}
}

// packInputs returns the inputs of the run of s in packed form.
func (r *reconciler) packInputs(s *scope) string {
	if !r.watchers.shared() {
		return fingerprint.Pack(s.parts)
	}
	return fingerprint.Pack(append(slices.Clip(s.parts), r.ofWatch(r.claimIndex)))
}

// moved reports whether another watch of the kind made the object's last run.
func (r *reconciler) moved(s *scope) bool {
	last := s.memory.last
	if last == nil || !r.watchers.shared() {
		return false
	}
	had := fingerprint.Had(last.Inputs)
	if had(r.ofWatch(r.claimIndex)) {
		return false
	}
	for i := range r.watchers.claims {
		if had(r.ofWatch(i)) {
			return true
		}
	}
	return false
}

// showReady updates the metric of a kind. The kind is ready if all its watches are served, except those
// that enabledIf disables. If none is left, the metric is removed.
func (s *Set) showReady(gvk schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	watched, served := false, true
	for _, k := range s.kinds {
		if k.watch.GVK != gvk {
			continue
		}
		k.mu.Lock()
		if !errors.As(k.state, new(notEnabledError)) {
			watched, served = true, served && k.state == nil
		}
		k.mu.Unlock()
	}
	if watched {
		s.opts.Metrics.KindReady(gvk, served)
	} else {
		s.opts.Metrics.KindRemoved(gvk)
	}
}
