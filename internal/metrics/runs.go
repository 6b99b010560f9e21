package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RunWaited measures the time from when a run was due to its start. The cause is
// the one that RunEnded gets.
func (r *Recorder) RunWaited(gvk schema.GroupVersionKind, cause string, waited time.Duration) {
	if r == nil {
		return
	}
	r.waits.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, cause).Observe(max(waited, 0).Seconds())
}

// RunMemory measures the memory of a run, by the word for how it was started. Less
// than 1 byte means unknown and is not measured.
func (r *Recorder) RunMemory(gvk schema.GroupVersionKind, executor string, bytes int64) {
	if r == nil || bytes < 1 {
		return
	}
	r.memory.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Observe(float64(bytes))
}

// RunCPU adds the CPU of a run, by the word for how it was started.
func (r *Recorder) RunCPU(gvk schema.GroupVersionKind, executor string, took time.Duration) {
	if r == nil {
		return
	}
	r.cpu.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Add(max(took, 0).Seconds())
}

// RunLost counts a run whose end was not seen.
func (r *Recorder) RunLost(gvk schema.GroupVersionKind) {
	if r == nil {
		return
	}
	r.lost.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// Pruned counts objects that were removed because a run of their owner has not touched
// them.
func (r *Recorder) Pruned(gvk schema.GroupVersionKind, n int) {
	if r == nil {
		return
	}
	r.pruned.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Add(float64(n))
}

// Loop counts a run of a loop.
func (r *Recorder) Loop(gvk schema.GroupVersionKind) {
	if r == nil {
		return
	}
	r.loops.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// TaskFailed counts a task that made a run fail, by its file:line. Names of
// tasks are no labels: templates may put anything into them.
func (r *Recorder) TaskFailed(gvk schema.GroupVersionKind, path string) {
	if r == nil {
		return
	}
	r.failures.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, r.failing.label(path)).Inc()
}

// maxPlaces is how many tasks have their own label: content that writes task files
// while it runs has a new path for each.
const maxPlaces = 200

// places are the labels of tasks in use.
type places struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// label is path, as long as there are not too many of them.
func (p *places) label(path string) string {
	if path == "" {
		return "unknown"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.known[path]; !ok && len(p.known) >= maxPlaces {
		return "other"
	}
	p.known[path] = struct{}{}
	return path
}
