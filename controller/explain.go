package controller

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// Explanation says why an object last ran and when it runs next, judging only by the object
// and its watch. Those do not show whether the role or the operator's environment has changed
// since, nor how many runs wait.
type Explanation struct {
	// Last is the last run that ended, Active the run in progress; nil if there is none.
	Last   *ExplainedRun `json:"lastRun,omitempty"`
	Active *ExplainedRun `json:"activeRun,omitempty"`
	// Cause is the cause of the next run, and At when it is due; empty and nil if only an event
	// starts a run.
	Cause string     `json:"nextCause,omitempty"`
	At    *time.Time `json:"nextRun,omitempty"`
	// Firing is when the watch's schedule fires next; nil without a schedule. Window is when the
	// maintenance window opens next, not after now if one is open; nil if the watch has no
	// windows.
	Firing *time.Time `json:"nextFiring,omitempty"`
	Window *time.Time `json:"windowOpens,omitempty"`
	// Held are the reasons why no run starts although there is a cause, or may soon be one.
	Held []string `json:"held,omitempty"`
	// Warnings are the warnings of the last run, and warnings about annotations that have no effect
	// and about parts of the status that the operator did not write in this form.
	Warnings []string `json:"warnings,omitempty"`
}

// ExplainedRun is a run as the object's status records it.
type ExplainedRun struct {
	ID         string     `json:"id"`
	Cause      string     `json:"cause"`
	Trigger    string     `json:"trigger,omitempty"`
	Generation int64      `json:"generation"`
	Started    time.Time  `json:"started"`
	Finished   *time.Time `json:"finished,omitempty"`
	Result     string     `json:"result,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	Attempts   int64      `json:"attempts,omitempty"`
	Losses     int64      `json:"losses,omitempty"`
}

// Explain explains an object of a watch. Of opts it uses the flags for the period and the retries.
func Explain(obj *unstructured.Unstructured, w watches.Watch, opts Options, now time.Time) Explanation {
	r := &reconciler{watch: w, gvk: w.GVK, opts: &opts, res: resource{hasStatus: true}}
	record := r.record(obj)
	set, warnings := r.settingsOf(obj)
	e := Explanation{Warnings: warnings}
	for _, part := range record.Rejected {
		e.Warnings = append(e.Warnings, "status.ansible."+part+" is not as the operator writes it, and is ignored")
	}
	ofRun, _, _ := unstructured.NestedStringSlice(obj.Object, "status", "ansible", "warnings")
	for _, w := range bounded(ofRun) {
		if !slices.Contains(e.Warnings, w) {
			e.Warnings = append(e.Warnings, w)
		}
	}
	s := situation{
		last: record.Last, deleting: obj.GetDeletionTimestamp() != nil, generation: obj.GetGeneration(), period: set.period,
		retry: retryOf(w.Retry, opts.RetryMin, opts.RetryMax), paused: set.paused, pausesDeletion: set.pausesDeletion, requested: set.requested,
		times: timetableOf(w.Schedule, obj.GetUID()), mode: set.mode,
	}
	if r.ranBefore(obj, record) {
		s.firstSeen = r.firstSeenOf(obj, record)
	}
	if firing := s.times.firing(now); !firing.IsZero() {
		e.Firing = &firing
	}
	if opens := s.times.opens(now); len(s.times.windows) > 0 {
		e.Window = &opens
	}
	if last := record.Last; last != nil {
		e.Last = explained(last)
		observed, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
		if last.Generation == s.generation || observed == s.generation {
			s.fingerprint = last.Fingerprint
		} // else the spec has changed since
		last.Permanent = status.IsStalled(obj.Object)
	}
	if a := record.Active; a != nil {
		e.Active = &ExplainedRun{ID: a.ID, Cause: a.Cause, Trigger: a.Trigger, Generation: a.Generation, Started: a.Started}
	}
	if quietAfter(w, s.period, s.last, s.generation) {
		// Periodic runs since then have changed nothing, or the status would show them.
		last := *s.last
		last.Finished = last.Finished.Add(max(now.Sub(last.Finished), 0).Truncate(s.period))
		s.last = &last
		e.Warnings = append(e.Warnings, "the status does not record chart runs that change nothing: the metric rolewright_queue_oldest_seconds says whether the next one is late")
	}
	e.plan(s, r.hasOurFinalizer(obj), !w.Content.Ansible(), now)
	return e
}

// plan fills in what the operator decides for s. waits is true if the object has a finalizer of the operator,
// command if the content is not Ansible's.
func (e *Explanation) plan(s situation, waits, command bool, now time.Time) {
	if s.deleting && !waits {
		e.Held = append(e.Held, "it is being deleted, and only finalizers of other controllers are left")
		return
	}
	what := "the role"
	if command {
		what = "the command"
	}
	p := decide(now, s)
	switch {
	case s.paused.After(now) && (!s.deleting || s.pausesDeletion): // whether or not a run is due already
		e.Cause = string(p.held)
		until := "until its annotation " + AnnotationPaused + " goes, which rolewright resume removes"
		if s.paused.Before(forEver()) {
			until = "until " + s.paused.UTC().Format(time.RFC3339)
		}
		e.Held = append(e.Held, "it is paused, "+until)
	case p.cause == causeRestart, p.held == causeRestart:
		e.Cause = string(causeRestart)
		e.Held = append(e.Held, "no run of it is recorded: the operator remembers those that it has made, and runs the object when it is restarted")
	case p.held != "":
		e.Cause, e.At = string(p.held), &p.until
		e.Held = append(e.Held, "it is due, and waits for the maintenance window until "+p.until.UTC().Format(time.RFC3339))
	case p.cause != "":
		e.Cause, e.At = string(p.cause), &now
	case s.last != nil && s.last.Wait != nil:
		e.Cause = string(causeWaited)
		e.Held = append(e.Held, "it "+s.last.Wait.String())
	case s.last != nil && s.stalled():
		e.Held = append(e.Held, fmt.Sprintf("it is stalled after a failure (%s): change the object or %s, or ask for a run", s.last.Reason, what))
	case p.wait > 0:
		at := now.Add(p.wait)
		_, why := s.next(now)
		if opens := s.times.opens(at); s.waitsForWindow(why) && opens.After(at) {
			e.Held = append(e.Held, "it is due at "+at.UTC().Format(time.RFC3339)+", and waits for the maintenance window then")
			at = opens
		}
		e.Cause, e.At = string(why), &at
	}
}
