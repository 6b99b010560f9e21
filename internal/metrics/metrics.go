// Package metrics is the list of what Rolewright counts and measures:
// ansible-operator's metrics under their names and labels, so that dashboards
// keep working, and Rolewright's own, whose names start with rolewright_.
//
// It knows metric names, labels and buckets. It does not know when something
// happens: its callers report that to a [Recorder]. It serves nothing and has no
// registry; the caller passes the registerer.
package metrics

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EventResult says what happened to a job event.
type EventResult string

// The results of a job event.
const (
	// EventAccepted: the event belongs to the run and was used.
	EventAccepted EventResult = "accepted"
	// EventForeign: the event does not carry the run's playbook UUID.
	EventForeign EventResult = "foreign"
	// EventBad: the event could not be decoded.
	EventBad EventResult = "bad"
	// EventGap: the event never arrived; the counters jump over it.
	EventGap EventResult = "gap"
)

// Moment is the point of a run at which status is written.
type Moment string

// The moments of a status write.
const (
	MomentStart    Moment = "start"
	MomentProgress Moment = "progress"
	MomentEnd      Moment = "end"
)

// Recorder counts and measures. Its methods are safe for concurrent use, never
// block, and cannot fail. A nil *Recorder is usable and records nothing.
//
// A Recorder is a [prometheus.Collector]: after [New], the registerer's Unregister
// removes it again.
type Recorder struct {
	buildInfo       *prometheus.GaugeVec
	reconcileResult *prometheus.GaugeVec
	reconciles      *prometheus.HistogramVec
	createdAt       *prometheus.GaugeVec

	phases       *prometheus.HistogramVec
	runs         *prometheus.CounterVec
	executors    *prometheus.CounterVec
	modules      *prometheus.CounterVec
	warmReady    *prometheus.GaugeVec
	runLimit     *prometheus.GaugeVec
	shortMemory  *prometheus.GaugeVec
	inFlight     *prometheus.GaugeVec
	waits        *prometheus.HistogramVec
	memory       *prometheus.HistogramVec
	cpu          *prometheus.CounterVec
	lost         *prometheus.CounterVec
	pruned       *prometheus.CounterVec
	loops        *prometheus.CounterVec
	rejected     *prometheus.CounterVec
	failures     *prometheus.CounterVec
	failing      places
	events       *prometheus.CounterVec
	statusWrites *prometheus.CounterVec
	decisions    *prometheus.CounterVec
	kindReady    *prometheus.GaugeVec
	unwatched    *prometheus.GaugeVec
	broken       *prometheus.GaugeVec
	shards       shardMetrics
	webhooks     *prometheus.HistogramVec

	artifactRuns  *prometheus.GaugeVec
	artifactBytes *prometheus.GaugeVec
	scraped       scraped

	proxyRequests  *prometheus.CounterVec
	proxyAnonymous *prometheus.GaugeVec
	anonymous      *prometheus.CounterVec
	userFull       *prometheus.CounterVec
}

var _ prometheus.Collector = (*Recorder)(nil)

// New returns a Recorder that is registered with reg: all of its metrics or,
// with an error, none.
func New(reg prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		failing: places{known: map[string]struct{}{}},

		buildInfo: gauge("ansible_operator_build_info",
			"Always 1; the labels say which release and commit runs.", "commit", "version"),
		reconcileResult: gauge("ansible_operator_reconcile_result",
			"Reconciles that ended, by result. A counter that is exposed as a gauge.", "GVK", "result"),
		reconciles: histogram("ansible_operator_reconciles",
			"How long whole reconciles took, in seconds.", reconcileBuckets(), "GVK"),
		createdAt: gauge("resource_created_at_seconds",
			"When a watched object was created, in Unix time.", "group", "version", "kind", "namespace", "name"),

		phases: histogram("rolewright_phase_duration_seconds",
			"How long each phase of a reconcile took.", phaseBuckets(), "group", "kind", "phase"),
		runs: counter("rolewright_runs_total",
			"Ansible runs that ended, by what started them and how they ended.",
			"group", "version", "kind", "cause", "reason"),
		executors: counter("rolewright_runs_by_executor_total",
			"Ansible runs that took place, by executor: warm (forked) or runner (a new Python).",
			"group", "version", "kind", "executor"),
		modules: counter("rolewright_modules_total",
			"Modules that forked runs executed, by how: forked, or why a new Python was started (pipelining, become, async, connection, …).",
			"group", "version", "kind", "way"),
		warmReady: gauge("rolewright_warm_ready",
			"1 while there is a fork server from which runs are made, else 0."),
		runLimit: gauge("rolewright_runs_limit",
			"How many runs there are at a time while the fork server answers late; 0 while there is no such limit."),
		shortMemory: gauge("rolewright_runs_wait_for_memory",
			"1 while runs wait because the container may not have the memory for one more, else 0."),
		inFlight: gauge("rolewright_runs_in_flight", "Ansible runs in progress.", "group", "version", "kind"),
		waits: histogram("rolewright_run_wait_seconds",
			"How long runs waited from when they were due until they started, by what started them.",
			waitBuckets(), "group", "version", "kind", "cause"),
		memory: histogram("rolewright_run_memory_bytes",
			"The most memory that the processes of a run were seen to take together, by how the run was made.",
			memoryBuckets(), "group", "version", "kind", "executor"),
		cpu:    counter("rolewright_run_cpu_seconds_total", "The CPU that runs have taken, by how they were made.", "group", "version", "kind", "executor"),
		lost:   counter("rolewright_runs_lost_total", "Runs of an earlier process whose end was not seen. They are retried.", "group", "version", "kind"),
		pruned: counter("rolewright_pruned_total", "Objects that were removed because the last run of their owner has not touched them.", "group", "version", "kind"),
		loops: counter("rolewright_loops_total",
			"Runs of a loop: that changes by others, or by the object's own role, have started, after ten such runs of the object in a row.", "group", "version", "kind"),
		rejected: counter("rolewright_status_rejected_total",
			"Parts of status.ansible that were ignored when their object was first met: the operator would not have written them so.",
			"group", "version", "kind", "part"),
		failures: counter("rolewright_task_failures_total",
			"Tasks that made a run fail, by file and line of the task; other for those beyond the first 200.",
			"group", "version", "kind", "task"),
		scraped: newScraped(), shards: newShardMetrics(), webhooks: newWebhooks(),
		events: counter("rolewright_run_events_total",
			"Job events of all runs, by what became of them.", "result"),
		statusWrites: counter("rolewright_status_writes_total",
			"Writes of an object's status, by the moment of the run and their result.",
			"group", "kind", "moment", "result"),
		decisions: counter("rolewright_decisions_total",
			"Decisions whether a run is due.", "group", "kind", "decision"),
		kindReady: gauge("rolewright_kind_ready",
			"1 while a watched kind is installed and its cache is in step, else 0.", "group", "version", "kind"),
		unwatched: gauge("rolewright_references_unwatched", "1 while objects of a resource cannot be watched that a watch refers to (references, varsFrom, triggers): the operator may not, or their kind is gone; else 0.", "group", "version", "kind", "resource"),
		broken: gauge("rolewright_content_broken",
			"1 while changed content or a changed watches file cannot be used and the one before stays in use (--watch-content), else 0."),

		artifactRuns: gauge("rolewright_artifact_runs",
			"Finished runs whose artifacts are kept."),
		artifactBytes: gauge("rolewright_artifact_bytes",
			"How much of the disk the finished runs take whose artifacts are kept."),

		proxyRequests: counter("rolewright_proxy_requests_total",
			"Requests of runs to the API server, by verb, kind (empty: none, or not known) and outcome.",
			"verb", "kind", "outcome"),
		proxyAnonymous: gauge("rolewright_proxy_anonymous",
			"1 if the API proxy lets clients without a token act as the operator (--proxy-anonymous), else 0."),
		anonymous: counter("rolewright_proxy_anonymous_requests_total",
			"Requests without a token that the API proxy let in."),
		userFull: counter("rolewright_user_metrics_refused_total",
			"Metrics of roles that were refused because a limit was reached."),
	}
	if err := reg.Register(r); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return r, nil
}

// reconcileBuckets are ansible-operator's, 5 ms to 10 s, and more above them:
// ansible-operator measured the set-up of a run, but a whole reconcile may last
// for hours.
func reconcileBuckets() []float64 {
	return slices.Concat(prometheus.DefBuckets, []float64{30, 60, 120, 300, 600, 1800, 3600, 7200, 14400})
}

// phaseBuckets start lower: all phases but the run itself are over in about a
// millisecond.
func phaseBuckets() []float64 {
	return slices.Concat([]float64{.0005, .001, .0025}, reconcileBuckets())
}

// waitBuckets reach from waits that no one notices to waits that page someone.
func waitBuckets() []float64 { return []float64{.1, .5, 1, 5, 15, 30, 60, 300, 900, 3600} }

// memoryBuckets are 32 MiB to 4 GiB.
func memoryBuckets() []float64 { return prometheus.ExponentialBuckets(32<<20, 2, 8) }

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (r *Recorder) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		r.buildInfo, r.reconcileResult, r.reconciles, r.createdAt,
		r.phases, r.runs, r.executors, r.modules, r.warmReady, r.runLimit, r.shortMemory, r.inFlight, r.events, r.statusWrites, r.decisions, r.kindReady, r.unwatched, r.broken, r.shards.held, r.shards.objects, r.shards.handovers, r.webhooks, r.artifactRuns, r.artifactBytes,
		r.proxyRequests, r.proxyAnonymous, r.anonymous, r.userFull, r.waits, r.memory, r.cpu, r.lost, r.pruned, r.loops, r.rejected, r.failures, &r.scraped,
	}
}

// Describe implements [prometheus.Collector].
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range r.collectors() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	for _, c := range r.collectors() {
		c.Collect(ch)
	}
}

// BuildInfo says which build runs.
func (r *Recorder) BuildInfo(version, commit string) {
	if r == nil {
		return
	}
	r.buildInfo.WithLabelValues(commit, version).Set(1)
}

// Reconciled measures one reconcile from its first step to its last.
func (r *Recorder) Reconciled(gvk schema.GroupVersionKind, took time.Duration) {
	if r == nil {
		return
	}
	r.reconciles.WithLabelValues(gvk.String()).Observe(took.Seconds())
}

// ReconcileResult counts a reconcile that ran Ansible, or could not.
func (r *Recorder) ReconcileResult(gvk schema.GroupVersionKind, succeeded bool) {
	if r == nil {
		return
	}
	r.reconcileResult.WithLabelValues(gvk.String(), either(succeeded, "succeeded", "failed")).Inc()
}

// ObjectSeen notes when an object was created. To note it again is harmless.
func (r *Recorder) ObjectSeen(gvk schema.GroupVersionKind, namespace, name string, created time.Time) {
	if r == nil {
		return
	}
	r.createdAt.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, namespace, name).Set(float64(created.Unix()))
}

// ObjectGone removes what ObjectSeen noted.
func (r *Recorder) ObjectGone(gvk schema.GroupVersionKind, namespace, name string) {
	if r == nil {
		return
	}
	r.createdAt.DeleteLabelValues(gvk.Group, gvk.Version, gvk.Kind, namespace, name)
}

// Phase measures one phase of a reconcile. The names of phases are constants
// of the caller. traceID is the trace of the run, which becomes an exemplar; empty for none.
func (r *Recorder) Phase(gvk schema.GroupVersionKind, phase string, took time.Duration, traceID string) {
	if r == nil {
		return
	}
	observer := r.phases.WithLabelValues(gvk.Group, gvk.Kind, phase)
	if exemplars, ok := observer.(prometheus.ExemplarObserver); ok && traceID != "" {
		exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	observer.Observe(took.Seconds())
}

// RunStarted counts a run as in progress. Exactly one RunEnded or RunHandedOver must follow.
func (r *Recorder) RunStarted(gvk schema.GroupVersionKind) {
	if r == nil {
		return
	}
	r.inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Inc()
}

// RunEnded counts the end of a run that RunStarted counted. The cause and the
// reason are words of a fixed list, never text.
func (r *Recorder) RunEnded(gvk schema.GroupVersionKind, cause, reason string) {
	if r == nil {
		return
	}
	r.inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Dec()
	r.runs.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, cause, reason).Inc()
}

// RunHandedOver counts a run as in progress no more that goes on without this process.
func (r *Recorder) RunHandedOver(gvk schema.GroupVersionKind) {
	if r == nil {
		return
	}
	r.inFlight.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Dec()
}

// RunMade counts a run that took place, by the word for how it was started.
func (r *Recorder) RunMade(gvk schema.GroupVersionKind, executor string) {
	if r == nil {
		return
	}
	r.executors.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, executor).Inc()
}

// ModulesRun counts the modules of a run, by how they were executed.
func (r *Recorder) ModulesRun(gvk schema.GroupVersionKind, modules map[string]int64) {
	if r == nil {
		return
	}
	for way, number := range modules {
		r.modules.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, way).Add(float64(number))
	}
}

// RunLimit says how many runs there may be at a time because forks come late; 0 is
// no limit.
func (r *Recorder) RunLimit(limit int) {
	if r == nil {
		return
	}
	r.runLimit.WithLabelValues().Set(float64(limit))
}

// WaitForMemory says whether runs wait for memory.
func (r *Recorder) WaitForMemory(waits bool) {
	if r == nil {
		return
	}
	r.shortMemory.WithLabelValues().Set(oneIf(waits))
}

// WarmReady says whether runs can be forked at the moment.
func (r *Recorder) WarmReady(ready bool) {
	if r == nil {
		return
	}
	r.warmReady.WithLabelValues().Set(oneIf(ready))
}

// RunEvents counts n job events; an n below 1 counts nothing.
func (r *Recorder) RunEvents(result EventResult, n int) {
	if r == nil || n < 1 {
		return
	}
	r.events.WithLabelValues(string(result)).Add(float64(n))
}

// StatusWrite counts one attempt to write an object's status; err is its result.
func (r *Recorder) StatusWrite(gvk schema.GroupVersionKind, moment Moment, err error) {
	if r == nil {
		return
	}
	r.statusWrites.WithLabelValues(gvk.Group, gvk.Kind, string(moment), either(err == nil, "succeeded", "failed")).Inc()
}

// StatusRejected counts a part of an object's record that was ignored. The part
// is a word of a fixed list.
func (r *Recorder) StatusRejected(gvk schema.GroupVersionKind, part string) {
	if r == nil {
		return
	}
	r.rejected.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, part).Inc()
}

// Decision counts one decision whether a run is due.
func (r *Recorder) Decision(gvk schema.GroupVersionKind, run bool) {
	if r == nil {
		return
	}
	r.decisions.WithLabelValues(gvk.Group, gvk.Kind, either(run, "run", "skip")).Inc()
}

// KindReady says whether a watched kind is served at the moment.
func (r *Recorder) KindReady(gvk schema.GroupVersionKind, ready bool) {
	if r == nil {
		return
	}
	r.kindReady.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Set(oneIf(ready))
}

// KindRemoved forgets a kind that is not watched any more.
func (r *Recorder) KindRemoved(gvk schema.GroupVersionKind) {
	if r == nil {
		return
	}
	r.kindReady.DeleteLabelValues(gvk.Group, gvk.Version, gvk.Kind)
	r.unwatched.DeletePartialMatch(prometheus.Labels{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
}

// ReferencesUnwatched says whether objects of a resource that the watch of a kind refers to
// cannot be watched.
func (r *Recorder) ReferencesUnwatched(gvk schema.GroupVersionKind, resource string, unwatched bool) {
	if r == nil {
		return
	}
	r.unwatched.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, resource).Set(oneIf(unwatched))
}

// ContentBroken says whether changed content cannot be used.
func (r *Recorder) ContentBroken(broken bool) {
	if r == nil {
		return
	}
	r.broken.WithLabelValues().Set(oneIf(broken))
}

// Artifacts says how many finished runs are kept on disk, and their size.
func (r *Recorder) Artifacts(runs int, bytes int64) {
	if r == nil {
		return
	}
	r.artifactRuns.WithLabelValues().Set(float64(runs))
	r.artifactBytes.WithLabelValues().Set(float64(bytes))
}

// ProxyRequest counts one request of a run to the API server.
func (r *Recorder) ProxyRequest(verb, kind, outcome string) {
	if r == nil {
		return
	}
	r.proxyRequests.WithLabelValues(verb, kind, outcome).Inc()
}

// ProxyAnonymous says whether the API proxy lets clients without a token in.
func (r *Recorder) ProxyAnonymous(allowed bool) {
	if r == nil {
		return
	}
	r.proxyAnonymous.WithLabelValues().Set(oneIf(allowed))
}

// AnonymousRequest counts one request without a token that was let in.
func (r *Recorder) AnonymousRequest() {
	if r == nil {
		return
	}
	r.anonymous.WithLabelValues().Inc()
}

// UserMetricRefused counts one metric of a role for which there was no room.
func (r *Recorder) UserMetricRefused() {
	if r == nil {
		return
	}
	r.userFull.WithLabelValues().Inc()
}

func oneIf(cond bool) float64 {
	if cond {
		return 1
	}
	return 0
}

func either(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
