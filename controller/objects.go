package controller

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
)

// objects is what a reconciler knows of its objects beyond the cache.
// It is safe for concurrent use.
type objects struct {
	mu    sync.Mutex
	table map[types.NamespacedName]*entry
	// queue is nil before the controller has started.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// entry is what is known of one object. An empty one is dropped.
type entry struct {
	memory *memory
	// dependentChanged describes the first change of a dependent by another client since the last run
	// began; empty for none. changedInOtherNamespace does the same for dependents in other namespaces.
	dependentChanged, changedInOtherNamespace string
	// run is the run in progress; nil if there is none.
	run *activeRun
	// due is when the next reconcile is due, which may be in the future; zero if that
	// is not known.
	due time.Time
	// deleted is when the object's deletion began, if it waits for a finalizer; else zero.
	deleted time.Time
	// waiting is a run that is due and has to wait; zero if there is none.
	waiting waitingRun
	// drifted is true if the object's last run was a check that found changes; failed is true if the last run failed.
	drifted, failed bool
	// elsewhere is true if the object matches the selector but another watch runs it.
	elsewhere bool
	// listed is true if the object existed when the operator began to serve its kind.
	listed bool
}

// seen clears the changes of dependents, since the run that begins sees them. It reports whether there were changes in the
// object's own namespace, or else only in other namespaces.
func (e *entry) seen() (changed, otherNamespace bool) {
	changed, otherNamespace = e.dependentChanged != "", e.dependentChanged == "" && e.changedInOtherNamespace != ""
	e.dependentChanged, e.changedInOtherNamespace = "", ""
	return changed, otherNamespace
}

func newObjects() *objects { return &objects{table: map[types.NamespacedName]*entry{}} }

// with calls do with the entry of an object, under the lock.
func (o *objects) with(key types.NamespacedName, do func(e *entry)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.table[key]
	if e == nil {
		e = &entry{}
	}
	do(e)
	if *e == (entry{}) {
		delete(o.table, key)
	} else {
		o.table[key] = e
	}
}

// get returns a copy of an object's entry.
func (o *objects) get(key types.NamespacedName) (found entry) {
	o.with(key, func(e *entry) { found = *e })
	return found
}

// ended notes how the object's last run ended; nil for none. An interrupted run changes nothing.
func (e *entry) ended(run *status.Run) {
	if run != nil && run.Result != status.Interrupted {
		e.drifted, e.failed = run.Drifted, run.Result == status.Failed
	}
}

// start sets the queue, and queues the objects whose dependents changed before there was one.
func (o *objects) start(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = queue
	for key, e := range o.table {
		if e.dependentChanged != "" || e.changedInOtherNamespace != "" {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// noteDependentChange queues an object after another client has changed one of its dependents. why
// describes the change and is not empty. uid is the UID that the dependent names as its owner's; empty if it
// names none. If uid belongs to an earlier object with the same name, nothing happens and ok is false.
func (o *objects) noteDependentChange(key types.NamespacedName, uid types.UID, why string, otherNamespace bool, now time.Time) (ok bool) {
	o.with(key, func(e *entry) {
		if ok = e.memory == nil || uid == "" || e.memory.uid == uid; !ok {
			return
		}
		if otherNamespace {
			e.changedInOtherNamespace = cmp.Or(e.changedInOtherNamespace, why)
		} else {
			e.dependentChanged = cmp.Or(e.dependentChanged, why)
		}
		e.mark(now)
		if o.queue != nil {
			o.queue.Add(reconcile.Request{NamespacedName: key})
		}
	})
	return ok
}

// enqueue queues an object for a reconcile.
func (o *objects) enqueue(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue != nil {
		o.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// queueAll queues all objects that were reconciled before, also those that another watch runs.
func (o *objects) queueAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue == nil {
		return
	}
	for key, e := range o.table {
		if e.memory != nil || e.elsewhere {
			o.queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// lookAt queues the objects in s that were reconciled before, as due at a time.
func (o *objects) lookAt(s started, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, e := range o.table {
		if e.memory != nil && s.has(key) {
			e.mark(at)
			if o.queue != nil {
				o.queue.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
}

// mark notes that the object is due at a time, unless it is due earlier.
func (o *objects) mark(key types.NamespacedName, at time.Time) {
	o.with(key, func(e *entry) { e.mark(at) })
}

func (e *entry) mark(at time.Time) {
	if e.due.IsZero() || at.Before(e.due) {
		e.due = at
	}
}

// take is called at the start of a reconcile: it returns since when the reconcile was due; now if
// that is not known.
func (o *objects) take(key types.NamespacedName, now time.Time) (since time.Time) {
	o.with(key, func(e *entry) { since, e.due = e.due, time.Time{} })
	if since.IsZero() || since.After(now) {
		return now
	}
	return since
}

// setDeleted notes since when a deleted object waits for its finalizer; zero if it does not wait.
func (o *objects) setDeleted(key types.NamespacedName, since time.Time) {
	o.with(key, func(e *entry) { e.deleted = since })
}

// setPodless notes whether the object's run waits for its Pod.
func (o *objects) setPodless(key types.NamespacedName, is bool, now time.Time) {
	o.with(key, func(e *entry) {
		switch {
		case e.run == nil:
		case !is:
			e.run.podless = time.Time{}
		case e.run.podless.IsZero():
			e.run.podless = now
		}
	})
}

// oldest returns the ages and counts that metrics show.
func (o *objects) oldest(now time.Time) metrics.Ages {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ages metrics.Ages
	for _, e := range o.table {
		if !e.due.IsZero() {
			ages.Queue = max(ages.Queue, now.Sub(e.due))
		}
		if e.run != nil {
			ages.Run = max(ages.Run, now.Sub(e.run.since))
			if !e.run.podless.IsZero() {
				ages.Pod = max(ages.Pod, now.Sub(e.run.podless))
			}
		}
		if e.drifted {
			ages.Drifted++
		}
		if e.failed {
			ages.Failed++
		}
		if !e.deleted.IsZero() {
			ages.Deletion = max(ages.Deletion, now.Sub(e.deleted))
		}
	}
	return ages
}
