package controller

import (
	"cmp"
	"hash/fnv"
	"math"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// cause says why a run starts. It appears in the status, in logs and in metrics.
type cause string

const (
	causeCreated      cause = "created"
	causeChanged      cause = "changed"
	causeContent      cause = "content"
	causeEnvironment  cause = "environment"
	causeDependent    cause = "dependent"
	causeReference    cause = "reference"
	causeTrigger      cause = "trigger"
	causePeriod       cause = "period"
	causeSchedule     cause = "schedule"
	causeRequeueAfter cause = "requeue_after"
	causeRetry        cause = "retry"
	causeInterrupted  cause = "interrupted"
	causeManual       cause = "manual"
	causeDeleted      cause = "deleted"
	causeWaited       cause = "waited"
	causeDrift        cause = "drift"
	causeRestart      cause = "restart"
)

// minPeriod is the shortest interval that a period or a requeue_after can ask for.
// With a shorter one, a single object could keep the operator busy all the time.
const minPeriod = time.Second

// maxPeriod is the longest interval. With jitter added, it still fits a [time.Duration].
const maxPeriod = 10 * 365 * 24 * time.Hour

// retry is the policy for failed runs.
type retry struct {
	min, max time.Duration
	// factor multiplies the delay after each failure; 0 means 2.
	factor float64
	// most is how many runs in a row may fail; 0 is no limit. After that, the object stalls if
	// stalls is true; otherwise it is run at the longest interval.
	most   int64
	stalls bool
}

// retryOf returns the policy of a watch. shortest and longest come from the flags and fill in what the watch leaves out.
func retryOf(w watches.Retry, shortest, longest time.Duration) retry {
	r := retry{
		min: cmp.Or(w.Initial, shortest), max: cmp.Or(w.Max, longest), factor: w.Factor,
		most: int64(w.MaxAttempts), stalls: w.OnExhausted != watches.OnExhaustedContinue,
	}
	if w.Max == 0 {
		r.max = max(r.max, r.min)
	}
	r.min = min(r.min, r.max)
	return r
}

// delay returns the time from the end of the n-th failure in a row to the next run.
func (r retry) delay(n int64) time.Duration {
	if r.exhausted(n) {
		return r.max
	}
	grown := float64(r.min) * math.Pow(cmp.Or(r.factor, 2), float64(max(n-1, 0)))
	if grown >= float64(r.max) {
		return r.max
	}
	return time.Duration(grown)
}

// unbounded returns the policy without a limit, for what is not the role's failure: that is retried for ever.
func (r retry) unbounded() retry {
	r.most = 0
	return r
}

// blameless reports whether a failure's reason is not the role's fault: there was no room for the
// run, it could not be made, or it was cancelled. Such failures do not count as attempts.
func blameless(reason string) bool {
	switch reason {
	case string(runner.NoSpace), status.ReasonNoMemory, status.ReasonUnavailable, status.ReasonNotRun, status.ReasonCancelled, string(runner.CommandNotRunnable):
		return true
	}
	return false
}

// blocked returns how many runs in a row, including run, have ended through no fault of the role; n is the
// number before run. An interruption that is no disruption leaves the number as it is.
func blocked(n int64, run status.Run) int64 {
	switch {
	case run.Disrupted(), run.Result == status.Failed && blameless(run.Reason):
		return n + 1
	case run.Result == status.Interrupted:
		return n
	}
	return 0
}

// exhausted reports whether n failures in a row have reached the limit.
func (r retry) exhausted(n int64) bool { return r.most > 0 && n >= r.most }

// jitter lengthens d by up to a tenth, so that objects created together do not
// run together for ever. It depends only on the last run's ID, so a restarted
// operator computes the same time.
func jitter(d time.Duration, id string) time.Duration {
	d = min(d, maxPeriod)
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash never fails
	return d + time.Duration(float64(d)*0.1*float64(h.Sum32()%1024)/1024)
}

// situation holds everything on which the decision about a run depends.
type situation struct {
	// last is the recorded run; nil if none is known.
	last *status.Run
	// firstSeen is the state in which this process found an object that was run before without a
	// record; else nil.
	firstSeen *firstSeen
	// deleting is true if the object is being deleted and waits for the operator.
	deleting bool
	// dependent is true if another client has changed a dependent of the object.
	dependent bool
	// blocked is how many runs in a row have ended through no fault of the role; see [blocked].
	blocked int64
	// loops is how many runs in a row changes by others, or by the run itself, have started. effects is the same number
	// for changes like the current one: in the object's own namespace, or in other namespaces.
	loops, effects int
	// own is true if only the last run itself has changed the spec since, or if it may have changed the annotations.
	own bool
	// fingerprint and generation are those of the current inputs.
	fingerprint string
	generation  int64
	// moved is true if another watch of the kind made the last run.
	moved bool
	// itself is true if the object was changed, or may have been, in the same generation.
	itself bool
	// environment is true if only the environment differs from the last run's inputs.
	environment bool
	// others is the cause of a run if only other objects differ from the last run's inputs; else empty.
	others cause
	// ofObject is true if the object, a referenced object or a trigger is known to differ from the last run's inputs.
	ofObject bool
	// times is the watch's schedule, as it applies to the object.
	times timetable
	// period is the time after a run until the next one if nothing changes; 0 for none.
	period time.Duration
	retry  retry
	// mode says which runs are checks.
	mode watches.Mode
	// arrived is true if what the parked object waits for has come about;
	// nextLook is when to check that again.
	arrived  bool
	nextLook time.Time
	// paused is the end of a pause, during which only a deletion starts a run, and not even
	// that if pausesDeletion is true.
	paused         time.Time
	pausesDeletion bool
	// requested names the run that was last requested by hand; empty if none was.
	requested string
}

// plan is the decision: run now for a cause, or wait. A wait of 0 without a cause
// means that only an event starts the next run. held is the cause of a run that is due but
// held back: by a pause if until is zero, else until the maintenance window opens at that
// time. check is true for a run that changes nothing.
type plan struct {
	cause, held cause
	until       time.Time
	check       bool
	wait        time.Duration
}

// decide is a pure function of its arguments.
func decide(now time.Time, s situation) plan {
	p := s.due(now)
	switch {
	case p.cause == "" || s.deleting && !s.pausesDeletion:
	case s.paused.After(now):
		p.held, p.cause = p.cause, ""
		p.wait = pauseLeft(now, s.paused)
	case !s.deleting:
		p = s.inWindow(now, p)
	}
	p.check = s.checks(p.cause)
	return p
}

// pauseLeft returns the delay until a paused object is checked again; 0 if the pause has no end.
func pauseLeft(now, paused time.Time) time.Duration {
	if !paused.Before(forEver()) {
		return 0
	}
	return min(paused.Sub(now), maxPeriod)
}

// due returns the plan without regard to a pause or a maintenance window.
func (s situation) due(now time.Time) plan {
	switch last := s.last; {
	case s.deleting && (last == nil || last.Cause != string(causeDeleted)):
		return plan{cause: causeDeleted}
	case last == nil:
		return plan{cause: s.unrecorded()}
	case last.Result == status.Interrupted && !last.BacksOff():
		return plan{cause: s.ifDeleting(causeInterrupted)}
	case last.LostOften():
		// The record of a lost run has the fingerprint and request of the run before it, so only the generation shows a change.
		if last.Generation != s.generation && !changeWaits(last) {
			return plan{cause: s.ifDeleting(causeChanged)}
		}
		return s.timed(now)
	case s.requested != "" && s.requested != last.Handled:
		return plan{cause: s.ifDeleting(causeManual)} // even if a rollout holds the object
	case s.deleting && last.Fingerprint != s.fingerprint && s.own:
		return s.timed(now) // nothing else slows down a finalizer run that changes its own object
	case s.deleting && last.Fingerprint != s.fingerprint:
		return plan{cause: causeDeleted}
	case last.Fingerprint != s.fingerprint:
		if s.moved {
			return plan{cause: causeChanged}
		}
		if s.environment {
			return plan{cause: causeEnvironment}
		}
		if s.others != "" {
			pause := effectPause(s.loops)
			if wait := last.Finished.Add(pause).Sub(now); wait > 0 {
				return plan{wait: min(wait, pause)}
			}
			return plan{cause: s.others}
		}
		if wait := last.Finished.Add(loopPause).Sub(now); s.own && s.loops >= loopRuns && wait > 0 {
			return plan{wait: min(wait, loopPause)}
		}
		if last.Generation != s.generation || s.itself {
			return plan{cause: causeChanged}
		}
		return plan{cause: causeContent}
	}
	p := s.timed(now)
	if p.cause == "" && s.dependent && s.effects >= loopRuns {
		// A run that is due without the others' change must not wait for loopPause.
		s.dependent = false
		if other := s.timed(now); other.cause != "" || other.wait > 0 && other.wait < p.wait {
			return other
		}
	}
	return p
}

// timed returns the plan for an object without a change that starts a run at once.
func (s situation) timed(now time.Time) plan {
	if s.last.Wait != nil && (!s.dependent || s.deleting) {
		return s.waiting(now)
	}
	due, why := s.next(now)
	if why == "" {
		return plan{wait: s.recheckAfter()}
	}
	if wait := due.Sub(now); wait > 0 {
		if why == causeSchedule {
			return plan{wait: min(wait, maxPeriod)}
		}
		// A recorded end in the future means that the clock went back: never wait
		// longer than the whole delay.
		return plan{wait: min(wait, due.Sub(s.last.Finished))}
	}
	return plan{cause: s.ifDeleting(why)}
}

// waiting returns the plan for a parked object. The object also runs when its time to wait is
// over; that run reports it.
func (s situation) waiting(now time.Time) plan {
	wait := s.last.Wait
	if s.arrived || !now.Before(wait.Until) {
		return plan{cause: s.ifDeleting(causeWaited)}
	}
	// The clock may have gone back: never wait longer than the whole time.
	next := min(wait.Until.Sub(now), wait.Until.Sub(wait.Since), max(s.nextLook.Sub(now), minLook))
	return plan{wait: max(next, time.Millisecond)}
}

func (s situation) ifDeleting(c cause) cause {
	if s.deleting {
		return causeDeleted
	}
	return c
}

// next returns when the run after s.last is due if nothing changes, and why; without a cause,
// no run is planned. A firing of the schedule counts until a run starts after it, so missed
// firings lead to one run.
func (s situation) next(now time.Time) (time.Time, cause) {
	due, why := s.unscheduled()
	if s.deleting || why == "" && s.stalled() || why != "" && why != causePeriod && why != causeRequeueAfter {
		return due, why
	}
	since := s.last.Started.Round(0) // by the wall clock, as the schedule is
	if since.After(now.Round(0)) {
		since = now // the clock went back
	}
	if firing := s.times.firing(since); !firing.IsZero() && (why == "" || firing.Before(due)) {
		return firing, causeSchedule
	}
	return due, why
}

// unscheduled is next without regard to the schedule.
func (s situation) unscheduled() (time.Time, cause) {
	last := s.last
	delay, why := s.period, causePeriod
	switch {
	case s.drifted():
		return last.Finished.Add(time.Millisecond), causeDrift // a delay of zero would mean never
	case s.stalled():
		return time.Time{}, ""
	case last.BacksOff():
		delay, why = s.retry.unbounded().delay(max(s.blocked, last.Losses)), causeInterrupted
	case last.Result == status.Failed:
		delay, why = s.again()
	case s.dependent && !s.deleting:
		delay, why = effectPause(s.effects), causeDependent
	case last.Wait != nil:
		return last.Finished.Add(minLook), causeWaited
	case last.RequeueAfter > 0:
		return last.Finished.Add(min(last.RequeueAfter, maxPeriod)), causeRequeueAfter // exactly the time that the run asked for, without jitter
	case s.deleting:
		// Another process recorded this success and did not remove the finalizer:
		// only a run of this process proves that it may be removed.
		return last.Finished, causeDeleted
	case s.period <= 0:
		return time.Time{}, ""
	}
	return last.Finished.Add(jitter(delay, last.ID)), why
}

// stalled reports whether the last run failed and no retry is planned. A finalizer run is always
// retried, since others may wait for the deletion of its object, such as its namespace.
func (s situation) stalled() bool {
	switch last := s.last; {
	case last.Result != status.Failed, s.deleting:
		return false
	case last.Permanent, last.Reason == status.ReasonCancelled:
		return true
	case blameless(last.Reason):
		return false
	default:
		return s.retry.stalls && s.retry.exhausted(last.Attempts) && !s.dependent
	}
}

// again returns the delay from the end of a failed run to its repetition, and the cause of that.
func (s situation) again() (time.Duration, cause) {
	last := s.last
	delay, why := max(s.retry.delay(last.Attempts), last.RequeueAfter), causeRetry
	switch {
	case blameless(last.Reason):
		delay = s.retry.unbounded().delay(s.blocked)
	case s.deleting && last.Permanent:
		delay = s.retry.max
	case !s.deleting && s.retry.stalls && s.retry.exhausted(last.Attempts):
		why = causeDependent
	}
	return delay, why
}

// stallLook is the longest interval between two checks of a stalled object's inputs.
const stallLook = time.Minute

// recheckAfter returns the delay until the inputs of an object without a planned run are checked
// again; 0 if events announce everything that can start a run. No event announces that a stalled
// object's role was fixed in place.
func (s situation) recheckAfter() time.Duration {
	if s.stalled() {
		return min(s.retry.max, stallLook)
	}
	return 0
}

// delay returns the time from the end of the last run to the next one; 0 if none is planned.
func (s situation) delay() time.Duration {
	due, why := s.next(s.last.Finished)
	switch why {
	case "":
		return 0
	case causeSchedule:
		return max(due.Sub(s.last.Finished), time.Millisecond) // it may have fired during the run
	}
	return due.Sub(s.last.Finished)
}
