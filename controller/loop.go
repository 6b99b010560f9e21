package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/controller/status"
)

// A role and another controller that change the same object of a cluster back and forth run
// for ever. After loopRuns runs in a row that changes by others have started, such changes
// start one run each loopPause.
const (
	loopRuns  = 10
	loopPause = 5 * time.Minute
)

// loops counts the runs in a row that changes by others have started: n before run, which
// follows last. Failed ones count, too: a change of a reference does not wait for a retry.
func loops(n int, last *status.Run, run status.Run) int {
	switch {
	case !slices.Contains([]cause{causeDependent, causeReference, causeTrigger}, cause(run.Cause)), run.Result == status.Interrupted:
		return 0
	case last != nil && run.Started.Sub(last.Finished) > 2*loopPause:
		return 1
	}
	return n + 1
}

// effectPause is how long after a run a change by others starts the next one.
func (s situation) effectPause() time.Duration {
	if s.loops >= loopRuns {
		return loopPause
	}
	return minPeriod // another controller may change back what a run does
}

// noteLoop counts the run that ended, and says in it where it is one of a loop.
func (r *reconciler) noteLoop(s *scope, run *status.Run) {
	s.memory.loops = loops(s.memory.loops, s.memory.last, *run)
	if s.memory.loops < loopRuns {
		return
	}
	run.Loop = fmt.Sprintf("It was run %d times in a row because of changes by others, the last one: %s. "+
		"Changes by others start one run each %s now: find out who changes it back, or let the role leave those fields alone",
		s.memory.loops, run.Trigger, loopPause)
	run.Warnings = append(run.Warnings, run.Loop)
	r.metrics.Loop(r.gvk)
	if s.memory.loops == loopRuns {
		r.tell(s, reported{corev1.EventTypeWarning, status.ReasonLoop, actionReconcile, run.Loop})
	}
}
