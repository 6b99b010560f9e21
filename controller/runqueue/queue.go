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
	Deletion Class = iota // of an object that waits for its finalizer
	Manual                // a run that was asked for
	Change                // a new object, a changed one, or a run that was cut short
	Effect                // what the object owns, or has waited for, has changed
	Trigger               // what starts many objects has changed
	Content               // the role, the playbook or the environment has changed
	Retry                 // after a failure, or as a role has asked for
	Period
	classes
)

// urgent tells the classes for which a share of the places is kept.
func (c Class) urgent() bool { return c <= Change }

// String is the class as metrics have it.
func (c Class) String() string {
	return [classes]string{"deletion", "manual", "change", "effect", "trigger", "content", "retry", "period"}[c]
}

const (
	// reserve is the share of the places, one in so many, that is kept for urgent runs.
	reserve = 4
	// patience is how often a place goes to what has waited longest, of urgent runs and of
	// all runs in turn: so nothing waits for ever.
	patience = 4
	// memoryPercent is how much of the memory runs may take before the next one waits.
	memoryPercent = 90
	// memoryEvery is how often a run that waits for memory is looked at.
	memoryEvery = time.Second
	// memoryPatience is how long it waits before others wait for it.
	memoryPatience = time.Minute
)

// Options are the limits over all kinds.
type Options struct {
	// Max is how many runs there are at a time; 0 is no limit.
	Max int
	// Memory is what is in use and what there is, in bytes, of what the runs may take;
	// nil, or a limit of 0, where that is not known.
	Memory func() (used, limit int64)
	// OnMemory is called when runs begin to wait for memory, and when they do so no more. It
	// does not use the queue.
	OnMemory func(waits bool)
}

// Queue has the runs that are due, and those in progress. It is safe for concurrent use.
type Queue struct {
	opts Options

	mu      sync.Mutex
	kinds   []*Kind
	running int
	urgent  int // of those that run
	granted int // so many places so far
	base    int64
	short   bool // of memory
	// starved is the kind whose runs have not fitted since then; nil if there is none.
	starved      *Kind
	starvedSince time.Time
	timer        *time.Timer
}

// New returns an empty queue.
func New(opts Options) *Queue { return &Queue{opts: opts} }

// Kind is the runs of one kind, or of a part of its objects.
type Kind struct {
	queue  *Queue
	name   string
	shared *shared
	wake   func(types.NamespacedName)
	// rollouts are those of the classes for which a [Rollout] counts; nil for the others.
	rollouts [classes]*rollout

	places  map[types.NamespacedName]*place
	drained bool
	waiting [classes]int
	running int
	need    int64 // bytes of memory of a run
}

// shared is what the parts of one kind have in common.
type shared struct {
	max     int
	running int
	urgent  int // of those that run
}

// place is a run that is due or in progress.
type place struct {
	class Class
	since time.Time
	// has is true if the object has the place, and taken once it knows.
	has, taken bool
}

// Kind adds a kind with so many runs at a time. Those of one name are parts of one kind:
// the limit, which is that of the last one, is for all of them together. wake is called, from
// any goroutine and without a lock, when an object has got the place that it waits for.
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

// Ask asks for a place for a run that is due since a time, and tells whether the object
// has it, and since when it waits for a run of that class. It has it until Leave, and keeps it
// when it asks once more. Where it has to wait, wake is called for it later; to ask again
// changes the class. inputs are for [Rollout].
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
		p.has = false // it has its place as another run: a rollout may hold this one
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

// Take gives an object its place whether there is one or not: an earlier process has begun its
// run, which goes on. It leaves it as any other.
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

// Leave gives the place of an object back, or has it wait no more.
func (k *Kind) Leave(key types.NamespacedName) {
	k.queue.change(func() {
		if p := k.places[key]; p != nil {
			delete(k.places, key)
			k.count(p, -1)
		}
	})
}

// Drain has nothing wait any more, and nothing start: what has a place and knows it keeps
// it until Leave.
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

// Close removes the kind. Nothing runs for it, and nothing will.
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

// change does something under the lock, and gives out the places that are free then.
func (q *Queue) change(do func()) {
	q.mu.Lock()
	do()
	woken := q.grant()
	q.mu.Unlock()
	wake(woken)
}

// count adds a run to those that wait or are in progress, or takes it off. It is called
// under the lock, as is all that follows.
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

// grant gives out the places that are free, and returns who has got one.
func (q *Queue) grant() (woken []waiter) {
	now := time.Now()
	var next time.Time // a rollout goes on
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

// again has places given out at a time.
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

// wake is called without the lock.
func wake(all []waiter) {
	for _, w := range all {
		w.kind.wake(w.key)
	}
}

// pick is the object that gets the next place; none if nothing waits that may have one.
// next is when that may change by itself. Kinds in without get none.
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

// order is which of the runs that wait gets a place.
type order int

const (
	byUrgency order = iota
	oldestUrgent
	oldest
)

// before tells whether p of kind a is to run before q of kind b.
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

// admits tells of which classes a run that waits may have a place now, and when that may
// change by itself; zero if it does not.
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

// kept is how many of so many places runs may have that are not urgent.
func kept(places int) int { return places - places/reserve }
