package controller

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// Explanation says why an object ran last, and when it runs next, by what stands in the
// object and in its watch. Whether the role or the environment of the operator has changed
// since, and how many runs wait, they do not say.
type Explanation struct {
	// Last is the run that ended last, and Active the one in progress; nil if there is none.
	Last   *ExplainedRun `json:"lastRun,omitempty"`
	Active *ExplainedRun `json:"activeRun,omitempty"`
	// Cause is why the next run starts, and At when it is due; empty and nil if only an event
	// starts one.
	Cause string     `json:"nextCause,omitempty"`
	At    *time.Time `json:"nextRun,omitempty"`
	// Firing is when the schedule of the watch fires next, and Window when runs may start
	// that wait for a maintenance window: not after now if one is open. They are nil where
	// the watch has none.
	Firing *time.Time `json:"nextFiring,omitempty"`
	Window *time.Time `json:"windowOpens,omitempty"`
	// Held are the reasons why no run starts though there is a cause, or may soon be one.
	Held []string `json:"held,omitempty"`
	// Warnings are those of the last run, annotations that are not followed, and parts of the
	// status that are not as the operator writes them.
	Warnings []string `json:"warnings,omitempty"`
}

// ExplainedRun is a run as its object records it.
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

// Explain explains an object of a watch. opts has the period and the retries of the flags.
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
		} // else the spec has changed
		last.Permanent = status.IsStalled(obj.Object)
	}
	if a := record.Active; a != nil {
		e.Active = &ExplainedRun{ID: a.ID, Cause: a.Cause, Trigger: a.Trigger, Generation: a.Generation, Started: a.Started}
	}
	if quietAfter(w, s.period, s.last, s.generation) {
		// Periodic runs since then have changed nothing, or the status would tell.
		last := *s.last
		last.Finished = last.Finished.Add(max(now.Sub(last.Finished), 0).Truncate(s.period))
		s.last = &last
		e.Warnings = append(e.Warnings, "the status does not record chart runs that change nothing: the metric rolewright_queue_oldest_seconds says whether the next one is late")
	}
	e.plan(s, r.hasOurFinalizer(obj), !w.Content.Ansible(), now)
	return e
}

// plan says what the operator decides of s, whose content is a command or not.
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
	case s.paused.After(now) && (!s.deleting || s.pausesDeletion): // whether a run is due already, or not yet
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
