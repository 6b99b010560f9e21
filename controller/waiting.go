package controller

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/internal/api"
)

// The values of waitingRun.held.
const (
	heldByWindow = "window"
	heldByPause  = "paused"
)

// waitingRun is a run that is due and has not started. If held is empty, the run waits in the queue; else held says what
// holds the run back. since and until are zero if they are not known.
type waitingRun struct {
	cause        cause
	held         string
	since, until time.Time
}

// noteWait notes whether the object of s has a run that is due and waits.
func (r *reconciler) noteWait(s *scope) {
	var is waitingRun
	switch {
	case s.queued:
		is.cause = s.plan.cause
	case s.plan.held == "":
	case s.plan.until.IsZero():
		is = waitingRun{cause: s.plan.held, held: heldByPause, since: s.due}
		if s.settings.paused.Before(forEver()) {
			is.until = s.settings.paused
		}
	default:
		is = waitingRun{cause: s.plan.held, held: heldByWindow, since: s.due, until: s.plan.until}
	}
	r.objects.with(s.key, func(e *entry) {
		if is.held != "" && e.waiting.held == is.held && e.waiting.cause == is.cause {
			is.since = e.waiting.since // it has waited since an earlier reconcile
		}
		e.waiting = is
	})
}

// Waiting returns the runs that are due and wait: first those in the queue, in its order, then those that
// are held back. It may be called at any time.
func (s *Set) Waiting() []api.Waiting {
	byPlaces := map[*runqueue.Kind]*reconciler{}
	var others []api.Waiting
	for _, k := range s.all() {
		k.mu.Lock()
		r := k.served
		k.mu.Unlock()
		if r == nil {
			continue
		}
		byPlaces[r.places] = r
		for key, is := range r.objects.held() {
			others = append(others, api.Waiting{Object: r.historyObject(key), Cause: string(is.cause), Since: is.since, Held: is.held, Until: is.until})
		}
	}
	slices.SortFunc(others, func(a, b api.Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var all []api.Waiting
	for _, e := range s.queue.Waiting() {
		r := byPlaces[e.Kind]
		if r == nil {
			continue // the kind is no longer served
		}
		all = append(all, api.Waiting{
			Object: r.historyObject(e.Key), Cause: string(r.objects.get(e.Key).waiting.cause), Class: e.Class.String(), Since: e.Since,
			Position: e.Position, Held: string(e.Held), Until: e.Until,
		})
	}
	return append(all, others...)
}

// held returns the objects whose run is due but held back.
func (o *objects) held() map[types.NamespacedName]waitingRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[types.NamespacedName]waitingRun{}
	for key, e := range o.table {
		if e.waiting.held != "" && e.run == nil {
			found[key] = e.waiting
		}
	}
	return found
}
