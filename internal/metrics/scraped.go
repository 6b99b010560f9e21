package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ages are the longest waits among the objects of a kind, with some counts; 0 if no object waits.
type Ages struct {
	// Queue is the longest time that an object has been waiting for its reconcile.
	Queue time.Duration
	// Waiting is how many runs are waiting for a place, by their class. Stopped is true if a
	// rollout has stopped: changed content or environment reaches no further objects.
	Waiting map[string]int
	Stopped bool
	// Deletion is the longest time that an object has been in deletion while the
	// operator keeps its finalizer.
	Deletion time.Duration
	// Run is how long the oldest run in progress has lasted.
	Run time.Duration
	// Pod is the longest time that a run as a Job has waited for its Pod.
	Pod time.Duration
	// Drifted is for how many objects the last check has found changes.
	Drifted int
	// Failed is for how many objects the last run has failed, whether it is repeated or not.
	Failed int
}

// add adds the values of another watch of the kind.
func (a *Ages) add(b Ages) {
	a.Queue, a.Deletion, a.Stopped = max(a.Queue, b.Queue), max(a.Deletion, b.Deletion), a.Stopped || b.Stopped
	a.Pod = max(a.Pod, b.Pod)
	a.Run, a.Drifted, a.Failed = max(a.Run, b.Run), a.Drifted+b.Drifted, a.Failed+b.Failed
	for class, n := range b.Waiting {
		a.Waiting[class] += n
	}
}

// Disk is the size of a file system and its free space, in bytes.
type Disk struct{ Size, Free int64 }

// scraped are the metrics that no event updates: their values are read when the
// metrics are scraped.
type scraped struct {
	queue, waiting, stopped, deletion, run, pod, drifted, failed, size, free *prometheus.Desc

	mu   sync.Mutex
	ages map[schema.GroupVersionKind][]*func() Ages
	disk func() (Disk, error)
}

func newScraped() scraped {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	kind := []string{"group", "version", "kind"}
	return scraped{
		queue: desc("rolewright_queue_oldest_seconds",
			"The longest time in seconds that an object has been waiting for a reconcile or a run that is due; 0 if none waits.", kind...),
		waiting: desc("rolewright_runs_waiting",
			"Runs that are due and wait for a place, by how urgent they are: deletion, manual, change, effect, trigger, content, retry, period.",
			append(kind, "class")...),
		stopped: desc("rolewright_rollout_stopped",
			"1 while the rollout of a change is stopped because rollout.stopOnFailures objects have failed with it, else 0.", kind...),
		deletion: desc("rolewright_deletion_oldest_seconds",
			"Age in seconds of the oldest deletion that waits for its finalizer run and is not paused; 0 if none waits.", kind...),
		run: desc("rolewright_run_oldest_seconds",
			"Age in seconds of the oldest run in progress; 0 if there is none.", kind...),
		pod: desc("rolewright_pod_wait_oldest_seconds",
			"The longest time in seconds that a run as a Job has been waiting for its Pod to start, or to report again (executor job); 0 if none waits.", kind...),
		drifted: desc("rolewright_drifted",
			"Objects that have drifted: their last run was a check, and would have changed something.", kind...),
		failed: desc("rolewright_objects_failed",
			"Objects whose last run has failed: those that are run again, and stalled ones.", kind...),
		size: desc("rolewright_disk_size_bytes", "Size of the file system of --runner-root."),
		free: desc("rolewright_disk_free_bytes", "Free space of the file system of --runner-root."),
		ages: map[schema.GroupVersionKind][]*func() Ages{},
	}
}

// Describe implements [prometheus.Collector].
func (s *scraped) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.queue, s.waiting, s.stopped, s.deletion, s.run, s.pod, s.drifted, s.failed, s.size, s.free} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *scraped) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for gvk, watches := range s.ages {
		a := Ages{Waiting: map[string]int{}}
		for _, ages := range watches {
			a.add((*ages)())
		}
		gauge(s.queue, max(a.Queue, 0).Seconds(), gvk.Group, gvk.Version, gvk.Kind)
		for class, n := range a.Waiting {
			gauge(s.waiting, float64(n), gvk.Group, gvk.Version, gvk.Kind, class)
		}
		gauge(s.stopped, oneIf(a.Stopped), gvk.Group, gvk.Version, gvk.Kind)
		gauge(s.deletion, max(a.Deletion, 0).Seconds(), gvk.Group, gvk.Version, gvk.Kind)
		gauge(s.run, max(a.Run, 0).Seconds(), gvk.Group, gvk.Version, gvk.Kind)
		gauge(s.pod, max(a.Pod, 0).Seconds(), gvk.Group, gvk.Version, gvk.Kind)
		gauge(s.drifted, float64(a.Drifted), gvk.Group, gvk.Version, gvk.Kind)
		gauge(s.failed, float64(a.Failed), gvk.Group, gvk.Version, gvk.Kind)
	}
	if s.disk == nil {
		return
	}
	if disk, err := s.disk(); err == nil { // without a value there is no series
		gauge(s.size, float64(disk.Size))
		gauge(s.free, float64(disk.Free))
	}
}

// WatchAges calls ages of a watch of a kind at each scrape, until the returned function is
// called. It also starts the counts of the kind's lost runs and loops at 0. ages must be safe for
// concurrent use and must not block. Several watches of one kind are combined.
func (r *Recorder) WatchAges(gvk schema.GroupVersionKind, ages func() Ages) (stop func()) {
	if r == nil {
		return func() {}
	}
	// A counter that is set to 0 here is visible from the first scrape on.
	r.lost.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Add(0)
	r.loops.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Add(0)
	s, mine := &r.scraped, &ages
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages[gvk] = append(s.ages[gvk], mine)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ages[gvk] = slices.DeleteFunc(s.ages[gvk], func(is *func() Ages) bool { return is == mine })
		if len(s.ages[gvk]) == 0 {
			delete(s.ages, gvk)
		}
	}
}

// WatchDisk measures the runs' disk at each scrape.
func (r *Recorder) WatchDisk(disk func() (Disk, error)) {
	if r == nil {
		return
	}
	r.scraped.mu.Lock()
	defer r.scraped.mu.Unlock()
	r.scraped.disk = disk
}
