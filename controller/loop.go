package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
)

// A role and another controller that change the same object back and forth would run for ever,
// and so would a role that changes its own object in each run. After loopRuns runs in a
// row, such changes start only one run per loopPause.
const (
	loopRuns  = 10
	loopPause = 5 * time.Minute
)

// loops returns how many runs in a row, up to run, were started by changes of others or, with
// own, of the last run itself; n is the number up to last. Failed runs count, too, since a
// change of a reference does not wait for the retry. A timed run does not end the series if a
// dependent had changed when it began: the change would have started a run anyway.
func loops(n int, last *status.Run, run status.Run, own, changed bool) int {
	effect := byEffect(run, own)
	switch {
	case run.Result == status.Interrupted:
		return 0
	case !effect && changed && slices.Contains([]cause{causePeriod, causeSchedule, causeRetry, causeRequeueAfter}, cause(run.Cause)):
		return n
	case !effect:
		return 0
	case last != nil && run.Started.Sub(last.Finished) > 2*loopPause:
		return 1
	}
	return n + 1
}

// byEffect reports whether run was started by a change of others or, with own, of the last run itself.
func byEffect(run status.Run, own bool) bool {
	return slices.Contains([]cause{causeDependent, causeReference, causeTrigger}, cause(run.Cause)) ||
		own && cause(run.Cause) == causeChanged
}

// countLoops counts a run that ended, and returns how many of its sort there were in a row. Changes of dependents in other
// namespaces are counted separately: clients with access only there must not be able to delay changes here.
func (m *memory) countLoops(run status.Run, own, changed, otherNamespace bool) int {
	if otherNamespace && cause(run.Cause) == causeDependent {
		m.otherNamespaceLoops = loops(m.otherNamespaceLoops, m.last, run, false, false)
		return m.otherNamespaceLoops
	}
	if !byEffect(run, own) {
		m.otherNamespaceLoops = loops(m.otherNamespaceLoops, m.last, run, false, changed || otherNamespace)
	}
	last := m.last
	if last != nil && !m.nearEnd.IsZero() {
		last = &status.Run{Finished: m.nearEnd}
	}
	m.loops, m.nearEnd = loops(m.loops, last, run, own, changed), run.Finished
	return m.loops
}

// effectPause returns the pause between a run and the next one that a change of others starts, after n such runs in a row.
func effectPause(n int) time.Duration {
	if n >= loopRuns {
		return loopPause
	}
	return minPeriod // another controller may change back what a run does
}

// ownChange reports whether the last run itself made this generation, by changing the object's spec, or has changed what else of
// the object is an input, such as annotations: the object is as it was after the run, and not as the run found it.
func (s *scope) ownChange(generation int64) bool {
	m := s.memory
	if m.ownSpec > 0 {
		return m.ownSpec == generation
	}
	object := fingerprint.Part{Group: fingerprint.OfObject, Value: m.ownObject}
	return m.ownObject != "" && m.last.Generation == generation && slices.Contains(s.parts, object) && among(s.changes(), fingerprint.OfObject)
}

// ownObject returns the digest of the object's inputs if the run that has just ended wrote its object, but not its spec; else, or
// if the object cannot be read, it returns an empty string. Without it, a change by the run counts as a change by others.
func (r *reconciler) ownObject(ctx context.Context, s *scope) string {
	if !s.progress.ownWrite() || s.progress.ownSpec() > 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, progressTimeout) // the result has to be written in the same time
	defer cancel()
	obj := s.object.DeepCopy()
	if err := r.readAgain(ctx, obj); err != nil {
		s.log.V(1).Info("The object cannot be read after its run has written it", "error", err.Error())
		return ""
	}
	digest, err := fingerprint.Object(obj.Object, ofObject(r.watch))
	if err != nil {
		s.log.Error(err, "The object cannot be compared after its run has written it")
	}
	return digest
}

// noteLoop counts the run that ended, and notes in it if it is part of a loop.
func (r *reconciler) noteLoop(s *scope, run *status.Run) {
	own := s.ownChange(run.Generation)
	n := s.memory.countLoops(*run, own, s.dependentChanged, s.changedInOtherNamespace)
	if n < loopRuns {
		return
	}
	if !byEffect(*run, own) {
		if last := s.memory.last; last != nil && last.Loop != "" { // the loop goes on
			run.Loop, run.Warnings = last.Loop, append(run.Warnings, last.Loop)
		}
		return
	}
	run.Loop = fmt.Sprintf("It ran %d times in a row because other clients changed what it owns, the last time: %s. "+
		"Such changes start one run each %s now. Find out which client writes those fields, or leave them out of the role",
		n, run.Trigger, loopPause)
	if own && run.Cause == string(causeChanged) {
		run.Loop = fmt.Sprintf("It ran %d times in a row because its own role changes it, the last time: %s. "+
			"Such changes start one run each %s now. Write to the status of the object, or to another object",
			n, run.Trigger, loopPause)
	}
	run.Warnings = append(run.Warnings, run.Loop)
	r.metrics.Loop(r.gvk)
	if n == loopRuns {
		r.tell(s, reported{corev1.EventTypeWarning, status.ReasonLoop, actionReconcile, run.Loop})
	}
}
