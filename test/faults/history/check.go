package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Violation is a broken invariant.
type Violation struct {
	// Invariant is I1 to I15.
	Invariant string
	// UID and Run say which object and run it concerns; empty if it concerns none.
	UID, Run string
	// Text says what is wrong; the lines after the first are the evidence.
	Text string
}

// String formats the violation for people.
func (v Violation) String() string {
	var who []string
	if v.UID != "" {
		who = append(who, "uid "+v.UID)
	}
	if v.Run != "" {
		who = append(who, "run "+v.Run)
	}
	text := strings.ReplaceAll(v.Text, "\n", "\n    ")
	if len(who) == 0 {
		return v.Invariant + ": " + text
	}
	return v.Invariant + ": " + strings.Join(who, ", ") + ": " + text
}

// checker collects violations.
type checker struct {
	h     *History
	found []Violation
	// finalizers are the finalizers that the operator puts on objects, by resource.
	finalizers map[string]string
	records    []record
}

// Check returns the violations of the invariants that the history proves, in
// the order of the invariants. It depends only on h, and does not change it.
func Check(h *History) []Violation {
	c := &checker{h: h, finalizers: map[string]string{}}
	c.learnFinalizers()
	c.collectRecords()
	for _, check := range []func(){
		c.singleFlight, c.identity, c.exactlyOneRecord, c.noFalseSuccess, c.finalizerSafety, c.noSurvivors,
		c.liveness, c.stable, c.level, c.authority, c.secrets, c.quiet, c.reported,
	} {
		check()
	}
	found := c.found
	slices.SortStableFunc(found, func(a, b Violation) int {
		return strings.Compare(fmt.Sprintf("%4s", a.Invariant), fmt.Sprintf("%4s", b.Invariant))
	})
	return found
}

// add records a violation. Evidence is printed with %v, one per line; nil is left out.
func (c *checker) add(invariant, uid, run, text string, evidence ...any) {
	lines := []string{text}
	for _, e := range evidence {
		if e != nil {
			lines = append(lines, fmt.Sprint(e))
		}
	}
	c.found = append(c.found, Violation{Invariant: invariant, UID: uid, Run: run, Text: strings.Join(lines, "\n")})
}

// String formats the run as evidence.
func (r *Run) String() string {
	text := fmt.Sprintf("[run %s] uid %s, generation %d", r.ID, r.UID, r.Generation)
	if r.HasValue {
		text += fmt.Sprintf(", value %q", r.Value)
	}
	if r.Deleting {
		text += ", finalizer run"
	}
	if r.Replica != "" {
		text += ", replica " + r.Replica
	}
	if r.Begin != 0 {
		text += fmt.Sprintf("; lived from %s to %s by its own word", r.Begin, r.LastSign)
	}
	if r.LedgerStart != nil {
		text += fmt.Sprintf("; ledger: start %s", r.LedgerStart.Boot)
	}
	if r.LedgerEnd != nil {
		text += fmt.Sprintf("; ledger: end %s, code %d %s", r.LedgerEnd.Boot, r.LedgerEnd.Code, r.LedgerEnd.Signal)
	}
	if r.End != nil {
		text += fmt.Sprintf("; ended with rc %d %s %s, failures %d, unreachable %d", r.End.RC, r.End.Status, r.End.Verdict, r.End.Failures, r.End.Unreachable)
	}
	return text
}

// record is the first version of an object that names a run as its last one.
type record struct {
	*Version

	object *Object
	last   LastRun
	// before is the previous version; nil if this is the first.
	before *Version
}

// String formats the record as evidence.
func (r record) String() string {
	return fmt.Sprintf("%s, resourceVersion %d: lastRun %s %s/%s, cause %s, generation %d, observedGeneration %d",
		r.Request, r.ResourceVersion, r.last.ID, r.last.Result, r.last.Reason, r.last.Cause, r.last.Generation, r.Status.ObservedGeneration)
}

// learnFinalizers finds the finalizers that the operator puts on objects, or should.
func (c *checker) learnFinalizers() {
	for _, e := range c.h.events("start") {
		maps.Copy(c.finalizers, e.Finalizers)
	}
	for _, o := range c.h.Objects {
		var before []string
		for i, v := range o.Versions {
			for _, f := range v.Finalizers {
				if i > 0 && v.operator() && !v.Deleting && !slices.Contains(before, f) && f != pruneFinalizer {
					c.finalizers[o.Resource] = f
				}
			}
			before = v.Finalizers
		}
	}
}

// pruneFinalizer is the operator's other finalizer, which needs no run.
const pruneFinalizer = "rolewright.dev/prune"

// collectRecords finds where the end of each run was recorded.
func (c *checker) collectRecords() {
	for _, o := range c.h.Objects {
		var before *Version
		for _, v := range o.Versions {
			last := v.Status.Ansible.LastRun
			if v.operator() && last != nil && (before == nil || before.Status.Ansible.LastRun == nil ||
				*before.Status.Ansible.LastRun != *last) {
				c.records = append(c.records, record{Version: v, object: o, last: *last, before: before})
			}
			before = v
		}
	}
}

// recordsOf returns the records of a run on an object.
func (c *checker) recordsOf(uid, run string) []record {
	var found []record
	for _, r := range c.records {
		if r.last.ID == run && r.object.UID == uid {
			found = append(found, r)
		}
	}
	return found
}

// hasTruth tells whether the runs of this history have kept their own log.
func (c *checker) hasTruth() bool {
	return slices.ContainsFunc(c.h.Runs, func(r *Run) bool { return r.Begin != 0 })
}

// clockError is how far apart two sources may put the same instant:
// the wall clock is not read at the same moment as the boot clock.
const clockError = 25 * time.Millisecond
