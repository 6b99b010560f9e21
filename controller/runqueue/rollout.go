package runqueue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Rollout says how a changed role or environment, or a changed trigger that starts many
// objects, reaches the objects of a kind. It applies separately to [Content] and [Trigger].
type Rollout struct {
	// MaxParallel is how many runs of the class there may be at a time; 0 for as many as
	// there are places.
	MaxParallel int
	// Interval is the shortest time between two starts.
	Interval time.Duration
	// StopOnFailures is how many objects may fail that did not fail before. Then no
	// further run starts until the inputs change again; 0 for no limit.
	StopOnFailures int
}

// Inputs identify what is rolled out, for each class.
type Inputs struct{ Content, Trigger string }

func (i Inputs) of(c Class) string {
	if c == Trigger {
		return i.Trigger
	}
	return i.Content
}

// Rolls reports whether a [Rollout] applies to the class.
func (c Class) Rolls() bool { return c == Content || c == Trigger }

// rollout is the state of a Rollout for a class.
type rollout struct {
	Rollout

	inputs  string
	running int
	failed  map[types.NamespacedName]bool
	next    time.Time // no run starts before this time
}

// see resets the failures if the inputs have changed.
func (r *rollout) see(inputs string) {
	if inputs != r.inputs {
		r.inputs, r.failed = inputs, map[types.NamespacedName]bool{}
	}
}

func (r *rollout) stopped() bool { return r.StopOnFailures > 0 && len(r.failed) >= r.StopOnFailures }

// admits reports whether one more run may start; if not, at is when, or zero if something else has
// to happen first.
func (r *rollout) admits(now time.Time) (ok bool, at time.Time) {
	switch {
	case r.MaxParallel > 0 && r.running >= r.MaxParallel:
		return false, time.Time{}
	case r.StopOnFailures > 0 && len(r.failed)+r.running >= r.StopOnFailures:
		// The runs in progress may fail, too.
		return false, time.Time{}
	case now.Before(r.next):
		return false, r.next
	}
	return true, time.Time{}
}

func (r *rollout) begun(now time.Time) { r.next = now.Add(r.Interval) }

// Failed notes that an object has failed in a run of a class with these inputs, and did not fail
// with the previous ones. It returns true if that stops the rollout.
func (k *Kind) Failed(key types.NamespacedName, class Class, inputs Inputs) bool {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	r := k.rollouts[class]
	if r == nil || inputs.of(class) != r.inputs || r.stopped() {
		return false
	}
	r.failed[key] = true
	return r.stopped()
}

// Recovered notes that an object has succeeded with these inputs.
func (k *Kind) Recovered(key types.NamespacedName, inputs Inputs) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	for class, r := range k.rollouts {
		if r != nil && inputs.of(Class(class)) == r.inputs {
			delete(r.failed, key)
		}
	}
}

// Gone notes that an object no longer exists, or has left the watch, so that its failure does not hold a rollout.
func (k *Kind) Gone(key types.NamespacedName) {
	k.queue.change(func() {
		for _, r := range k.rollouts {
			if r != nil {
				delete(r.failed, key)
			}
		}
	})
}
