package runqueue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Class is how urgent a run is.
type Class int

// The classes, the most urgent first.
const (
	Deletion Class = iota // a finalizer run
	Manual                // a run that someone asked for
	Change                // a new object, a changed one, or a run that was interrupted
	Effect                // a dependent or reference has changed, or what a parked object waited for
	Trigger               // a trigger that starts many objects has changed
	Content               // the role, the playbook or the environment has changed
	Retry                 // after a failure, or because a role asked for a requeue
	Period
	classes
)

// urgent reports whether a share of the places is kept for the class.
func (c Class) urgent() bool { return c <= Change }

// String returns the name of the class in metrics.
func (c Class) String() string {
	return [classes]string{"deletion", "manual", "change", "effect", "trigger", "content", "retry", "period"}[c]
}

const (
	// reserve sets the share of the places that is kept for urgent runs: one in reserve.
	reserve = 4
	// patience sets how often a place goes to the run that has waited longest, so that none
	// waits for ever: one place in patience, to an urgent run and to any run in turn.
	patience = 4
	// memoryPercent is the percentage of the memory that may be in use for one more run to start.
	memoryPercent = 90
	// memoryEvery is how often the queue checks runs that wait for memory.
	memoryEvery = time.Second
	// memoryPatience is how long a run waits for memory before others yield to it.
	memoryPatience = time.Minute
)

// Options are the limits over all kinds.
type Options struct {
	// Max is how many runs there may be at a time; 0 is no limit.
	Max int
	// Memory returns the used memory and its limit, in bytes. It may be nil; a limit of 0
	// means that the limit is not known.
	Memory func() (used, limit int64)
	// OnMemory is called when runs begin or cease to wait for memory. It must not use the
	// queue.
	OnMemory func(waits bool)
}

// Queue has the due runs and the runs in progress. It is safe for concurrent use.
type Queue struct {
	opts Options

	mu      sync.Mutex
	kinds   []*Kind
	running int
	urgent  int   // urgent runs in progress
	granted int   // places given out so far
	base    int64 // memory in use without runs, in bytes
	short   bool  // whether runs wait for memory
	// starved is the kind for whose runs there has not been enough memory since starvedSince; nil if there is none.
	starved      *Kind
	starvedSince time.Time
	timer        *time.Timer
}

// New returns an empty queue.
func New(opts Options) *Queue { return &Queue{opts: opts} }

// Kind has the runs of one kind, or of a part of its objects.
type Kind struct {
	queue  *Queue
	name   string
	shared *shared
	wake   func(types.NamespacedName)
	// rollouts has the state for each class to which a [Rollout] applies; nil for the others.
	rollouts [classes]*rollout

	places  map[types.NamespacedName]*place
	drained bool
	waiting [classes]int
	running int
	need    int64 // memory that a run needs, in bytes
}

// shared is what the parts of one kind have in common.
type shared struct {
	max     int
	running int
	urgent  int // urgent runs in progress
}

// place is a run that is due or in progress.
type place struct {
	class Class
	since time.Time
	// has is true if the object has a place; taken is true once the object was told so.
	has, taken bool
}

// Kind adds a kind with at most limit runs at a time. Kinds with the same name are parts of one
// kind: the limit of the last one applies to all of them together. wake is called, from any
// goroutine and without the lock, when an object gets the place that it waits for.
func (q *Queue) Kind(name string, limit int, r Rollout, wake func(types.NamespacedName)) *Kind {
	k := &Kind{queue: q, name: name, shared: &shared{}, wake: wake, places: map[types.NamespacedName]*place{}}
	for class := range classes {
		if class.Rolls() {
			k.rollouts[class] = &rollout{Rollout: r}
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if at := slices.IndexFunc(q.kinds, func(is *Kind) bool { return is.name == name }); at >= 0 {
		k.shared = q.kinds[at].shared
	}
	k.shared.max = max(limit, 1)
	q.kinds = append(q.kinds, k)
	return k
}

// Ask asks for a place for a run that has been due since since. It returns whether the object has
// a place, and since when it has waited for a run of this class. The object keeps the place until
// Leave, also if it asks again. If it has to wait, wake is called for it later. Asking again may
// change the class. inputs are for [Rollout].
func (k *Kind) Ask(key types.NamespacedName, class Class, since time.Time, inputs Inputs) (has bool, waits time.Time) {
	q := k.queue
	q.mu.Lock()
	p := k.places[key]
	if p == nil {
		p = &place{class: class, since: since}
		k.places[key] = p
	} else {
		k.count(p, -1)
	}
	if p.class != class && class.Rolls() {
		p.has = false // its place was for another run; a rollout may hold this one
	}
	if p.class != class || since.Before(p.since) {
		p.class, p.since = class, since
	}
	k.count(p, +1)
	for class, r := range k.rollouts {
		if r != nil {
			r.see(inputs.of(Class(class)))
		}
	}
	woken := q.grant()
	p.taken = p.has
	has, waits = p.has, p.since
	q.mu.Unlock()
	wake(slices.DeleteFunc(woken, func(w waiter) bool { return w.kind == k && w.key == key }))
	return has, waits
}

// Take gives an object a place even if none is free, since an earlier process began its run, which
// goes on. Leave gives it back like any other.
func (k *Kind) Take(key types.NamespacedName, class Class, since time.Time) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	if p := k.places[key]; p != nil {
		k.count(p, -1)
	}
	p := &place{class: class, since: since, has: true, taken: true}
	k.places[key] = p
	k.count(p, +1)
}

// Leave gives back the place of an object, or ends its waiting.
func (k *Kind) Leave(key types.NamespacedName) {
	k.queue.change(func() {
		if p := k.places[key]; p != nil {
			delete(k.places, key)
			k.count(p, -1)
		}
	})
}

// Drain ends all waiting, and lets no further run start. An object that knows that it has a place
// keeps it until Leave.
func (k *Kind) Drain() {
	k.queue.change(func() {
		k.drained = true
		for key, p := range k.places {
			if !p.taken {
				delete(k.places, key)
				k.count(p, -1)
			}
		}
	})
}

// Close removes the kind. It must have no runs in progress, and must not ask for places any more.
func (k *Kind) Close() {
	q := k.queue
	q.change(func() {
		for key, p := range k.places {
			delete(k.places, key)
			k.count(p, -1)
		}
		q.kinds = slices.DeleteFunc(q.kinds, func(is *Kind) bool { return is == k })
	})
}

// change calls do under the lock, and then gives out the free places.
func (q *Queue) change(do func()) {
	q.mu.Lock()
	do()
	woken := q.grant()
	q.mu.Unlock()
	wake(woken)
}

// count adds n, which is 1 or -1, to the counts of runs that wait or are in progress. The caller
// must hold the lock, as for all functions below.
func (k *Kind) count(p *place, n int) {
	if !p.has {
		k.waiting[p.class] += n
		return
	}
	k.running += n
	k.shared.running += n
	k.queue.running += n
	if p.class.urgent() {
		k.shared.urgent += n
		k.queue.urgent += n
	}
	if r := k.rollouts[p.class]; r != nil {
		r.running += n
	}
}

type waiter struct {
	kind *Kind
	key  types.NamespacedName
}

// grant gives out the free places, and returns the objects that got one.
func (q *Queue) grant() (woken []waiter) {
	now := time.Now()
	var next time.Time // when a rollout continues
	large := map[*Kind]bool{}
	if q.starved != nil && !q.starved.wants(now) {
		q.starved = nil
	}
	for {
		w, wait := q.pick(now, large)
		next = wait
		if w.kind == nil {
			break
		}
		if !q.fits(w.kind) {
			large[w.kind] = true // a run of another kind may fit
			if q.starved == nil {
				q.starved, q.starvedSince = w.kind, now
			}
			continue
		}
		if w.kind == q.starved {
			q.starved = nil
		}
		p := w.kind.places[w.key]
		w.kind.count(p, -1)
		p.has = true
		q.granted++
		w.kind.count(p, +1)
		if r := w.kind.rollouts[p.class]; r != nil {
			r.begun(now)
		}
		woken = append(woken, w)
	}
	if (len(large) > 0 || q.starved != nil) && (next.IsZero() || next.After(now.Add(memoryEvery))) {
		next = now.Add(memoryEvery)
	}
	q.waitsForMemory(len(large) > 0)
	q.again(now, next)
	return woken
}

// again gives out places again at a time; zero for no such time.
func (q *Queue) again(now, at time.Time) {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if at.IsZero() {
		return
	}
	q.timer = time.AfterFunc(at.Sub(now), func() { q.change(func() {}) })
}

// wake tells objects that they have got a place. It must be called without the lock.
func wake(all []waiter) {
	for _, w := range all {
		w.kind.wake(w.key)
	}
}

// pick returns the object that gets the next place; the zero value if no waiting object may have
// one. next is when that may change by itself. Kinds in without get no place.
func (q *Queue) pick(now time.Time, without map[*Kind]bool) (best waiter, next time.Time) {
	order := byUrgency
	switch q.granted % (2 * patience) {
	case patience - 1:
		order = oldestUrgent
	case 2*patience - 1:
		order = oldest
	}
	var is *place
	for _, k := range q.kinds {
		admitted, at := k.admits(now)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if admitted == ([classes]bool{}) || without[k] {
			continue
		}
		for key, p := range k.places {
			if !p.has && admitted[p.class] && !q.yields(k, p.class, now) && (is == nil || before(k, p, best.kind, is, order)) {
				best, is = waiter{k, key}, p
			}
		}
	}
	return best, next
}

// order says which waiting run gets a place.
type order int

const (
	byUrgency order = iota
	oldestUrgent
	oldest
)

// before reports whether p of kind a runs before q of kind b.
func before(a *Kind, p *place, b *Kind, q *place, by order) bool {
	switch {
	case by == oldest, by == oldestUrgent && p.class.urgent() && q.class.urgent():
	case p.class != q.class:
		return p.class < q.class
	case a.shared.running != b.shared.running:
		return a.shared.running < b.shared.running
	}
	return p.since.Before(q.since)
}

// admits returns the classes whose waiting runs may have a place now, and when that may change by
// itself; zero if it does not.
func (k *Kind) admits(now time.Time) (admitted [classes]bool, at time.Time) {
	q, s := k.queue, k.shared
	if k.drained || s.running >= s.max || q.opts.Max > 0 && q.running >= q.opts.Max {
		return admitted, at
	}
	others := s.running-s.urgent < kept(s.max) && (q.opts.Max == 0 || q.running-q.urgent < kept(q.opts.Max))
	for class, n := range k.waiting {
		admitted[class] = n > 0 && (Class(class).urgent() || others)
	}
	for class, r := range k.rollouts {
		if r == nil || !admitted[class] {
			continue
		}
		var then time.Time
		if admitted[class], then = r.admits(now); at.IsZero() || !then.IsZero() && then.Before(at) {
			at = then
		}
	}
	return admitted, at
}

// kept returns how many of places runs may have that are not urgent.
func kept(places int) int { return places - places/reserve }
