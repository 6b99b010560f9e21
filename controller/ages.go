package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rolewright/rolewright/internal/metrics"
)

// ages is since when objects wait: for a reconcile, and to be let go. It is safe
// for concurrent use.
type ages struct {
	mu sync.Mutex
	// due is when the object's next reconcile is due, which may be in the future.
	due map[types.NamespacedName]time.Time
	// deleted is when the deletion began of those that wait for a finalizer.
	deleted map[types.NamespacedName]time.Time
}

func newAges() *ages {
	return &ages{due: map[types.NamespacedName]time.Time{}, deleted: map[types.NamespacedName]time.Time{}}
}

// mark notes that the object is due at a time, if it is not due before.
func (a *ages) mark(key types.NamespacedName, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.due[key]; !ok || at.Before(known) {
		a.due[key] = at
	}
}

// take is called when the object is looked at: it returns since when that was
// due, now if no one knows.
func (a *ages) take(key types.NamespacedName, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.due[key]
	delete(a.due, key)
	if !ok || at.After(now) {
		return now
	}
	return at
}

// waits notes since when an object waits for its finalizer; zero if it does not.
func (a *ages) waits(key types.NamespacedName, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since.IsZero() {
		delete(a.deleted, key)
		return
	}
	a.deleted[key] = since
}

// forget drops an object that is gone.
func (a *ages) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.due, key)
	delete(a.deleted, key)
}

// oldest are the ages that metrics show.
func (a *ages) oldest(now time.Time) metrics.Ages {
	a.mu.Lock()
	defer a.mu.Unlock()
	longest := func(since map[types.NamespacedName]time.Time) time.Duration {
		var age time.Duration
		for _, at := range since {
			age = max(age, now.Sub(at))
		}
		return age
	}
	return metrics.Ages{Queue: longest(a.due), Deletion: longest(a.deleted)}
}

// note marks the object of each event that gets as far as this predicate, which
// lets all of them through.
func (r *reconciler) note() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		r.ages.mark(client.ObjectKeyFromObject(o), r.now())
		return true
	})
}
