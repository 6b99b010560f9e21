package controller

import (
	"cmp"
	"errors"
	"slices"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/limits"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// spareWorkers is the number of reconciles of a kind that may take place beside those with
// runs. They decide what is due, which takes almost no time.
const spareWorkers = 2

// newQueue returns the queue for the runs of all kinds.
func (s *Set) newQueue() *runqueue.Queue {
	group := limits.Find(cmp.Or(s.opts.limitsRoot, "/"))
	s.opts.Metrics.WaitForMemory(false) // so that the series exists from the start
	return runqueue.New(runqueue.Options{
		Max: s.opts.MaxConcurrentRuns,
		Memory: func() (used, limit int64) {
			if limit = group.Limits().Memory; limit == 0 {
				return 0, 0 // the operator does not judge the memory of a whole machine
			}
			return group.Taken(), limit
		},
		OnMemory: func(waits bool) {
			s.opts.Metrics.WaitForMemory(waits)
			if waits {
				s.log.Info("Runs wait for memory: with one more of their kind, the runs in progress may need more than the container has. " +
					"Raise its memory limit, or lower --max-concurrent-runs")
			}
		},
	})
}

// place asks for a place for the run that is due. It continues with the next phase once the run
// has a place.
func (r *reconciler) place(s *scope) phaseResult {
	if r.adopting() {
		return after(adoptionLook)
	}
	s.rollout = s.rolledOut()
	s.class = classOf(s.plan.cause)
	switch last := s.memory.last; {
	case s.plan.cause == causeRestart && r.watch.Rollout != (watches.Rollout{}):
		s.class = runqueue.Content // the content may have changed
	case last == nil:
	case s.plan.cause == causeTrigger && s.startsMany():
		s.class = runqueue.Trigger
	case s.class == runqueue.Deletion && last.Cause == string(causeDeleted) && (last.Result == status.Failed || last.LostOften()):
		s.class = runqueue.Retry // else objects whose finalizer run keeps failing would always come first
	case s.plan.cause == causeInterrupted && last.Generation == s.object.GetGeneration() && s.sharedChanged():
		s.class = runqueue.Content // the operator was replaced, with another role, during the run
	case s.plan.cause == causeInterrupted && last.LostOften():
		s.class = runqueue.Retry // the run may be why the operator gets killed
	}
	var has bool
	if has, s.due = r.places.Ask(s.key, s.class, s.due, s.rollout); has {
		s.queued = false
		return nextPhase
	}
	s.queued = true
	if s.class.Rolls() {
		return r.untilWritten(s, stallLook) // perhaps no event announces another change of the content
	}
	return r.untilWritten(s, 0)
}

// sharedChanged reports whether an input that other objects have too is known to differ from the last run's. The record of
// a lost run has the inputs of the run before it, so it differs from a changed object in any case.
func (s *scope) sharedChanged() bool {
	return slices.ContainsFunc(s.changes(), func(c fingerprint.Change) bool {
		return c.Group != fingerprint.OfObject && c.Group != fingerprint.OfReferences && c.Group != fingerprint.OfTriggers
	})
}

// rolledOut returns the digests of the inputs that the objects of the kind have in common: their
// content and environment, and, in Trigger, also the triggers that start many of them.
func (s *scope) rolledOut() runqueue.Inputs {
	parts := slices.DeleteFunc(slices.Clone(s.parts), func(p fingerprint.Part) bool {
		return p.Group == fingerprint.OfObject || ofReferred(p) || p.Group == fingerprint.OfSettings && p.Name == "mode" // inputs of one object only
	})
	content := fingerprint.Of(parts)
	for _, is := range s.triggered {
		if is.NameFromLabel == "" {
			parts = append(parts, is.part(is.total.String()))
		}
	}
	return runqueue.Inputs{Content: content, Trigger: fingerprint.Of(parts)}
}

// startsMany reports whether a trigger that has changed since the last run may also start other
// objects.
func (s *scope) startsMany() bool {
	var names []string
	for _, c := range s.changes() {
		if c.Group == fingerprint.OfTriggers {
			names = c.Names
		}
	}
	return slices.ContainsFunc(s.triggered, func(is triggered) bool {
		return is.NameFromLabel == "" && (len(names) == 0 || slices.Contains(names, is.name()))
	})
}

// classOf returns the class of a run for a cause.
func classOf(c cause) runqueue.Class {
	switch c {
	case causeDeleted:
		return runqueue.Deletion
	case causeManual:
		return runqueue.Manual
	case causeCreated, causeChanged, causeInterrupted:
		return runqueue.Change
	case causeDependent, causeReference, causeTrigger, causeWaited, causeDrift:
		return runqueue.Effect
	case causeContent, causeEnvironment:
		return runqueue.Content
	case causeRetry, causeRequeueAfter:
		return runqueue.Retry
	}
	return runqueue.Period
}

// judgeRollout tells the queue what it can learn from a run that ended: its memory, and whether the
// rollout goes well. before is the object's previous run.
func (r *reconciler) judgeRollout(s *scope, before *status.Run, run status.Run) {
	if s.ran && s.result.Executor() != runner.ExecutorJob { // a Job's memory is not the operator's
		r.places.Used(s.result.Memory)
	}
	if before != nil && before.Mode == status.ModeCheck {
		before = cmp.Or(s.memory.judged, &status.Run{})
	}
	switch {
	case s.earlier, s.plan.check, run.Result == status.Interrupted: // a check does not show how the role works
		return
	case run.Result == status.Succeeded:
		r.places.Recovered(s.key, s.rollout)
		return
	case !s.class.Rolls(), s.err != nil, blameless(run.Reason), // the role itself did not fail
		before == nil && (s.memory.firstSeen == nil || s.memory.firstSeen.result != status.Succeeded), // it may have failed before
		before != nil && before.Result == status.Failed:
		return
	}
	if r.places.Failed(s.key, s.class, s.rollout) {
		what := "The changed role, playbook or environment"
		if s.class == runqueue.Trigger {
			what = "The change that the watch's triggers reported"
		}
		r.log.Error(errors.New("the rollout is stopped"), what+" runs no further objects: as many as "+
			"rollout.stopOnFailures allows have failed with it. Change it again, or run single objects with the annotation "+ownPrefix+"reconcile-at", "trigger", s.trigger)
	}
}

// ages returns the ages and counts that the metrics of the kind show.
func (r *reconciler) ages() metrics.Ages {
	now, is := r.now(), r.places.State()
	ages := r.objects.oldest(now)
	if !is.Oldest.IsZero() {
		ages.Queue = max(ages.Queue, now.Sub(is.Oldest))
	}
	ages.Waiting, ages.Stopped = map[string]int{}, is.Stopped
	for class, n := range is.Waiting {
		ages.Waiting[class.String()] = n
	}
	return ages
}
