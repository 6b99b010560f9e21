package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// runMetrics are about runs.
type runMetrics struct {
	runs, executors, modules, tasks               *prometheus.CounterVec
	warmReady, lineDiffers, runLimit, shortMemory *prometheus.GaugeVec
	inFlight                                      *prometheus.GaugeVec
	waits, memory                                 *prometheus.HistogramVec
	cpu, lost, pruned, loops, failures            *prometheus.CounterVec
	events                                        *prometheus.CounterVec
	failing                                       places
}

func newRunMetrics(l *list) runMetrics {
	return runMetrics{
		failing: places{known: map[string]struct{}{}},
		runs: l.counter("rolewright_runs_total",
			"Runs that ended or could not begin, by what started them and how they ended.",
			"group", "version", "kind", "cause", "reason"),
		executors: l.counter("rolewright_runs_by_executor_total",
			"Runs that took place, by executor: warm (a forked playbook), runner (a new Python), job (a Pod), command (a command or chart) or handler (Go code).",
			"group", "version", "kind", "executor"),
		modules: l.counter("rolewright_modules_total",
			"Modules that forked runs executed, by how: forked, or why a new Python was started (pipelining, become, async, connection, …).",
			"group", "version", "kind", "way"),
		tasks: l.counter("rolewright_tasks_total",
			"Tasks of forked runs, by why they needed a worker process of their own (action, option, plugin, template, …); none: they needed no worker.",
			"group", "version", "kind", "way"),
		warmReady: l.gauge("rolewright_warm_ready",
			"1 while runs can be forked: there is a fork server, or it has exited because it was idle, and the next run starts one. 0 while runs are not forked."),
		lineDiffers: l.gauge("rolewright_warm_line_differs",
			"1 for each part of ansible-core that forked runs rely on and that differs from the tested versions or fails the self-check. Runs are then not forked, or, if rolewright_warm_ready is 1, each of their tasks has a worker process.", "name"),
		runLimit: l.gauge("rolewright_runs_limit",
			"Temporary limit of runs at a time while forks are slow; 0 if there is no such limit."),
		shortMemory: l.gauge("rolewright_runs_wait_for_memory",
			"1 while runs wait because the container may not have the memory for one more, else 0."),
		inFlight: l.gauge("rolewright_runs_in_flight", "Runs in progress.", "group", "version", "kind"),
		waits: l.histogram("rolewright_run_wait_seconds",
			"How long runs waited from when they were due until they started, by what started them.",
			waitBuckets(), "group", "version", "kind", "cause"),
		memory: l.histogram("rolewright_run_memory_bytes",
			"The highest memory use that was seen for all processes of a run together, by executor.",
			memoryBuckets(), "group", "version", "kind", "executor"),
		cpu:    l.counter("rolewright_run_cpu_seconds_total", "CPU time that runs took, by executor.", "group", "version", "kind", "executor"),
		lost:   l.counter("rolewright_runs_lost_total", "Runs of an earlier process whose end was not seen. They are retried.", "group", "version", "kind"),
		pruned: l.counter("rolewright_pruned_total", "Objects that were removed because the last run of their owner has not touched them.", "group", "version", "kind"),
		loops: l.counter("rolewright_loops_total",
			"Runs started by changes of other clients or of the object's own role, counted from the tenth such run in a row.", "group", "version", "kind"),
		failures: l.counter("rolewright_task_failures_total",
			"Tasks that made a run fail, by file and line of the task; other for those beyond the first 200.",
			"group", "version", "kind", "task"),
		events: l.counter("rolewright_run_events_total",
			"Job events of all runs, by what became of them.", "result"),
	}
}

// waitBuckets range from waits that are not noticed to waits that cause an alert.
func waitBuckets() []float64 { return []float64{.1, .5, 1, 5, 15, 30, 60, 300, 900, 3600} }

// memoryBuckets range from 32 MiB to 4 GiB.
func memoryBuckets() []float64 { return prometheus.ExponentialBuckets(32<<20, 2, 8) }

// RunStarted counts a run as in progress. Exactly one RunEnded or RunHandedOver must follow.
func (r *Recorder) RunStarted(gvk schema.GroupVersionKind) {
	r.orNone().inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// RunEnded counts the end of a run that RunStarted counted. The cause and the
// reason are words of a fixed list, never text.
func (r *Recorder) RunEnded(gvk schema.GroupVersionKind, cause, reason string) {
	r = r.orNone()
	r.inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Dec()
	r.runs.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, cause, reason).Inc()
}

// RunNotMade counts a run that failed before it was in progress. RunStarted must not have counted it.
func (r *Recorder) RunNotMade(gvk schema.GroupVersionKind, cause, reason string) {
	r.orNone().runs.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, cause, reason).Inc()
}

// RunHandedOver stops counting a run as in progress; it goes on without this process.
func (r *Recorder) RunHandedOver(gvk schema.GroupVersionKind) {
	r.orNone().inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Dec()
}

// RunMade counts a run that took place. executor is the word for how it was started.
func (r *Recorder) RunMade(gvk schema.GroupVersionKind, executor string) {
	r.orNone().executors.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Inc()
}

// ModulesRun counts the modules of a run, by how they were executed.
func (r *Recorder) ModulesRun(gvk schema.GroupVersionKind, modules map[string]int64) {
	addByWay(r.orNone().modules, gvk, modules)
}

// TasksRun counts the tasks of a run, by why they had a worker.
func (r *Recorder) TasksRun(gvk schema.GroupVersionKind, tasks map[string]int64) {
	addByWay(r.orNone().tasks, gvk, tasks)
}

// addByWay adds to counters whose last label is a way, a word from a fixed list.
func addByWay(counters *prometheus.CounterVec, gvk schema.GroupVersionKind, ways map[string]int64) {
	for way, number := range ways {
		counters.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, way).Add(float64(number))
	}
}

// RunLimit sets how many runs may go on at a time while forks take too long; 0 means
// no limit.
func (r *Recorder) RunLimit(limit int) {
	r.orNone().runLimit.WithLabelValues().Set(float64(limit))
}

// WaitForMemory says whether runs wait for memory.
func (r *Recorder) WaitForMemory(waits bool) {
	r.orNone().shortMemory.WithLabelValues().Set(oneIf(waits))
}

// WarmReady says whether runs can be forked at the moment.
func (r *Recorder) WarmReady(ready bool) {
	r.orNone().warmReady.WithLabelValues().Set(oneIf(ready))
}

// LineDiffers sets what prevents forked runs with the installed line of
// ansible-core; without names, nothing does.
func (r *Recorder) LineDiffers(names []string) {
	r = r.orNone()
	r.lineDiffers.Reset()
	for _, name := range names {
		r.lineDiffers.WithLabelValues(name).Set(1)
	}
}

// RunEvents counts n job events; an n below 1 counts nothing.
func (r *Recorder) RunEvents(result EventResult, n int) {
	if n < 1 {
		return
	}
	r.orNone().events.WithLabelValues(string(result)).Add(float64(n))
}

// RunWaited measures the time between when a run was due and its start. cause is
// the same as for RunEnded.
func (r *Recorder) RunWaited(gvk schema.GroupVersionKind, cause string, waited time.Duration) {
	r.orNone().waits.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, cause).Observe(max(waited, 0).Seconds())
}

// RunMemory measures the memory of a run. executor is the word for how it was started.
// Less than 1 byte means unknown, and is not measured.
func (r *Recorder) RunMemory(gvk schema.GroupVersionKind, executor string, bytes int64) {
	if bytes < 1 {
		return
	}
	r.orNone().memory.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Observe(float64(bytes))
}

// RunCPU adds the CPU time of a run. executor is the word for how it was started.
func (r *Recorder) RunCPU(gvk schema.GroupVersionKind, executor string, took time.Duration) {
	r.orNone().cpu.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Add(max(took, 0).Seconds())
}

// RunLost counts a run whose end was not observed.
func (r *Recorder) RunLost(gvk schema.GroupVersionKind) {
	r.orNone().lost.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// Pruned counts objects that were removed because a run of their owner did not touch
// them.
func (r *Recorder) Pruned(gvk schema.GroupVersionKind, n int) {
	r.orNone().pruned.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Add(float64(n))
}

// Loop counts a run that is part of a loop.
func (r *Recorder) Loop(gvk schema.GroupVersionKind) {
	r.orNone().loops.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// TaskFailed counts a task that made a run fail, by its file:line. Names of
// tasks are not labels: templates may put anything into them.
func (r *Recorder) TaskFailed(gvk schema.GroupVersionKind, path string) {
	r = r.orNone()
	r.failures.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, r.failing.label(path)).Inc()
}

// maxPlaces is how many tasks have their own label: content that generates task files
// during a run has a new path for each.
const maxPlaces = 200

// places are the labels of tasks in use.
type places struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// label returns path, or "other" once there are too many paths.
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
