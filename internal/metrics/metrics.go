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
	"sync"
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
	all list
	runMetrics
	proxyMetrics

	buildInfo       *prometheus.GaugeVec
	reconcileResult *prometheus.GaugeVec
	reconciles      *prometheus.HistogramVec
	created         *createdObjects

	phases       *prometheus.HistogramVec
	rejected     *prometheus.CounterVec
	statusWrites *prometheus.CounterVec
	decisions    *prometheus.CounterVec
	kindReady    *prometheus.GaugeVec
	unwatched    *prometheus.GaugeVec
	broken       *prometheus.GaugeVec
	shards       shardMetrics
	jobs         jobMetrics
	webhooks     *prometheus.HistogramVec

	artifactRuns  *prometheus.GaugeVec
	artifactBytes *prometheus.GaugeVec
	scraped       scraped
}

var _ prometheus.Collector = (*Recorder)(nil)

// New returns a Recorder that is registered with reg: all of its metrics or,
// with an error, none.
func New(reg prometheus.Registerer) (*Recorder, error) {
	r := unregistered()
	if err := reg.Register(r); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return r, nil
}

//nolint:gochecknoglobals // the one Recorder that nil stands for; it is in no registry
var none = sync.OnceValue(unregistered)

// orNone returns r or, if it is nil, a Recorder that is not exposed.
func (r *Recorder) orNone() *Recorder {
	if r == nil {
		return none()
	}
	return r
}

func unregistered() *Recorder {
	var l list
	r := &Recorder{
		runMetrics: newRunMetrics(&l), proxyMetrics: newProxyMetrics(&l),
		buildInfo: l.gauge("ansible_operator_build_info",
			"Always 1; the labels say which release and commit runs.", "commit", "version"),
		reconcileResult: l.gauge("ansible_operator_reconcile_result",
			"Reconciles that ended, by result. A counter that is exposed as a gauge.", "GVK", "result"),
		reconciles: l.histogram("ansible_operator_reconciles",
			"How long whole reconciles took, in seconds.", reconcileBuckets(), "GVK"),
		created: added(&l, newCreatedObjects()),
		phases: l.histogram("rolewright_phase_duration_seconds",
			"How long each phase of a reconcile took.", phaseBuckets(), "group", "kind", "phase"),
		rejected: l.counter("rolewright_status_rejected_total",
			"Parts of status.ansible that were ignored because another client has changed them.",
			"group", "version", "kind", "part"),
		scraped: newScraped(), shards: newShardMetrics(&l), jobs: newJobMetrics(&l), webhooks: newWebhooks(&l),
		statusWrites: l.counter("rolewright_status_writes_total",
			"Writes of an object's status, by the moment of the run and their result.",
			"group", "kind", "moment", "result"),
		decisions: l.counter("rolewright_decisions_total",
			"Decisions whether a run is due.", "group", "kind", "decision"),
		kindReady: l.gauge("rolewright_kind_ready",
			"1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.", "group", "version", "kind"),
		unwatched: l.gauge("rolewright_references_unwatched", "1 while the operator cannot watch a resource that a watch refers to (references, varsFrom, triggers); else 0.", "group", "version", "kind", "resource"),
		broken: l.gauge("rolewright_content_broken",
			"1 while changed content or a changed watches file cannot be used and the previous version stays in use (--watch-content), else 0."),
		artifactRuns: l.gauge("rolewright_artifact_runs",
			"Finished runs whose artifacts are kept."),
		artifactBytes: l.gauge("rolewright_artifact_bytes",
			"Disk space that the kept artifacts of finished runs take."),
	}
	r.all = append(l, &r.scraped)
	return r
}

// reconcileBuckets returns ansible-operator's buckets, 5 ms to 10 s, and more above
// them: ansible-operator measured the set-up of a run, but a whole reconcile may take
// hours.
func reconcileBuckets() []float64 {
	return slices.Concat(prometheus.DefBuckets, []float64{30, 60, 120, 300, 600, 1800, 3600, 7200, 14400})
}

// phaseBuckets start lower, because all phases except the run itself take about a
// millisecond.
func phaseBuckets() []float64 {
	return slices.Concat([]float64{.0005, .001, .0025}, reconcileBuckets())
}

// list holds the collectors of a Recorder.
type list []prometheus.Collector

func (l *list) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return added(l, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (l *list) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return added(l, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (l *list) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return added(l, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func added[T prometheus.Collector](l *list, c T) T {
	*l = append(*l, c)
	return c
}

// Describe implements [prometheus.Collector].
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range r.all {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	for _, c := range r.all {
		c.Collect(ch)
	}
}

// BuildInfo says which build is running.
func (r *Recorder) BuildInfo(version, commit string) {
	r.orNone().buildInfo.WithLabelValues(commit, version).Set(1)
}

// Reconciled measures one reconcile from its first step to its last.
func (r *Recorder) Reconciled(gvk schema.GroupVersionKind, took time.Duration) {
	r.orNone().reconciles.WithLabelValues(gvk.String()).Observe(took.Seconds())
}

// ReconcileResult counts a reconcile that ran Ansible, or could not.
func (r *Recorder) ReconcileResult(gvk schema.GroupVersionKind, succeeded bool) {
	r.orNone().reconcileResult.WithLabelValues(gvk.String(), either(succeeded, "succeeded", "failed")).Inc()
}

// ObjectSeen notes when an object was created. It may be called repeatedly for the same object.
func (r *Recorder) ObjectSeen(gvk schema.GroupVersionKind, namespace, name string, created time.Time) {
	r.orNone().created.set(createdObject{gvk, namespace, name}, created)
}

// ObjectGone removes what ObjectSeen noted.
func (r *Recorder) ObjectGone(gvk schema.GroupVersionKind, namespace, name string) {
	r.orNone().created.remove(createdObject{gvk, namespace, name})
}

// Phase measures one phase of a reconcile. The names of phases are constants
// of the caller. traceID identifies the trace of the run, which becomes an exemplar; empty for none.
func (r *Recorder) Phase(gvk schema.GroupVersionKind, phase string, took time.Duration, traceID string) {
	r = r.orNone()
	observer := r.phases.WithLabelValues(gvk.Group, gvk.Kind, phase)
	if exemplars, ok := observer.(prometheus.ExemplarObserver); ok && traceID != "" {
		exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	observer.Observe(took.Seconds())
}

// StatusWrite counts one attempt to write an object's status; err is its result.
func (r *Recorder) StatusWrite(gvk schema.GroupVersionKind, moment Moment, err error) {
	r.orNone().statusWrites.WithLabelValues(gvk.Group, gvk.Kind, string(moment), either(err == nil, "succeeded", "failed")).Inc()
}

// StatusRejected counts a part of an object's record that was ignored. The part
// is a word of a fixed list.
func (r *Recorder) StatusRejected(gvk schema.GroupVersionKind, part string) {
	r.orNone().rejected.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, part).Inc()
}

// Decision counts one decision whether a run is due.
func (r *Recorder) Decision(gvk schema.GroupVersionKind, run bool) {
	r.orNone().decisions.WithLabelValues(gvk.Group, gvk.Kind, either(run, "run", "skip")).Inc()
}

// KindReady says whether a watched kind is served at the moment.
func (r *Recorder) KindReady(gvk schema.GroupVersionKind, ready bool) {
	r.orNone().kindReady.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Set(oneIf(ready))
}

// KindRemoved removes the series of a kind that is no longer watched.
func (r *Recorder) KindRemoved(gvk schema.GroupVersionKind) {
	r = r.orNone()
	r.kindReady.DeleteLabelValues(gvk.Group, gvk.Version, gvk.Kind)
	r.unwatched.DeletePartialMatch(prometheus.Labels{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
}

// ReferencesUnwatched says whether the objects of a resource cannot be watched, although the
// watch of a kind refers to them.
func (r *Recorder) ReferencesUnwatched(gvk schema.GroupVersionKind, resource string, unwatched bool) {
	r.orNone().unwatched.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind, resource).Set(oneIf(unwatched))
}

// ContentBroken says whether changed content cannot be used.
func (r *Recorder) ContentBroken(broken bool) {
	r.orNone().broken.WithLabelValues().Set(oneIf(broken))
}

// Artifacts says how many finished runs are kept on disk, and their size.
func (r *Recorder) Artifacts(runs int, bytes int64) {
	r = r.orNone()
	r.artifactRuns.WithLabelValues().Set(float64(runs))
	r.artifactBytes.WithLabelValues().Set(float64(bytes))
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
