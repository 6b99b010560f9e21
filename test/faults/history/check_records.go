package history

import (
	"fmt"
	"slices"
	"time"
)

// The recorded results, and the reasons that the checks know.
const (
	succeeded   = "Succeeded"
	failed      = "Failed"
	interrupted = "Interrupted"

	reasonTimedOut = "TimedOut"
	causeDeleted   = "deleted"
)

// identity is I2: a result is on the object that the run was for, and names its
// generation; what is called successful at a generation really is.
func (c *checker) identity() {
	for _, rec := range c.records {
		c.recordNamesItsRun(rec)
		if rec.last.Result != interrupted && rec.last.Generation > 0 && rec.Status.ObservedGeneration != rec.last.Generation {
			c.add("I2", rec.object.UID, rec.last.ID, fmt.Sprintf("a run of generation %d was recorded as observedGeneration %d",
				rec.last.Generation, rec.Status.ObservedGeneration), rec)
		}
	}
	for _, o := range c.h.Objects {
		var before *Version
		for _, v := range o.Versions {
			if a := v.Status.Ansible.ActiveRun; a != nil && v.operator() {
				if r := c.h.runs[a.ID]; r != nil && r.UID != "" && r.UID != o.UID {
					c.add("I2", o.UID, r.ID, "a run of another object is recorded as in progress: that one's UID is "+r.UID, v.Request, r)
				} else if r != nil && r.Begin != 0 && !r.Deleting && v.Deleting && before != nil && !before.names(a.ID) {
					c.add("I5", o.UID, r.ID, "an object that is being deleted was run as a living one, for the cause "+a.Cause, v.Request, r)
				}
			}
			if c.hasTruth() {
				c.claimHolds(o, before, v)
			}
			before = v
		}
	}
}

// names tells whether the version says that the run is in progress.
func (v *Version) names(run string) bool {
	active := v.Status.Ansible.ActiveRun
	return active != nil && active.ID == run
}

func (c *checker) recordNamesItsRun(rec record) {
	r, uid := c.h.runs[rec.last.ID], rec.object.UID
	if r == nil {
		return
	}
	if r.UID != "" && r.UID != uid {
		c.add("I2", uid, r.ID, "the result of a run for another object was recorded: that one's UID is "+r.UID, rec, r)
		return
	}
	if r.Generation != 0 && rec.last.Generation != 0 && r.Generation != rec.last.Generation {
		c.add("I2", uid, r.ID, fmt.Sprintf("a run of generation %d was recorded as one of generation %d", r.Generation, rec.last.Generation), rec, r)
	}
	if value, known := rec.object.value(rec.last.Generation); known && r.HasValue && value != r.Value {
		c.add("I2", uid, r.ID, fmt.Sprintf("the run was recorded for generation %d, whose value is %q, and was given %q",
			rec.last.Generation, value, r.Value), rec, r)
	}
	if r.Begin != 0 && r.Deleting && rec.last.Cause != causeDeleted {
		c.add("I5", uid, r.ID, "an object that is being deleted was run as a living one, for the cause "+rec.last.Cause, rec, r)
	}
	if r.Begin != 0 && rec.Received.Plus(clockError) < r.Begin {
		c.add("I2", uid, r.ID, "the result was recorded before the run began", rec, r)
	}
}

// claimHolds checks a success that a later version still claims.
func (c *checker) claimHolds(o *Object, before, v *Version) {
	claims := func(v *Version) bool {
		return v != nil && (v.Status.condition("Successful") == "True" || v.Status.condition("Ready") == "True")
	}
	generation := v.Status.ObservedGeneration
	if !v.operator() || !claims(v) || generation == 0 || claims(before) && before.Status.ObservedGeneration == generation {
		return
	}
	value, known := o.value(generation)
	if !known {
		return
	}
	for _, r := range c.h.Runs {
		if r.UID == o.UID && (!r.Deleting || v.Deleting) && r.Proved() && r.Value == value && r.End.Boot < v.Received.Plus(clockError) {
			return
		}
	}
	c.add("I2", o.UID, "", fmt.Sprintf("generation %d (value %q) is called successful, and no run with that spec has succeeded", generation, value), v.Request)
}

// cut tells whether a run had begun and was ended from outside, so that it was not the
// role's fault. If a fault of the driver kills ansible-runner, that
// cannot be distinguished from an ansible-runner that dies by itself.
func (c *checker) cut(r *Run) bool {
	if !c.hasTruth() || r.Begin == 0 || r.Dies || len(c.h.events("kill")) > 0 {
		return false
	}
	return r.End == nil || r.End.Status == "canceled"
}

// lostTolerance is how long after a run's last line its end is certainly on
// disk, if no ledger says when.
const lostTolerance = 2 * time.Second

// exactlyOneRecord is I3.
func (c *checker) exactlyOneRecord() {
	for _, r := range c.h.Runs {
		if r.UID == "" || r.Started() == 0 {
			continue
		}
		records := c.recordsOf(r.UID, r.ID)
		switch {
		case len(records) == 0 && c.owesRecord(r) && !c.recordedUnanswered(r):
			c.add("I3", r.UID, r.ID, "the run has no terminal record", r)
		case len(records) > 1:
			c.add("I3", r.UID, r.ID, fmt.Sprintf("the run has %d terminal records, or its record was changed", len(records)), records[0], records[1], r)
		case len(records) == 1:
			c.resultKept(r, records[0])
		}
	}
	for _, o := range c.h.Objects {
		c.neverTwice(o)
	}
}

// owesRecord tells whether a run must have been recorded by the end: the plan
// was completed, and the run's object went on existing.
func (c *checker) owesRecord(r *Run) bool {
	if len(c.h.events("stable")) == 0 && (c.h.End == nil || c.h.End.Stable == nil || !*c.h.End.Stable) {
		return false // nothing was waited for; I8 says so
	}
	o := c.h.objects[r.UID]
	if o == nil || c.refusedStatus(o, r) {
		return false
	}
	// Nothing keeps an object that has no finalizer until the end of its run is recorded.
	return r.Deleting || o.Gone == 0 || r.LastAlive().Plus(lostTolerance) < o.Going
}

// recordedUnanswered tells whether the object has the record of a run at the end although no request that wrote it was
// answered. For a request whose client has died, the audit log has a failure (504) even if the request was carried out.
func (c *checker) recordedUnanswered(r *Run) bool {
	unanswered := func(q *Request) bool {
		return q.ObjectRef.Subresource == "status" && q.ObjectRef.Name == c.h.objects[r.UID].Name && q.operator() &&
			q.Received > r.Started() && q.ResponseStatus.Code == 504
	}
	inTheEnd := func(f final) bool {
		last := f.status.Ansible.LastRun
		return f.Metadata.UID == r.UID && last != nil && last.ID == r.ID
	}
	return c.h.End != nil && slices.ContainsFunc(c.h.End.finals(), inTheEnd) && slices.ContainsFunc(c.h.Requests, unanswered)
}

// refusedStatus tells whether the API server refused the status.
func (c *checker) refusedStatus(o *Object, r *Run) bool {
	return slices.ContainsFunc(c.h.Requests, func(q *Request) bool {
		if q.ObjectRef.Subresource != "status" || q.ObjectRef.Name != o.Name || !q.operator() || q.Received < r.Started() {
			return false
		}
		switch q.ResponseStatus.Code {
		case 400, 403, 413, 422:
			return true
		}
		return false
	})
}

// resultKept checks that an operator found an end that was on disk before it
// started.
func (c *checker) resultKept(r *Run, rec record) {
	if rec.last.Result != interrupted || !r.Proved() || rec.Deleting || r.LedgerEnd != nil && r.LedgerEnd.Stopped {
		return
	}
	since, known := r.onRecord()
	if !known {
		return
	}
	for _, e := range c.h.events("start") {
		// An operator with another runner root cannot find it.
		if e.Boot > since.Plus(clockError) && e.Boot < rec.Received && c.ranUnder(r, e) && (rec.Replica == "" || rec.Replica == e.Replica) {
			c.add("I3", r.UID, r.ID, "the run had ended, with a success that was on disk, and was recorded as "+rec.last.Result+"/"+rec.last.Reason, rec, r)
			return
		}
	}
}

// neverTwice checks that a run that has been replaced as the last run does not come back.
func (c *checker) neverTwice(o *Object) {
	seen := map[string]bool{}
	current := ""
	for _, v := range o.Versions {
		last := v.Status.Ansible.LastRun
		if last == nil || last.ID == current {
			continue
		}
		if seen[last.ID] && v.operator() && len(c.recordsOf(o.UID, last.ID)) < 2 {
			c.add("I3", o.UID, last.ID, "the record of the run was written again after that of another one", v.Request)
		}
		seen[last.ID], current = true, last.ID
	}
}

// noFalseSuccess is I4, and its converse.
func (c *checker) noFalseSuccess() {
	for _, rec := range c.records {
		r, uid := c.h.runs[rec.last.ID], rec.object.UID
		switch {
		case rec.last.Result == succeeded && r == nil:
			if c.hasTruth() {
				c.add("I4", uid, rec.last.ID, "a run was recorded as Succeeded that is not known", rec)
			}
		case r == nil:
		case rec.last.Result == succeeded && r.Begin == 0:
			if r.LedgerEnd != nil && (r.LedgerEnd.Code != 0 || r.LedgerEnd.Signal != "") || c.hasTruth() {
				c.add("I4", uid, r.ID, "a run was recorded as Succeeded that did not end well", rec, r)
			}
		case rec.last.Result == succeeded && !r.Proved():
			c.add("I4", uid, r.ID, "a run was recorded as Succeeded that has not succeeded", rec, r)
		case rec.last.Result == failed && rec.last.Reason != reasonTimedOut && r.Proved() && r.LedgerEnd != nil && !r.LedgerEnd.Stopped:
			c.add("I4", uid, r.ID, "a run was recorded as Failed that has succeeded", rec, r)
		case rec.last.Result == failed && rec.last.Reason != reasonTimedOut && c.cut(r):
			c.add("I4", uid, r.ID, "a run was recorded as Failed that was cut short from outside", rec, r)
		}
	}
}

// finalizerSafety is I5.
func (c *checker) finalizerSafety() {
	for _, o := range c.h.Objects {
		name := c.finalizers[o.Resource]
		if name == "" {
			continue
		}
		had := false
		for _, v := range o.Versions {
			has := slices.Contains(v.Finalizers, name)
			if had && !has && v.operator() {
				c.removalProved(o, v)
			}
			had = has
		}
		c.finalizerFirst(o, name)
	}
}

func (c *checker) removalProved(o *Object, v *Version) {
	if !v.Deleting {
		c.add("I5", o.UID, "", "the finalizer was removed from an object that is not being deleted", v.Request)
		return
	}
	evidence := []any{v.Request, fmt.Sprintf("[%s] deletion asked for", o.Deleted)}
	for _, r := range c.h.Runs {
		if r.UID != o.UID {
			continue
		}
		if r.Deleting && r.Proved() && r.Started().Plus(clockError) > o.Deleted && r.End.Boot < v.Received.Plus(clockError) {
			return
		}
		evidence = append(evidence, r)
	}
	if c.hasTruth() {
		c.add("I5", o.UID, "", "the finalizer was removed, and no finalizer run of this object has succeeded since its deletion", evidence...)
	}
}

// finalizerFirst checks that no run was made that no finalizer run would clean up.
func (c *checker) finalizerFirst(o *Object, name string) {
	var since Instant
	for _, v := range o.Versions {
		if slices.Contains(v.Finalizers, name) {
			since = v.Received
			break
		}
	}
	for _, r := range c.h.Runs {
		if r.UID == o.UID && r.Begin != 0 && !r.Deleting && (since == 0 || r.Begin.Plus(clockError) < since) {
			c.add("I5", o.UID, r.ID, "the object was run before it had its finalizer", r)
		}
	}
}
