package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/controller/status"
)

// A role and another controller that change the same object of a cluster back and forth run
// for ever, and so does a role that changes its own spec each time. After loopRuns runs in a
// row that such changes have started, these start one run each loopPause.
const (
	loopRuns  = 10
	loopPause = 5 * time.Minute
)

// loops counts the runs in a row that changes by others, or with ownSpec the last run's own,
// have started: n before run, which follows last. Failed ones count, too: a change of a
// reference does not wait for a retry. A run by time does not end the count if a dependent was
// changed when it began: it has only come first.
func loops(n int, last *status.Run, run status.Run, ownSpec, changed bool) int {
	effect := byEffect(run, ownSpec)
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

// byEffect reports whether what others have changed, or with ownSpec the last run itself, has started a run.
func byEffect(run status.Run, ownSpec bool) bool {
	return slices.Contains([]cause{causeDependent, causeReference, causeTrigger}, cause(run.Cause)) || cause(run.Cause) == causeChanged && ownSpec
}

// countLoops counts a run that ended, and returns how many there are like it. Changes of what the object owns in other namespaces
// are counted apart: who may write there, and not here, could have changes here wait.
func (m *memory) countLoops(run status.Run, ownSpec, changed, otherNamespace bool) int {
	if otherNamespace && cause(run.Cause) == causeDependent {
		m.otherNamespaceLoops = loops(m.otherNamespaceLoops, m.last, run, false, false)
		return m.otherNamespaceLoops
	}
	if !byEffect(run, ownSpec) {
		m.otherNamespaceLoops = loops(m.otherNamespaceLoops, m.last, run, false, changed || otherNamespace)
	}
	last := m.last
	if last != nil && !m.nearEnd.IsZero() {
		last = &status.Run{Finished: m.nearEnd}
	}
	m.loops, m.nearEnd = loops(m.loops, last, run, ownSpec, changed), run.Finished
	return m.loops
}

// effectPause is how long after a run a change by others starts the next one, after n in a row.
func effectPause(n int) time.Duration {
	if n >= loopRuns {
		return loopPause
	}
	return minPeriod // another controller may change back what a run does
}

// ownSpec reports whether it is the last run that has made a generation of the object.
func (s *scope) ownSpec(generation int64) bool {
	return s.memory.ownSpec > 0 && s.memory.ownSpec == generation
}

// noteLoop counts the run that ended, and says in it where it is one of a loop.
func (r *reconciler) noteLoop(s *scope, run *status.Run) {
	ownSpec := s.ownSpec(run.Generation)
	n := s.memory.countLoops(*run, ownSpec, s.dependentChanged, s.changedInOtherNamespace)
	if n < loopRuns {
		return
	}
	if !byEffect(*run, ownSpec) {
		if last := s.memory.last; last != nil && last.Loop != "" { // it goes on
			run.Loop, run.Warnings = last.Loop, append(run.Warnings, last.Loop)
		}
		return
	}
	run.Loop = fmt.Sprintf("It ran %d times in a row because other clients changed what it owns, the last time: %s. "+
		"Such changes start one run each %s now. Find out which client writes those fields, or leave them out of the role",
		n, run.Trigger, loopPause)
	if ownSpec && run.Cause == string(causeChanged) {
		run.Loop = fmt.Sprintf("It ran %d times in a row because its own role changes its spec, the last time: %s. "+
			"Such changes start one run each %s now. Write to the status of the object, or to another object",
			n, run.Trigger, loopPause)
	}
	run.Warnings = append(run.Warnings, run.Loop)
	r.metrics.Loop(r.gvk)
	if n == loopRuns {
		r.tell(s, reported{corev1.EventTypeWarning, status.ReasonLoop, actionReconcile, run.Loop})
	}
}
