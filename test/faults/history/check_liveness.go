package history

import (
	"fmt"
	"slices"
	"time"
)

// Limits of I6 and of what the client has been told, counted from the last fault that
// hinders the operator: an expiring lease, the back-off, and runs of
// other objects, on an overloaded machine.
const (
	cancelLimit = 30 * time.Second
	retryLimit  = 45 * time.Second
	changeLimit = 75 * time.Second
)

// liveness is I6, and the part of I8 that concerns single runs: a run for an existing object
// ends when the object is deleted, a failure is retried, and a change that the API server has
// confirmed to the client leads to a run.
func (c *checker) liveness() {
	for _, r := range c.h.Runs {
		o := c.h.objects[r.UID]
		if o == nil || o.Deleted == 0 || r.Deleting || r.Begin == 0 || r.Begin > o.Deleted {
			continue
		}
		if deadline := c.deadline(o.Deleted, cancelLimit); r.LastSign > deadline {
			c.add("I6", r.UID, r.ID, fmt.Sprintf("the run went on for %s after the deletion of its object", r.LastSign.Since(o.Deleted).Round(time.Millisecond)), r)
		}
	}
	for _, rec := range c.records {
		if rec.last.Result != failed {
			continue
		}
		deadline := c.restedBy(rec.Received, retryLimit)
		again := slices.ContainsFunc(c.h.Runs, func(r *Run) bool {
			return r.UID == rec.object.UID && r.Started() > rec.Received.Plus(-clockError) && r.Started() < deadline.Plus(clockError)
		})
		if !again && !c.goneBy(rec.object, deadline) {
			c.add("I6", rec.object.UID, rec.last.ID, "the failed run was not tried again", rec)
		}
	}
	for _, op := range c.h.Operations {
		o := c.h.objects[op.UID]
		if op.Error != "" || op.Op != "create" && op.Op != "update" || o == nil {
			continue
		}
		deadline := c.restedBy(op.Completed, changeLimit)
		ran := slices.ContainsFunc(c.h.Runs, func(r *Run) bool { return r.UID == op.UID && r.Generation >= op.Generation && r.Started() < deadline })
		asBefore := func(v *Version) bool { // a change that was reverted needs no run
			return v.operator() && v.Status.ObservedGeneration >= op.Generation && v.Received < deadline
		}
		if !ran && !slices.ContainsFunc(o.Versions, asBefore) && !c.goneBy(o, deadline) {
			c.add("I8", op.UID, "", fmt.Sprintf("the client was told at %s that generation %d is stored, and no run of it began", op.Completed, op.Generation))
		}
	}
}

// goneBy tells whether an object was deleted before an instant, or the history
// ends before it.
func (c *checker) goneBy(o *Object, at Instant) bool {
	if o.Deleted != 0 && o.Deleted < at {
		return true
	}
	return !slices.ContainsFunc(c.h.Driver, func(e DriverEvent) bool { return e.Boot >= at })
}

// restedBy returns the deadline, or the time from which the operator rests, if that is earlier: a run that has
// not begun by then will not begin.
func (c *checker) restedBy(from Instant, limit time.Duration) Instant {
	deadline := c.deadline(from, limit)
	for _, rest := range c.h.events("stable") {
		if rest.Boot > from {
			deadline = min(deadline, rest.Boot)
		}
	}
	return deadline
}

// deadline returns from plus limit; each fault until then restarts the limit.
func (c *checker) deadline(from Instant, limit time.Duration) Instant {
	deadline := from.Plus(limit)
	for _, at := range c.h.hindered {
		if at > from && at < deadline {
			deadline = at.Plus(limit)
		}
	}
	return deadline
}
