package metrics

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/test/must"
)

var widget = schema.GroupVersionKind{Group: "apps.example.com", Version: "v1", Kind: "Widget"}

func newRecorder(t *testing.T) (*Recorder, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	r := must.Get(New(reg))(t)
	return r, reg
}

// recordAll calls every method once, with values that can be told apart.
func recordAll(r *Recorder) {
	r.BuildInfo("v1.2.3", "abc")
	r.ContentBroken(true)
	r.Shards(8, 3, 1200)
	r.ShardMoved(true)
	r.JobConnections(2, true)
	r.Webhook(widget.GroupKind(), "validate", WebhookRefused, 20*time.Millisecond)
	r.Reconciled(widget, 45*time.Second)
	r.ReconcileResult(widget, true)
	r.ReconcileResult(widget, false)
	r.ReconcileResult(widget, false)
	r.ObjectSeen(widget, "ns", "w", time.Unix(1700000000, 5))
	r.Phase(widget, "run", 2*time.Millisecond, "")
	r.RunStarted(widget)
	r.RunStarted(widget)
	r.RunEnded(widget, "generation", "TaskFailed")
	r.RunNotMade(widget, "retry", "ReferenceNotFound")
	r.RunMade(widget, "warm")
	r.ModulesRun(widget, map[string]int64{"pipelining": 3})
	r.TasksRun(widget, map[string]int64{"plugin": 2})
	r.WarmReady(true)
	r.LineDiffers([]string{"of another server"})
	r.LineDiffers([]string{"ansible:a"})
	r.RunLimit(20)
	r.RunEvents(EventAccepted, 40)
	r.RunEvents(EventForeign, 1)
	r.RunEvents(EventGap, 0)
	r.StatusWrite(widget, MomentStart, nil)
	r.StatusWrite(widget, MomentEnd, errors.New("conflict"))
	r.Decision(widget, true)
	r.Decision(widget, false)
	r.KindReady(widget, true)
	r.KindReady(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, false)
	r.ReferencesUnwatched(widget, "secrets", true)
	r.ReferencesUnwatched(schema.GroupVersionKind{Version: "v1", Kind: "Gone"}, "secrets", true)
	r.KindRemoved(schema.GroupVersionKind{Version: "v1", Kind: "Gone"})
	r.Artifacts(3, 4096)
	r.ProxyRequest("create", "ConfigMap", "ok")
	r.ProxyRequest("create", "ConfigMap", "ok")
	r.ProxyRequest("", "", "refused")
	r.ProxyAnonymous(true)
	r.AnonymousRequest()
	r.UserMetricRefused()
	r.RunWaited(widget, "generation", 3*time.Second)
	r.RunMemory(widget, "warm", 50<<20)
	r.RunMemory(widget, "warm", 0)
	r.RunCPU(widget, "warm", 1500*time.Millisecond)
	r.RunLost(widget)
	r.Pruned(widget, 2)
	r.Loop(widget)
	r.StatusRejected(widget, "activeRun")
	r.TaskFailed(widget, "/roles/w/tasks/main.yml:3")
	r.TaskFailed(widget, "")
	r.WatchAges(widget, func() Ages {
		return Ages{Queue: time.Second, Deletion: 2 * time.Second, Pod: 3 * time.Second, Waiting: map[string]int{"period": 4}}
	})
	r.WaitForMemory(true)
	r.WatchDisk(func() (Disk, error) { return Disk{Size: 100, Free: 30}, nil })
}

func TestRecorder_ExposesTheIncumbentsNamesAndLabels(t *testing.T) {
	r, reg := newRecorder(t)
	recordAll(r)
	const want = `
# HELP ansible_operator_build_info Always 1; the labels say which release and commit runs.
# TYPE ansible_operator_build_info gauge
ansible_operator_build_info{commit="abc",version="v1.2.3"} 1
# HELP ansible_operator_reconcile_result Reconciles that ended, by result. A counter that is exposed as a gauge.
# TYPE ansible_operator_reconcile_result gauge
ansible_operator_reconcile_result{GVK="apps.example.com/v1, Kind=Widget",result="failed"} 2
ansible_operator_reconcile_result{GVK="apps.example.com/v1, Kind=Widget",result="succeeded"} 1
# HELP ansible_operator_reconciles How long whole reconciles took, in seconds.
# TYPE ansible_operator_reconciles histogram
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.005"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.01"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.025"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.05"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.1"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.25"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="0.5"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="1"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="2.5"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="5"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="10"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="30"} 0
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="60"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="120"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="300"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="600"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="1800"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="3600"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="7200"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="14400"} 1
ansible_operator_reconciles_bucket{GVK="apps.example.com/v1, Kind=Widget",le="+Inf"} 1
ansible_operator_reconciles_sum{GVK="apps.example.com/v1, Kind=Widget"} 45
ansible_operator_reconciles_count{GVK="apps.example.com/v1, Kind=Widget"} 1
# HELP resource_created_at_seconds When a watched object was created, in Unix time.
# TYPE resource_created_at_seconds gauge
resource_created_at_seconds{group="apps.example.com",kind="Widget",name="w",namespace="ns",version="v1"} 1.7e+09
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"ansible_operator_build_info", "ansible_operator_reconcile_result",
		"ansible_operator_reconciles", "resource_created_at_seconds"); err != nil {
		t.Error(err)
	}
}

func TestRecorder_ExposesRolewrightsOwn(t *testing.T) {
	r, reg := newRecorder(t)
	recordAll(r)
	const want = `
# HELP rolewright_artifact_bytes Disk space that the kept artifacts of finished runs take.
# TYPE rolewright_artifact_bytes gauge
rolewright_artifact_bytes 4096
# HELP rolewright_artifact_runs Finished runs whose artifacts are kept.
# TYPE rolewright_artifact_runs gauge
rolewright_artifact_runs 3
# HELP rolewright_decisions_total Decisions whether a run is due.
# TYPE rolewright_decisions_total counter
rolewright_decisions_total{decision="run",group="apps.example.com",kind="Widget"} 1
rolewright_decisions_total{decision="skip",group="apps.example.com",kind="Widget"} 1
# HELP rolewright_kind_ready 1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.
# TYPE rolewright_kind_ready gauge
rolewright_kind_ready{group="",kind="Secret",version="v1"} 0
rolewright_kind_ready{group="apps.example.com",kind="Widget",version="v1"} 1
# HELP rolewright_proxy_anonymous 1 if the API proxy lets clients without a token act as the operator (--proxy-anonymous), else 0.
# TYPE rolewright_proxy_anonymous gauge
rolewright_proxy_anonymous 1
# HELP rolewright_proxy_anonymous_requests_total Requests without a token that the API proxy let in.
# TYPE rolewright_proxy_anonymous_requests_total counter
rolewright_proxy_anonymous_requests_total 1
# HELP rolewright_proxy_requests_total Requests of runs to the API server, by verb, kind (empty: none, or not known) and outcome.
# TYPE rolewright_proxy_requests_total counter
rolewright_proxy_requests_total{kind="",outcome="refused",verb=""} 1
rolewright_proxy_requests_total{kind="ConfigMap",outcome="ok",verb="create"} 2
# HELP rolewright_run_events_total Job events of all runs, by what became of them.
# TYPE rolewright_run_events_total counter
rolewright_run_events_total{result="accepted"} 40
rolewright_run_events_total{result="foreign"} 1
# HELP rolewright_runs_in_flight Runs in progress.
# TYPE rolewright_runs_in_flight gauge
rolewright_runs_in_flight{group="apps.example.com",kind="Widget",version="v1"} 1
# HELP rolewright_runs_by_executor_total Runs that took place, by executor: warm (a forked playbook), runner (a new Python), job (a Pod), command (a command or chart) or handler (Go code).
# TYPE rolewright_runs_by_executor_total counter
rolewright_runs_by_executor_total{executor="warm",group="apps.example.com",kind="Widget",version="v1"} 1
# HELP rolewright_user_metrics_refused_total Metrics of roles that were refused because a limit was reached.
# TYPE rolewright_user_metrics_refused_total counter
rolewright_user_metrics_refused_total 1
# HELP rolewright_modules_total Modules that forked runs executed, by how: forked, or why a new Python was started (pipelining, become, async, connection, …).
# TYPE rolewright_modules_total counter
rolewright_modules_total{group="apps.example.com",kind="Widget",version="v1",way="pipelining"} 3
# HELP rolewright_runs_limit Temporary limit of runs at a time while forks are slow; 0 if there is no such limit.
# TYPE rolewright_runs_limit gauge
rolewright_runs_limit 20
# HELP rolewright_warm_ready 1 while runs can be forked: there is a fork server, or it has exited because it was idle, and the next run starts one. 0 while runs are not forked.
# TYPE rolewright_warm_ready gauge
rolewright_warm_ready 1
# HELP rolewright_warm_line_differs 1 for each part of ansible-core that forked runs rely on and that differs from the tested versions or fails the self-check. Runs are then not forked, or, if rolewright_warm_ready is 1, each of their tasks has a worker process.
# TYPE rolewright_warm_line_differs gauge
rolewright_warm_line_differs{name="ansible:a"} 1
# HELP rolewright_references_unwatched 1 while the operator cannot watch a resource that a watch refers to (references, varsFrom, triggers); else 0.
# TYPE rolewright_references_unwatched gauge
rolewright_references_unwatched{group="apps.example.com",kind="Widget",resource="secrets",version="v1"} 1
# HELP rolewright_runs_total Runs that ended or could not begin, by what started them and how they ended.
# TYPE rolewright_runs_total counter
rolewright_runs_total{cause="generation",group="apps.example.com",kind="Widget",reason="TaskFailed",version="v1"} 1
rolewright_runs_total{cause="retry",group="apps.example.com",kind="Widget",reason="ReferenceNotFound",version="v1"} 1
# HELP rolewright_tasks_total Tasks of forked runs, by why they needed a worker process of their own (action, option, plugin, template, …); none: they needed no worker.
# TYPE rolewright_tasks_total counter
rolewright_tasks_total{group="apps.example.com",kind="Widget",version="v1",way="plugin"} 2
# HELP rolewright_status_writes_total Writes of an object's status, by the moment of the run and their result.
# TYPE rolewright_status_writes_total counter
rolewright_status_writes_total{group="apps.example.com",kind="Widget",moment="end",result="failed"} 1
rolewright_status_writes_total{group="apps.example.com",kind="Widget",moment="start",result="succeeded"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"rolewright_decisions_total", "rolewright_kind_ready", "rolewright_references_unwatched", "rolewright_artifact_bytes", "rolewright_artifact_runs",
		"rolewright_proxy_anonymous", "rolewright_proxy_anonymous_requests_total", "rolewright_proxy_requests_total", "rolewright_run_events_total",
		"rolewright_runs_in_flight", "rolewright_runs_total", "rolewright_runs_by_executor_total", "rolewright_modules_total", "rolewright_tasks_total", "rolewright_runs_limit", "rolewright_warm_ready", "rolewright_warm_line_differs", "rolewright_user_metrics_refused_total", "rolewright_status_writes_total"); err != nil {
		t.Error(err)
	}
	phases, err := testutil.GatherAndCount(reg, "rolewright_phase_duration_seconds")
	if err != nil || phases != 1 {
		t.Errorf("phase series = %d (%v), want 1", phases, err)
	}
}

func TestRecorder_NamesAreCleanForTheLinter(t *testing.T) {
	r, reg := newRecorder(t)
	recordAll(r)
	problems := must.Get(testutil.GatherAndLint(reg))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestObjectGone_RemovesOnlyThatObject(t *testing.T) {
	r, reg := newRecorder(t)
	r.ObjectSeen(widget, "ns", "stays", time.Unix(1, 0))
	r.ObjectSeen(widget, "ns", "goes", time.Unix(2, 0))
	r.ObjectGone(widget, "ns", "goes")
	r.ObjectGone(widget, "ns", "never-seen")
	const want = `
# HELP resource_created_at_seconds When a watched object was created, in Unix time.
# TYPE resource_created_at_seconds gauge
resource_created_at_seconds{group="apps.example.com",kind="Widget",name="stays",namespace="ns",version="v1"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "resource_created_at_seconds"); err != nil {
		t.Error(err)
	}
}

func TestNew_RegistersAllOrNothing(t *testing.T) {
	reg := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rolewright_kind_ready", Help: "of another program"})
	reg.MustRegister(taken)
	if _, err := New(reg); err == nil {
		t.Fatal("New on a registry that has one of the names: no error")
	}
	// The failed New must not have registered anything, so the name is still free.
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "ansible_operator_build_info", Help: "of another program"})
	if err := reg.Register(other); err != nil {
		t.Errorf("the failed New left something behind: %v", err)
	}
}

func TestNew_CanBeTakenOutAgain(t *testing.T) {
	r, reg := newRecorder(t)
	if !reg.Unregister(r) {
		t.Fatal("Unregister does not know the recorder")
	}
	if _, err := New(reg); err != nil {
		t.Errorf("second New after Unregister: %v", err)
	}
}

func TestNilRecorder_RecordsNothing(t *testing.T) {
	var r *Recorder
	recordAll(r) // must not panic
	r.ObjectGone(widget, "ns", "w")
}

func TestRecorder_IsSafeForConcurrentUse(t *testing.T) {
	r, reg := newRecorder(t)
	const workers, rounds = 8, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("w-%d-%d", w, i)
				r.ObjectSeen(widget, "ns", name, time.Unix(1, 0))
				r.RunStarted(widget)
				r.Phase(widget, "run", time.Second, "")
				r.RunEvents(EventAccepted, 3)
				r.RunEnded(widget, "period", "Succeeded")
				r.ObjectGone(widget, "ns", name)
			}
		})
	}
	for range rounds / 10 { // a scrape meanwhile sees a consistent registry
		if _, err := reg.Gather(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()

	if got := testutil.ToFloat64(r.inFlight); got != 0 {
		t.Errorf("runs in flight = %v, want 0", got)
	}
	if got := testutil.ToFloat64(r.runs); got != workers*rounds {
		t.Errorf("runs = %v, want %d", got, workers*rounds)
	}
	if got := testutil.ToFloat64(r.events); got != 3*workers*rounds {
		t.Errorf("events = %v, want %d", got, 3*workers*rounds)
	}
	if got := testutil.CollectAndCount(r.created); got != 0 {
		t.Errorf("objects = %d, want 0", got)
	}
}
