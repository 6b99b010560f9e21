package scenario

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// maxNames is how many changed tasks of a run are remembered.
const maxNames = 20

// Runs are the runs that have ended. The method Follow is for [controller.Options].
// Runs is safe for concurrent use.
type Runs struct {
	mu    sync.Mutex
	ended map[object][]run
	more  chan struct{} // closed when a run ends
}

type object struct {
	kind schema.GroupKind // without the version, since the watch may have another one
	key  types.NamespacedName
}

type run struct {
	status.Run
	changed []string // names of tasks
}

// NewRuns returns Runs without runs.
func NewRuns() *Runs {
	return &Runs{ended: map[object][]run{}, more: make(chan struct{})}
}

// Follow returns a follower that notes the end of a run.
func (r *Runs) Follow(gvk schema.GroupVersionKind, key types.NamespacedName, _ string) controller.Follower {
	return &follower{runs: r, of: object{gvk.GroupKind(), key}}
}

type follower struct {
	runs    *Runs
	of      object
	changed []string
}

// Event notes the name of a task that changed something.
func (f *follower) Event(e jobevent.Event) {
	if e.Kind == jobevent.RunnerOK && e.Changed() && len(f.changed) < maxNames {
		f.changed = append(f.changed, text.Uncoloured(e.Data.Task))
	}
}

// End notes the end of the run.
func (f *follower) End(ended status.Run) {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	f.runs.ended[f.of] = append(f.runs.ended[f.of], run{ended, f.changed})
	close(f.runs.more)
	f.runs.more = make(chan struct{})
}

// await waits until a run of the object is as wanted, and returns the first such run.
func (r *Runs) await(ctx context.Context, of object, wanted func(run) bool) (run, error) {
	for seen := 0; ; {
		r.mu.Lock()
		ended, more := r.ended[of], r.more
		r.mu.Unlock()
		for ; seen < len(ended); seen++ {
			if wanted(ended[seen]) {
				return ended[seen], nil
			}
		}
		select {
		case <-ctx.Done():
			return run{}, ctx.Err()
		case <-more:
		}
	}
}
