package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
)

// memory is what the reconciler remembers of an object between reconciles. Only the
// object's current reconcile uses it.
type memory struct {
	uid types.UID
	// last is the object's last run: the one that its status recorded when this process
	// first read it, or a later one; nil if there is none.
	last *status.Run
	// firstSeen is the state of an object that was run before although its status records no run; nil if there is a
	// record, or no sign of an earlier run.
	firstSeen *firstSeen
	// judged is the last known run that was not a check and was not interrupted; else nil.
	judged *status.Run
	// lost is the run that the status shows in progress although this process does
	// not execute it; nil if there is none.
	lost *status.Active
	// left names the parts of the lost run, such as its Pod, that the last check found; leftPause is the pause before the
	// next check.
	left      string
	leftPause time.Duration
	// unbegun is the ID of a run that this process did not start, not knowing whether the status records its start.
	unbegun string
	// unanswered counts such runs in a row.
	unanswered int64
	// unwritten is the last run if its result could not be written yet; else nil.
	unwritten *status.Run
	// finalized is true once a finalizer run of this object has succeeded or was given up.
	finalized bool
	// ran is true once this process has run the object.
	ran bool
	// parked is what the last run that this process has recorded parked the object for; nil if it did not. Unlike last,
	// it never comes from the status.
	parked *status.Wait
	// nextLook is when to check again for what the object waits for; looks says how the last checks went.
	nextLook time.Time
	looks    looks
	// asked is what the object was last parked for; nil if it was not, or if a later success
	// did not park it again.
	asked *asked
	// finalizerAt is when the finalizers were last patched.
	finalizerAt time.Time
	// ownSpec is the generation that the last run made by changing its own object's spec; 0 for none.
	ownSpec int64
	// ownObject is the digest of the object's inputs after the last run, if the run wrote its own object; else empty.
	ownObject string
	// loops is how many runs in a row were started by such changes or by changes of other clients; nearEnd is when the last
	// run that may count in loops ended. otherNamespaceLoops counts the runs started by changes of dependents in other
	// namespaces.
	loops, otherNamespaceLoops int
	nearEnd                    time.Time
	// blocked is how many runs in a row have ended through no fault of the role.
	blocked int64
	// observed is the last generation that was written into the status without a run.
	observed int64
	// held is the run that the status shows as held back; zero for none.
	held heldRun
	// refused is set after the API server has refused a status outside of a run: until this time
	// no such status is written; zero if none was refused.
	refused time.Time
	// notWatched holds the lines in the status about what cannot be watched.
	notWatched string
	// notServed are the kinds of dependents that the last attempt to prune did not find, and since when.
	notServed map[schema.GroupVersionResource]time.Time
}

// heldRun is a run that is held back: until a maintenance window opens if until is set, for the
// reason in stuck if that is set, else by a pause.
type heldRun struct {
	cause      cause
	generation int64
	until      int64 // in Unix time
	stuck      string
}

// remember returns the memory of an object, creating it if the UID is new. stale is the memory of an earlier
// object with the same name; nil if there is none.
func (r *reconciler) remember(obj *unstructured.Unstructured) (m, stale *memory) {
	key := client.ObjectKeyFromObject(obj)
	known := r.objects.get(key)
	if stale = known.memory; stale != nil && stale.uid == obj.GetUID() {
		return stale, nil
	}
	m = &memory{uid: obj.GetUID()}
	record := r.record(obj)
	for _, part := range record.Rejected {
		r.metrics.StatusRejected(r.gvk, part)
		r.log.Info("Part of status.ansible is not in the form that this operator writes, and is ignored; find out which other client writes the status of the object",
			"namespace", key.Namespace, "name", key.Name, "part", part)
	}
	m.recall(record, r.now())
	if known.listed && stale == nil && r.ranBefore(obj, record) {
		m.firstSeen = r.firstSeenOf(obj, record)
	}
	r.objects.with(key, func(e *entry) {
		e.memory, e.drifted, e.failed = m, false, false
		e.ended(m.last)
	})
	r.restore(key, record.Dependents)
	return m, stale
}

// record returns what an object's status says about its runs. It is empty if the
// operator does not write the status, since the object's creator may have written
// it then.
func (r *reconciler) record(obj *unstructured.Unstructured) status.Record {
	switch {
	case !r.writesStatus():
		return status.Record{}
	case isTrimmed(obj):
		return packed(obj)
	}
	st, _ := obj.Object["status"].(map[string]any)
	return status.Read(st)
}

// ranBefore reports whether an object without a recorded run has been run before. It judges by the
// conditions if the operator writes the status, else by the finalizer, which an object gets before its
// first run. Without either, it assumes so.
func (r *reconciler) ranBefore(obj *unstructured.Unstructured, record status.Record) bool {
	switch {
	case record.Last != nil:
		return false
	case r.writesStatus():
		return record.Ended != ""
	case len(r.finalizers()) > 0:
		return r.hasOurFinalizer(obj)
	}
	return true
}

// firstSeenOf returns the state of an object that was run before without a record. The last request for a run counts as
// handled, since it is not known which request was handled last.
func (r *reconciler) firstSeenOf(obj *unstructured.Unstructured, record status.Record) *firstSeen {
	set, _ := r.settingsOf(obj)
	return &firstSeen{generation: cmp.Or(record.EndedGeneration, obj.GetGeneration()), requested: set.requested, result: record.Ended}
}

// firstSeen is the state in which this process found an object that was run before and whose status records no run.
// generation is that of the last run if it is known, else that of the object.
type firstSeen struct {
	generation int64
	requested  string
	// result is how its last run ended; empty if that is not known.
	result status.Result
}

// unrecorded returns the cause of a run of an object without a recorded run. An object that was
// run before is run again to be safe, with a cause of lower priority unless something has changed
// since the operator found it.
func (s situation) unrecorded() cause {
	switch met := s.firstSeen; {
	case met == nil:
		return causeCreated
	case s.requested != "" && s.requested != met.requested:
		return causeManual
	case s.generation != met.generation:
		return causeChanged
	case s.dependent:
		return causeDependent
	}
	return causeRestart
}

// recall restores the memory from an object's record. If a run's end is in the future, the clock that
// recorded it was ahead: the run counts as ending now, or the next run would wait until that time.
func (m *memory) recall(record status.Record, now time.Time) {
	if record.Last != nil {
		m.last = record.Last
		if ahead := m.last.Finished.Sub(now); ahead > 0 {
			m.last.Started, m.last.Finished = m.last.Started.Add(-ahead), now
			if wait := m.last.Wait; wait != nil {
				wait.Since, wait.Until = wait.Since.Add(-ahead), wait.Until.Add(-ahead)
			}
		}
		m.judge(m.last)
		if wait := m.last.Wait; wait != nil {
			m.asked = &asked{m.last.Fingerprint, *wait}
		}
	}
	m.lost = record.Active
	switch held := record.Held; {
	case held == nil:
	case held.Cause == "":
		m.held = heldRun{generation: -1} // by an earlier process
	default:
		m.held = heldRun{cause: cause(held.Cause), generation: held.Generation, until: held.Until}
	}
	if record.NotWatched {
		m.notWatched = "as an earlier process has found it"
	}
}

// judge sets judged to run, unless run was interrupted or a check.
func (m *memory) judge(run *status.Run) {
	if run.Result != status.Interrupted && run.Mode != status.ModeCheck {
		m.judged = run
	}
}

// forget drops the state of an object that the cache no longer has. It removes the object's
// directories only if the object is really gone, not if it merely left the selector.
func (r *reconciler) forget(ctx context.Context, key types.NamespacedName) error {
	var m *memory
	r.objects.with(key, func(e *entry) {
		m, e.dependentChanged, e.changedInOtherNamespace, e.due, e.deleted = e.memory, "", "", time.Time{}, time.Time{}
		e.drifted, e.failed, e.elsewhere, e.listed, e.waiting = false, false, false, false, waitingRun{}
	})
	if r.dependents != nil {
		r.dependents.Forget(key)
	}
	if r.referring != nil {
		r.referring.forget(key)
	}
	r.places.Gone(key)
	if m == nil {
		r.forgetMetrics(key)
		return nil
	}
	obj := r.newObject()
	err := r.client.Get(ctx, key, obj)
	gone := apierrors.IsNotFound(err) || err == nil && obj.GetUID() != m.uid
	// A deleted namespace takes its permissions along, so that reads are forbidden. The directories stay then, until they are
	// too old or another process finds them.
	if err != nil && !gone && !apierrors.IsForbidden(err) {
		return fmt.Errorf("look whether the object is gone: %w", err)
	}
	if gone {
		failpoint.Hit("forget.before-remove")
		if m.unwritten != nil {
			r.forgetRun(m.unwritten.ID, string(m.uid))
		}
		if err := r.store.Forget(string(m.uid), r.pathOf(key)...); err != nil {
			r.log.Error(err, "Directories of a deleted object cannot be removed", "namespace", key.Namespace, "name", key.Name)
		}
		failpoint.Hit("forget.removed")
	}
	r.objects.with(key, func(e *entry) { e.memory = nil })
	r.forgetMetrics(key)
	return nil
}

// settle hands the directory of an ended run over to retention.
func (r *reconciler) settle(s *scope, run string) {
	r.forgetRun(run, s.uid())
	r.store.Finish(s.uid(), run, s.settings.retention())
}

// forgetMetrics removes the metrics of an object that no watch of the version knows. Call it after
// dropping the memory, so that of two watches that forget the object at once the last one removes them.
func (r *reconciler) forgetMetrics(key types.NamespacedName) {
	if !r.knownElsewhere(key) {
		r.metrics.ObjectGone(r.gvk, key.Namespace, key.Name)
	}
}
