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

// cause says why a run starts. The words stand in the status, in logs and in
// metrics.
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

// minPeriod is the shortest time between two runs that a period or a
// requeue_after can ask for: less than that, and one object keeps the operator
// from all others.
const minPeriod = time.Second

// maxPeriod is the longest: with the jitter on top it stays a duration.
const maxPeriod = 10 * 365 * 24 * time.Hour

// retry is the policy for failed runs.
type retry struct {
	min, max time.Duration
	// factor is by how much the time grows; 0 is 2.
	factor float64
	// most is how many runs in a row may fail before the object stalls, or, if that is
	// false, is run at the longest interval; 0 is no limit.
	most   int64
	stalls bool
}

// retryOf is the policy of a watch, with that of the flags for what it does not say.
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

// delay is the time from the end of the n-th failure in a row to the next run.
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

// unbounded is the policy for what is not a failure of the role: it goes on for ever.
func (r retry) unbounded() retry {
	r.most = 0
	return r
}

// blameless tells the reasons of failures that are not the role's: there was no room for the
// run, it could not be made, or it was cancelled. They do not count as attempts.
func blameless(reason string) bool {
	switch reason {
	case string(runner.NoSpace), status.ReasonUnavailable, status.ReasonNotRun, status.ReasonCancelled, string(runner.CommandNotRunnable):
		return true
	}
	return false
}

// blocked counts the runs in a row whose end is not the role's doing: n before run. Another
// interruption says nothing of what blocks the object.
func blocked(n int64, run status.Run) int64 {
	switch {
	case run.Disrupted(), run.Result == status.Failed && blameless(run.Reason):
		return n + 1
	case run.Result == status.Interrupted:
		return n
	}
	return 0
}

// exhausted tells whether n failures in a row are as many as may be.
func (r retry) exhausted(n int64) bool { return r.most > 0 && n >= r.most }

// jitter lengthens d by up to a tenth, so that objects created together do not
// run together for ever. It depends on the last run's ID only: a restarted
// operator comes to the same time.
func jitter(d time.Duration, id string) time.Duration {
	d = min(d, maxPeriod)
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash never fails
	return d + time.Duration(float64(d)*0.1*float64(h.Sum32()%1024)/1024)
}

// situation is what the decision about a run rests on.
type situation struct {
	// last is the recorded run; nil if none is known.
	last *status.Run
	// met is what the object was like when the process met it, if it was run before, as far as
	// that is known; else nil.
	firstSeen *firstSeen
	// deleting is true if the object is being deleted and waits for us.
	deleting bool
	// dependent is true if another client has changed what the object owns.
	dependent bool
	// blocked is how many runs in a row have ended by what is not the role's; see [blocked].
	blocked int64
	// loops is how many runs in a row such changes have started; effects is those that changes like the ones since have started.
	loops, effects int
	// ownSpec is true if nothing but the last run itself has changed the spec since.
	ownSpec bool
	// fingerprint and generation are the current inputs'.
	fingerprint string
	generation  int64
	// moved is true if another watch of the kind has made the last run.
	moved bool
	// environment is true if nothing but the environment differs from the last run's inputs.
	environment bool
	// others is the cause if nothing but other objects does; else empty.
	others cause
	// ofObject is true if the object, or another one that starts its runs, is known to differ too.
	ofObject bool
	// times are those of the watch's schedule, for the object.
	times timetable
	// period is the time between runs that nothing asks for; 0 disables.
	period time.Duration
	retry  retry
	// mode says which runs are checks.
	mode watches.Mode
	// arrived is true if what the last run has parked the object for is there;
	// nextLook is when to look again.
	arrived  bool
	nextLook time.Time
	// paused is until when nothing but a deletion starts a run, and not even that if
	// pausesDeletion is true.
	paused         time.Time
	pausesDeletion bool
	// requested names the run that was asked for by hand last; empty if none was.
	requested string
}

// plan is the decision: run now for a cause, or wait. A wait of 0 without a
// cause means that only an event starts the next run. held is the cause of a run
// that would start now if the object were not paused, or, with until, if the maintenance
// window were open that opens then. check is true for a run that changes nothing.
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

// pauseLeft is when to look at an object again that is paused until a time; 0 if the pause has no end.
func pauseLeft(now, paused time.Time) time.Duration {
	if !paused.Before(forEver()) {
		return 0
	}
	return min(paused.Sub(now), maxPeriod)
}

// due is the plan for an object that is not paused, at any time.
func (s situation) due(now time.Time) plan {
	switch last := s.last; {
	case s.deleting && (last == nil || last.Cause != string(causeDeleted)):
		return plan{cause: causeDeleted}
	case last == nil:
		return plan{cause: s.unrecorded()}
	case last.Result == status.Interrupted && !last.BacksOff():
		return plan{cause: s.ifDeleting(causeInterrupted)}
	case last.LostOften():
		// Its record has the fingerprint and the request of the run before it: only the generation tells what has changed since.
		if last.Generation != s.generation {
			return plan{cause: s.ifDeleting(causeChanged)}
		}
		return s.timed(now)
	case s.requested != "" && s.requested != last.Handled:
		return plan{cause: s.ifDeleting(causeManual)} // also of what a rollout holds
	case s.deleting && last.Fingerprint != s.fingerprint && s.ownSpec:
		return s.timed(now) // a finalizer run that changes its own object has no other pause
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
		if last.Generation != s.generation || s.generation == 0 {
			if wait := last.Finished.Add(loopPause).Sub(now); s.ownSpec && s.loops >= loopRuns && wait > 0 {
				return plan{wait: min(wait, loopPause)}
			}
			return plan{cause: causeChanged}
		}
		return plan{cause: causeContent}
	}
	p := s.timed(now)
	if p.cause == "" && s.dependent && s.effects >= loopRuns {
		// What is due without the change by others does not wait for it.
		s.dependent = false
		if other := s.timed(now); other.cause != "" || other.wait > 0 && other.wait < p.wait {
			return other
		}
	}
	return p
}

// timed is the plan for an object of which nothing has changed that starts a run at once.
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
		// A recorded end in the future is a clock that went back: never wait
		// longer than the whole delay for it.
		return plan{wait: min(wait, due.Sub(s.last.Finished))}
	}
	return plan{cause: s.ifDeleting(why)}
}

// waiting is the plan for an object that the last run has parked. When the time is
// over the object runs, too: the run says so.
func (s situation) waiting(now time.Time) plan {
	wait := s.last.Wait
	if s.arrived || !now.Before(wait.Until) {
		return plan{cause: s.ifDeleting(causeWaited)}
	}
	// A recorded time in the future is a clock that went back.
	next := min(wait.Until.Sub(now), wait.Until.Sub(wait.Since), max(s.nextLook.Sub(now), minLook))
	return plan{wait: max(next, time.Millisecond)}
}

func (s situation) ifDeleting(c cause) cause {
	if s.deleting {
		return causeDeleted
	}
	return c
}

// next is when the run after s.last is due if nothing changes, and why; no cause means
// never. A firing of the schedule counts as long as no run has started since, so that one
// that was missed is made good once.
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

// unscheduled is next without a schedule.
func (s situation) unscheduled() (time.Time, cause) {
	last := s.last
	delay, why := s.period, causePeriod
	switch {
	case s.drifted():
		return last.Finished.Add(time.Millisecond), causeDrift // not at once, which would be never
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
		return last.Finished.Add(min(last.RequeueAfter, maxPeriod)), causeRequeueAfter // the time that the run asks for, without jitter
	case s.deleting:
		// A success that is recorded but whose finalizer is still there was
		// recorded by another process: only a proof of our own takes it off.
		return last.Finished, causeDeleted
	case s.period <= 0:
		return time.Time{}, ""
	}
	return last.Finished.Add(jitter(delay, last.ID)), why
}

// stalled is true after a failure that no run follows by itself. A finalizer run is always
// repeated, since its object keeps others waiting, such as its namespace.
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

// again is how long after its end a failed run is repeated, and why.
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

// stallLook is the longest time between two looks at the inputs of a stalled object.
const stallLook = time.Minute

// recheckAfter is after how long the inputs of an object are looked at of which no run is
// planned; 0 if an event tells of all that can start one. No event tells of a role that
// was fixed in its place.
func (s situation) recheckAfter() time.Duration {
	if s.stalled() {
		return min(s.retry.max, stallLook)
	}
	return 0
}

// delay is the time from the end of the last run to the next one; 0 if none is planned.
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
