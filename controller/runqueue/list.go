package runqueue

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Hold is the reason why a run waits.
type Hold string

// The holds; a run without one gets the next place.
const (
	HeldByKind    Hold = "kind"    // as many runs of the kind are in progress as there may be
	HeldByAll     Hold = "all"     // as many runs of all kinds are in progress as there may be
	HeldByUrgent  Hold = "urgent"  // the remaining places are kept for urgent runs
	HeldByMemory  Hold = "memory"  // one more run may need more memory than there is
	HeldByRollout Hold = "rollout" // the changed content reaches only some objects at a time
	HeldByFailed  Hold = "stopped" // the rollout is stopped, after failures
)

// Entry is a run that waits for a place.
type Entry struct {
	Kind  *Kind
	Key   types.NamespacedName
	Class Class
	// Since is since when the run has been due.
	Since time.Time
	// Position is the run's position in the order by urgency, from 1. A run that has waited
	// longer may still start before it.
	Position int
	Held     Hold
	// Until is when a rollout continues by itself; zero if that is not known.
	Until time.Time
}

// Waiting returns the runs that wait, in the order by urgency.
func (q *Queue) Waiting() []Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	var all []Entry
	for _, k := range q.kinds {
		admitted, _ := k.admits(now)
		fits := q.fits(k)
		for key, p := range k.places {
			if p.has {
				continue
			}
			e := Entry{Kind: k, Key: key, Class: p.class, Since: p.since}
			r, rolls, at := k.rollouts[p.class], true, time.Time{}
			if r != nil {
				rolls, at = r.admits(now)
			}
			switch {
			case r != nil && r.stopped():
				e.Held = HeldByFailed
			case !rolls:
				e.Held, e.Until = HeldByRollout, at
			case k.shared.running >= k.shared.max:
				e.Held = HeldByKind
			case q.opts.Max > 0 && q.running >= q.opts.Max:
				e.Held = HeldByAll
			case !admitted[p.class]:
				e.Held = HeldByUrgent
			case !fits, q.yields(k, p.class, now):
				e.Held = HeldByMemory
			}
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		switch p, q := a.Kind.places[a.Key], b.Kind.places[b.Key]; {
		case before(a.Kind, p, b.Kind, q, byUrgency):
			return -1
		case before(b.Kind, q, a.Kind, p, byUrgency):
			return 1
		}
		return 0
	})
	for i := range all {
		all[i].Position = i + 1
	}
	return all
}

// State says what waits, for metrics.
type State struct {
	// Waiting is the number of waiting runs by class. Oldest is since when the oldest of them has
	// been due, without those that a [Rollout] holds; zero if there is none.
	Waiting map[Class]int
	Oldest  time.Time
	// Stopped is true while a [Rollout] is stopped.
	Stopped bool
}

// State returns what waits now.
func (k *Kind) State() State {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	s := State{Waiting: map[Class]int{}}
	var holds [classes]bool
	for class, n := range k.waiting {
		s.Waiting[Class(class)] = n
		if r := k.rollouts[class]; r != nil {
			rolls, _ := r.admits(time.Now())
			s.Stopped, holds[class] = s.Stopped || r.stopped(), !rolls
		}
	}
	for _, p := range k.places {
		if !p.has && !holds[p.class] && (s.Oldest.IsZero() || p.since.Before(s.Oldest)) {
			s.Oldest = p.since
		}
	}
	return s
}
