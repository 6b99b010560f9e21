package runqueue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Rollout says how a changed role or environment, or a changed object that starts many,
// reaches the objects of a kind. The classes [Content] and [Trigger] count each for itself.
type Rollout struct {
	// MaxParallel is how many runs of the class there are at a time; 0 for as many
	// as there are places.
	MaxParallel int
	// Interval is the least time between the starts of two.
	Interval time.Duration
	// StopOnFailures is after how many objects that fail, and did not before, no further
	// one starts until the inputs change again; 0 for never.
	StopOnFailures int
}

// Inputs identify what is rolled out, by class.
type Inputs struct{ Content, Trigger string }

func (i Inputs) of(c Class) string {
	if c == Trigger {
		return i.Trigger
	}
	return i.Content
}

// Rolls tells the classes for which a [Rollout] counts.
func (c Class) Rolls() bool { return c == Content || c == Trigger }

// rollout is where a Rollout stands for a class.
type rollout struct {
	Rollout

	inputs  string
	running int
	failed  map[types.NamespacedName]bool
	next    time.Time // no run starts before
}

// see starts the count again with other inputs.
func (r *rollout) see(inputs string) {
	if inputs != r.inputs {
		r.inputs, r.failed = inputs, map[types.NamespacedName]bool{}
	}
}

func (r *rollout) stopped() bool { return r.StopOnFailures > 0 && len(r.failed) >= r.StopOnFailures }

// admits tells whether one more may start, or when; zero if something else has to happen
// first.
func (r *rollout) admits(now time.Time) (ok bool, at time.Time) {
	switch {
	case r.MaxParallel > 0 && r.running >= r.MaxParallel:
		return false, time.Time{}
	case r.StopOnFailures > 0 && len(r.failed)+r.running >= r.StopOnFailures:
		// Those in progress may fail, too.
		return false, time.Time{}
	case now.Before(r.next):
		return false, r.next
	}
	return true, time.Time{}
}

func (r *rollout) begun(now time.Time) { r.next = now.Add(r.Interval) }

// Failed notes that an object fails in a run of a class with the inputs, and did not with
// those before. It is true if the rollout stops by that.
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

// Recovered notes that an object has succeeded with the inputs.
func (k *Kind) Recovered(key types.NamespacedName, inputs Inputs) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	for class, r := range k.rollouts {
		if r != nil && inputs.of(Class(class)) == r.inputs {
			delete(r.failed, key)
		}
	}
}

// Gone notes that an object is not there any more, so that its failure holds no rollout.
func (k *Kind) Gone(key types.NamespacedName) {
	k.queue.change(func() {
		for _, r := range k.rollouts {
			if r != nil {
				delete(r.failed, key)
			}
		}
	})
}
