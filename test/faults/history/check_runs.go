package history

import (
	"fmt"
	"slices"
	"time"
)

// ledgerTolerance is how much later than the death of its tree a supervising
// process that was not waited for may write its end record.
const ledgerTolerance = 500 * time.Millisecond

// singleFlight is I1: what two runs of one UID say of their own lives, and what
// the ledger says, does not overlap.
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

// frozen tells whether a run had been stopped with its operator, by SIGSTOP, at an
// instant, or had not been going on for long enough to notice what it has missed:
// see noSurvivors. That it has no authority any more is I11.
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

// Limits of I7: after the operator's death by a signal, and where it only fell
// silent, which its supervising processes notice after five seconds; a run that does
// not end by SIGTERM, since it waits for an answer of that operator, is killed five seconds later.
//
// The promise is five seconds after a death, which a supervising process hears of at once. The limits are for a
// machine that is choked by many operators, and tell what the promise is for as well: nothing is left when another
// replica can lead (15 s), and of a silent operator when it goes on after the 20 s of the plans. A run that outlives
// its operator by mistake sleeps for minutes.
const (
	survivalLimit = 15 * time.Second
	silenceLimit  = 18 * time.Second
)

// thawLimit is what I1 allows runs that go on with their operator.
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
		case e.Event == "thaw": // of an operator with all its runs: only now can they notice
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

// continued tells whether a frozen operator was thawed within a time.
func (c *checker) continued(stop DriverEvent, within time.Duration) bool {
	for _, e := range c.h.events("signal") {
		if (e.Signal == "CONT" || e.Signal == "SIGCONT") && e.Replica == stop.Replica && e.Boot > stop.Boot && e.Boot < stop.Boot.Plus(within) {
			return true
		}
	}
	return false
}

// isOperator tells whether a process is an operator: a supervising process can
// be frozen as well, and no one else ends its run then.
func (c *checker) isOperator(pid int) bool {
	return slices.ContainsFunc(c.h.events("start"), func(e DriverEvent) bool { return e.PID == pid })
}

// ranUnder tells whether a run was one of the operator that an event is about:
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
