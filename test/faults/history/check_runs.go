package history

import (
	"fmt"
	"slices"
	"time"
)

// ledgerTolerance is how long after the death of its process tree a supervisor
// that was not waited for may write its end record.
const ledgerTolerance = 500 * time.Millisecond

// singleFlight is I1: the lifetimes of two runs of one UID, according to the runs themselves
// and to the ledger, do not overlap.
func (c *checker) singleFlight() {
	byUID := map[string][]*Run{}
	for _, r := range c.h.Runs {
		if r.UID == "" || r.Started() == 0 {
			continue
		}
		if r.Begins > 1 {
			c.add("I1", r.UID, r.ID, fmt.Sprintf("the run was begun %d times", r.Begins), r)
		}
		for _, earlier := range byUID[r.UID] {
			switch {
			case c.frozen(earlier, r.Started()):
			case earlier.Begin != 0 && r.Begin != 0 && earlier.LastSign > r.Begin,
				earlier.Begin != 0 && r.Begin == 0 && earlier.LastSign > r.Started():
				c.add("I1", r.UID, r.ID, fmt.Sprintf("two runs at once: run %s still lived %s after the start of run %s",
					earlier.ID, earlier.LastSign.Since(max(r.Begin, r.Started())).Round(time.Millisecond), r.ID), earlier, r)
			case earlier.LedgerEnd != nil && r.LedgerStart != nil &&
				earlier.LedgerEnd.Boot.Since(r.LedgerStart.Boot) > ledgerTolerance:
				c.add("I1", r.UID, r.ID, fmt.Sprintf("two runs at once, by the ledger: the tree of run %s was gone %s after the start of run %s",
					earlier.ID, earlier.LedgerEnd.Boot.Since(r.LedgerStart.Boot).Round(time.Millisecond), r.ID), earlier, r)
			}
		}
		byUID[r.UID] = append(byUID[r.UID], r)
	}
}

// frozen tells whether, at an instant, a run was stopped together with its operator by SIGSTOP, or
// had not been continued for long enough to notice what it has missed:
// see noSurvivors. I11 checks that it has no authority any more.
func (c *checker) frozen(r *Run, at Instant) bool {
	is := false
	for _, e := range c.h.Driver {
		switch {
		case !c.ranUnder(r, e):
		case e.Event == "freeze" && e.Boot < at:
			is = true
		case e.Event == "thaw" && e.Boot.Plus(thawLimit) < at:
			is = false
		}
	}
	return is
}

// Limits of I7: after the operator's death by a signal, and after it only became
// silent, which its supervisors notice after five seconds. A run that does
// not end on SIGTERM, since it waits for an answer of that operator, is killed five seconds later.
//
// The promise is five seconds after a death, which a supervisor learns of at once. The limits allow for a
// machine that many operators overload. They still show what the promise is for: nothing is left by the time another
// replica can lead (15 s), or a silent operator continues after the 20 s of the plans. A run that outlives
// its operator by mistake sleeps for minutes.
const (
	survivalLimit = 15 * time.Second
	silenceLimit  = 18 * time.Second
)

// thawLimit is the time that I1 allows for runs that are continued with their operator.
const thawLimit = 5 * time.Second

// noSurvivors is I7.
func (c *checker) noSurvivors() {
	for _, kind := range []string{"survivor", "zombie"} {
		for _, e := range c.h.events(kind) {
			c.add("I7", "", "", fmt.Sprintf("%s of replica %s: process %d", kind, e.Replica, e.PID), e.Detail)
		}
	}
	for _, e := range c.h.Driver {
		limit := survivalLimit
		switch {
		case e.Event == "thaw": // of an operator with all its runs, which can only notice now
			limit = silenceLimit
		case e.Event == "exit", e.Event == "signal" && e.Signal == "KILL", e.Event == "signal" && e.Signal == "SIGKILL":
		case e.Event == "signal" && (e.Signal == "STOP" || e.Signal == "SIGSTOP"):
			limit = silenceLimit
			if c.continued(e, limit) || !c.isOperator(e.PID) {
				continue
			}
		default:
			continue
		}
		for _, r := range c.h.Runs {
			if c.ranUnder(r, e) && r.Started() < e.Boot && r.LastSign > e.Boot.Plus(limit) {
				c.add("I7", r.UID, r.ID, fmt.Sprintf("a process of the run lived %s after the end of its operator (%s %s)",
					r.LastSign.Since(e.Boot).Round(time.Millisecond), e.Event, e.Signal), r)
			}
		}
	}
	for _, rec := range c.records {
		if r := c.h.runs[rec.last.ID]; r != nil && r.LastSign > rec.Received.Plus(clockError) && !c.frozen(r, rec.Received) {
			c.add("I7", rec.object.UID, r.ID, fmt.Sprintf("the run was recorded as ended while it lived: %s before its last sign of life",
				r.LastSign.Since(rec.Received).Round(time.Millisecond)), rec, r)
		}
	}
}

// continued tells whether a frozen operator was continued within a time.
func (c *checker) continued(stop DriverEvent, within time.Duration) bool {
	for _, e := range c.h.events("signal") {
		if (e.Signal == "CONT" || e.Signal == "SIGCONT") && e.Replica == stop.Replica && e.Boot > stop.Boot && e.Boot < stop.Boot.Plus(within) {
			return true
		}
	}
	return false
}

// isOperator tells whether a process is an operator. A supervisor can
// be frozen as well, and then nothing else ends its run.
func (c *checker) isOperator(pid int) bool {
	return slices.ContainsFunc(c.h.events("start"), func(e DriverEvent) bool { return e.PID == pid })
}

// ranUnder tells whether a run belonged to the operator that an event is about:
// by its ledger, or because there was only one at a time.
func (c *checker) ranUnder(r *Run, e DriverEvent) bool {
	if r.Replica != "" && e.Replica != "" {
		return r.Replica == e.Replica
	}
	replicas := map[string]bool{}
	for _, start := range c.h.events("start") {
		replicas[start.Replica] = true
	}
	return len(replicas) == 1
}
