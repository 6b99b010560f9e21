package history

import (
	"fmt"
	"slices"
	"time"
)

// tokenLimit is how long after the end of a run its token may still be valid (I11).
const tokenLimit = time.Second

// authority is I11: which requests reached the API server with a run's token.
func (c *checker) authority() {
	for _, q := range c.h.Requests {
		if q.ImpersonatedUser != nil {
			c.add("I11", "", q.run(), "a request impersonates "+q.ImpersonatedUser.Username, q)
		}
		id := q.run()
		if id == "" {
			continue
		}
		r := c.h.runs[id]
		if r == nil {
			if len(c.h.Runs) > 0 {
				c.add("I11", "", id, "a request was served of a run that is not known", q)
			}
			continue
		}
		if end, known := r.over(); known && q.Sent > end.Plus(tokenLimit+clockError) {
			c.add("I11", r.UID, id, fmt.Sprintf("a request was served %s after the end of its run", q.Sent.Since(end).Round(time.Millisecond)), q, r)
		}
		if q.writes() {
			c.fenced(q, r)
		}
	}
}

// over returns when the run was certainly over. That is not known for a run that was killed
// together with its supervisor.
func (r *Run) over() (Instant, bool) {
	switch {
	case r.LedgerEnd != nil:
		return r.LastAlive(), true
	case r.End != nil:
		return r.LastSign, true
	}
	return 0, false
}

// fenceTolerance is the time between the operator's check of its lease and
// the moment at which others see the request.
const fenceTolerance = time.Second

// fenced checks that the operator of a run held the lease when it forwarded a
// write: it had renewed the lease within the renew deadline, and no other replica had since.
func (c *checker) fenced(q *Request, r *Run) {
	deadline, elects := c.renewDeadline()
	replica := q.Replica
	if !elects || replica == "" {
		return // the fault proxy has recorded neither this request nor those of the lease's holders
	}
	var mine, other *Request
	for _, l := range c.h.Requests {
		if l.ObjectRef.Resource != "leases" || !l.writes() || !l.done() || l.Replica == "" || l.Received > q.Sent.Plus(clockError) {
			continue
		}
		if l.Replica == replica {
			mine, other = l, nil
		} else {
			other = l
		}
	}
	switch {
	case mine == nil:
		c.add("I11", r.UID, r.ID, "a write was forwarded by an operator that has never held the lease", q)
	case other != nil && q.Sent > other.Done.Plus(fenceTolerance):
		c.add("I11", r.UID, r.ID, "a write was forwarded after another operator had taken the lease", q, other)
	case q.Sent > mine.Done.Plus(deadline+fenceTolerance):
		c.add("I11", r.UID, r.ID, fmt.Sprintf("a write was forwarded %s after the last renewal of the lease, whose renew deadline is %s",
			q.Sent.Since(mine.Done).Round(time.Millisecond), deadline), q, mine)
	}
}

func (c *checker) renewDeadline() (time.Duration, bool) {
	for _, e := range c.h.events("start") {
		if !e.LeaderElect {
			continue
		}
		if d, err := time.ParseDuration(e.RenewDeadline); err == nil {
			return d, true
		}
		return 10 * time.Second, true
	}
	return 0, false
}

// quiet is I15.
func (c *checker) quiet() {
	c.steady()
	c.causes()
	for _, o := range c.h.Objects {
		c.fewWrites(o)
	}
}

// steady checks the windows in which nothing changes and no period ends.
func (c *checker) steady() {
	ends := c.h.events("steady-end")
	for i, begin := range c.h.events("steady-begin") {
		if i >= len(ends) {
			return
		}
		for _, r := range c.h.Runs {
			if s := r.Started(); s > begin.Boot && s < ends[i].Boot {
				c.add("I15", r.UID, r.ID, "a run started while nothing had changed", r)
			}
		}
		for _, q := range c.h.Requests {
			if q.operator() && q.writes() && q.done() && q.ObjectRef.Resource != "leases" && q.ObjectRef.Resource != "events" &&
				q.ObjectRef.APIGroup != "authorization.k8s.io" && q.Received > begin.Boot && q.Received < ends[i].Boot {
				c.add("I15", "", "", "the operator wrote while nothing had changed", q)
			}
		}
	}
}

// causes checks that each recorded run had the cause that it names, judged by the
// record before it.
func (c *checker) causes() {
	for _, rec := range c.records {
		if rec.before == nil || rec.before.Status.Ansible.LastRun == nil {
			continue
		}
		was, is := rec.before.Status.Ansible.LastRun, rec.last
		wrong := ""
		switch is.Cause {
		case "created", "restart":
			wrong = "the object had been run before"
		case "changed":
			if was.Result == succeeded && was.Generation == is.Generation && is.Generation > 0 && was.Cause != causeDeleted {
				wrong = "that generation had succeeded before"
			}
		case "retry":
			if was.Result != failed {
				wrong = "the run before had not failed"
			}
			c.backedOff(c.h.runs[was.ID], c.h.runs[is.ID], was.Attempts)
		case "interrupted":
			if was.Result != interrupted {
				wrong = "the run before was not interrupted"
			}
		case causeDeleted:
			if !rec.Deleting {
				wrong = "the object is not being deleted"
			}
		case "requeue_after":
			if was.RequeueAfter == "" {
				wrong = "the run before had not asked for it"
			}
		}
		if wrong != "" && was.ID != is.ID {
			c.add("I15", rec.object.UID, is.ID, fmt.Sprintf("the run's cause is %q, and %s", is.Cause, wrong),
				fmt.Sprintf("before: run %s %s/%s, cause %s, generation %d", was.ID, was.Result, was.Reason, was.Cause, was.Generation), rec)
		}
	}
}

// backedOff checks that a retry has waited: twice as long each time, at least up to
// four times the minimum.
func (c *checker) backedOff(before, after *Run, attempts int64) {
	if before == nil || after == nil || after.Begin == 0 || before.LastSign == 0 {
		return
	}
	for _, e := range c.h.events("start") {
		least, err := time.ParseDuration(e.RetryMin)
		least <<= min(max(attempts-1, 0), 2)
		if wait := after.Begin.Since(before.LastSign); err == nil && wait < least {
			c.add("I15", after.UID, after.ID, fmt.Sprintf("a failed run was repeated after %s, and %s is the least", wait.Round(time.Millisecond), least), before, after)
			return
		}
	}
}

// fewWrites limits the status writes of an object: one when a run begins, one
// when it ends, one per second of progress, and one per generation that needed
// no run.
func (c *checker) fewWrites(o *Object) {
	runs, generations, writes := map[string]bool{}, map[int64]bool{}, 0
	seconds := 0.0
	for _, v := range o.Versions {
		generations[v.Generation] = true
		if a := v.Status.Ansible.ActiveRun; a != nil {
			runs[a.ID] = true
		}
		if l := v.Status.Ansible.LastRun; l != nil {
			runs[l.ID] = true
		}
		if v.operator() && v.ObjectRef.Subresource == "status" {
			writes++
		}
	}
	for id := range runs {
		if r := c.h.runs[id]; r != nil {
			seconds += r.LastAlive().Since(r.Started()).Seconds() + 1
		}
	}
	if most := 2*len(runs) + len(generations) + int(seconds) + 1; writes > most {
		c.add("I15", o.UID, "", fmt.Sprintf("the status was written %d times for %d runs and %d generations; %d are enough", writes, len(runs), len(generations), most))
	}
}

// cleanLimit is how long the directories of an object may outlive it.
const cleanLimit = 1400 * time.Millisecond

// retained is how many runs of an object are certainly kept.
const retained = 15

// cleaned is the part of I14 about directories. A replica cleans up when it leads.
func (c *checker) cleaned() {
	replicas, ends := map[string]bool{}, c.h.events("steady-end")
	for _, e := range c.h.events("start") {
		replicas[e.Replica] = true
	}
	if len(replicas) > 1 || len(ends) == 0 {
		return
	}
	runs := map[string]int{}
	for _, r := range c.h.Runs {
		runs[r.UID]++
	}
	for _, r := range c.h.Runs {
		o := c.h.objects[r.UID]
		if c.h.Kept != nil && o != nil && o.Gone == 0 && r.Begin != 0 && runs[r.UID] <= retained && !slices.Contains(c.h.Kept[r.UID], r.ID) {
			c.add("I14", r.UID, r.ID, "the directory of a run is gone, and its object lives", r)
		}
	}
	for uid := range c.h.Kept {
		if o := c.h.objects[uid]; o != nil && o.Gone != 0 && o.Gone.Plus(cleanLimit) < ends[0].Boot {
			c.add("I14", uid, "", fmt.Sprintf("the directories of the object's runs are left; it was gone at %s", o.Gone))
		}
	}
}

// reported adds what the driver observed itself.
func (c *checker) reported() {
	c.cleaned()
	for _, e := range c.h.events("leftover") {
		c.add("I14", "", "", "something was left behind", e.Detail)
	}
	for _, e := range c.h.events("violation") {
		c.add(e.Invariant, "", "", e.Detail)
	}
}
