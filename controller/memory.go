package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
)

// memory is what the reconciler remembers of an object between reconciles. It
// is used by the one reconcile of the object in progress.
type memory struct {
	uid types.UID
	// last is the object's last run, as recorded in its status when the
	// process read it first, and as it took place since.
	last *status.Run
	// firstSeen is the state of an object that was run before although its status records no run; nil if there is a record,
	// or nothing tells of a run.
	firstSeen *firstSeen
	// judged is the last run that was applied and not interrupted, as far as it is known.
	judged *status.Run
	// lost is the run that the status shows in progress and that this process does
	// not make; nil if there is none.
	lost *status.Active
	// left says which parts of the lost run, such as its Pod, were there at the last check; leftPause is the pause before the next.
	left      string
	leftPause time.Duration
	// unbegun is the ID of a run that this process has not started, since it does not know whether its start was recorded.
	unbegun string
	// unanswered counts such runs in a row.
	unanswered int64
	// unwritten is a run whose end could not be written yet.
	unwritten *status.Run
	// finalized is true once a finalizer run of this object was proved, or given up.
	finalized bool
	// ran is true once this process has run the object.
	ran bool
	// nextLook is when to look again for what the object waits for, looks how the last went.
	nextLook time.Time
	looks    looks
	// asked is what the object was parked for last, unless a success has asked for
	// nothing since; nil for nothing.
	asked *asked
	// finalizerAt is when the finalizers were patched last.
	finalizerAt time.Time
	// ownSpec is the generation that the last run has made by changing its own spec; 0 for none.
	ownSpec int64
	// loops is how many runs in a row such changes, or those of other clients, have started, and nearEnd when the last run ended
	// that may count there. otherNamespaceLoops counts those that changes of dependents in other namespaces have started.
	loops, otherNamespaceLoops int
	nearEnd                    time.Time
	// blocked is how many ends in a row were not the role's.
	blocked int64
	// observed is the last generation that the status was brought to without a run.
	observed int64
	// held is the run that the status says is held back; zero for none.
	held heldRun
	// refused is until when the status is not written of an object that is not run, because that
	// was refused; zero if it was not.
	refused time.Time
	// notWatched are the lines of what the status says cannot be watched.
	notWatched string
}

// heldRun is a run that a pause holds back, or, with until, that waits for a maintenance
// window, or, with stuck, for the reason that this says.
type heldRun struct {
	cause      cause
	generation int64
	until      int64 // in Unix time
	stuck      string
}

// remember is the memory of an object, new if its UID is; stale is that of an earlier object with the name.
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
		r.log.Info("Part of status.ansible is not as this operator writes it, and is ignored; look who else writes the status of the object",
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

// record is what the status of an object says of its runs. A status that the
// operator does not write says nothing: who creates the object may have written
// it.
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

// ranBefore reports whether an object has been run of which no run is recorded: by its
// conditions, else by the finalizer that it got before its first run. Where there is neither,
// it may have been.
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

// firstSeenOf is the state of an object that was run before without a record. It is not known which request to reconcile
// was handled last: it is taken for the one that the object bears.
func (r *reconciler) firstSeenOf(obj *unstructured.Unstructured, record status.Record) *firstSeen {
	set, _ := r.settingsOf(obj)
	return &firstSeen{generation: cmp.Or(record.EndedGeneration, obj.GetGeneration()), requested: set.requested, result: record.Ended}
}

// firstSeen is the state in which this process found an object that was run before, and whose status records no run.
// generation is that of the last run, if it is known.
type firstSeen struct {
	generation int64
	requested  string
	// result is how its last run ended; empty if that is not known.
	result status.Result
}

// unrecorded is the cause of the run of an object of which none is recorded. One that was
// run before is run to be safe, and not before what has changed since the operator started.
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

// recall takes over what is recorded of an object's runs. A run that seems to end in the future was
// recorded by a clock that was ahead: it counts as one that ends now, or what is due after it would wait for
// that clock's time.
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

// judge takes over a run as the last one that was applied and not interrupted, if it was.
func (m *memory) judge(run *status.Run) {
	if run.Result != status.Interrupted && run.Mode != status.ModeCheck {
		m.judged = run
	}
}

// forget drops what is kept of an object that is not in view any more. Its
// directories go only if it is really gone: it may just have left the selector.
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
	err := r.live.Get(ctx, key, obj)
	gone := apierrors.IsNotFound(err) || err == nil && obj.GetUID() != m.uid
	// With a namespace go its permissions: its directories stay, until they are too old or another process finds them.
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

// settle leaves a run that has ended to retention.
func (r *reconciler) settle(s *scope, run string) {
	r.forgetRun(run, s.uid())
	r.store.Finish(s.uid(), run, s.settings.retention())
}

// forgetMetrics removes the metrics of an object that no watch of the version knows. It comes
// after the memory is gone: of two watches that forget the object at once, the last one removes them.
func (r *reconciler) forgetMetrics(key types.NamespacedName) {
	if !r.knownElsewhere(key) {
		r.metrics.ObjectGone(r.gvk, key.Namespace, key.Name)
	}
}
