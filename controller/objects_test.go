package controller

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

func TestObjects_AgesAreThoseOfTheOldest(t *testing.T) {
	now := time.Now()
	one, two := types.NamespacedName{Name: "one"}, types.NamespacedName{Name: "two"}
	a := newObjects()
	a.mark(one, now.Add(-time.Minute))
	a.mark(one, now) // already due
	a.mark(two, now.Add(time.Hour))
	a.setDeleted(two, now.Add(-time.Hour))
	a.with(one, func(e *entry) { e.run = &activeRun{since: now.Add(-3 * time.Hour)} })
	a.setPodless(one, true, now.Add(-2*time.Hour))
	a.setPodless(one, true, now) // now it waits for something else
	want := metrics.Ages{Queue: time.Minute, Deletion: time.Hour, Run: 3 * time.Hour, Pod: 2 * time.Hour}
	must.Be(t, "ages", want, a.oldest(now))
	a.setPodless(one, false, now)
	must.Be(t, "age of a wait that is over", time.Duration(0), a.oldest(now).Pod)
	a.with(one, func(e *entry) { e.run = nil })
	a.setPodless(one, true, now) // reported by a run that has ended
	if since := a.take(one, now); !since.Equal(now.Add(-time.Minute)) {
		t.Errorf("the first is due since %s", since)
	}
	if since := a.take(two, now); !since.Equal(now) {
		t.Errorf("the second is due since %s, and is looked at before it is due", since)
	}
	a.setDeleted(two, time.Time{})
	must.Be(t, "ages of nothing", metrics.Ages{}, a.oldest(now))
	if len(a.table) > 0 {
		t.Errorf("%d empty entries are kept", len(a.table))
	}
}

// While an object is being run, a change of it waits until the run ends, and its deletion waits as long as the finalizer
// run fails.
func TestMetrics_ShowWhatWaits(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	reg := prometheus.NewPedanticRegistry()
	recorder := must.Get(metrics.New(reg))(t)
	goOn := make(chan struct{})
	var broken atomic.Bool
	broken.Store(true)
	watch := watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
	})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if req.Content.Role == watch.Finalizer.Content.Role && broken.Load() {
			return failed("it cannot be taken down"), nil
		}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watch}, Metrics: recorder})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	eventually(t, "the first run", func() bool { return o.exec.count() == 1 })
	update(t, c, obj, func(o map[string]any) { o["spec"] = map[string]any{"size": int64(2)} })
	value := func(name string) float64 { return gauge(t, reg, name) }
	eventually(t, "the change to be seen to wait", func() bool { return value("rolewright_queue_oldest_seconds") > 0 })
	if value("rolewright_run_oldest_seconds") <= 0 {
		t.Error("the run in progress has no age")
	}
	close(goOn)
	eventually(t, "the second run, and nothing to wait", func() bool {
		return o.exec.count() == 2 && value("rolewright_queue_oldest_seconds") == 0 && value("rolewright_run_oldest_seconds") == 0
	})
	must.Do(t, c.Delete(t.Context(), obj))
	eventually(t, "the deletion to be seen to wait", func() bool {
		return value("rolewright_deletion_oldest_seconds") > 0 && o.exec.count() > 3 // a finalizer run has failed
	})
	broken.Store(false)
	eventually(t, "nothing to wait", func() bool { return value("rolewright_deletion_oldest_seconds") == 0 })
	failures, err := testutil.GatherAndCount(reg, "rolewright_task_failures_total")
	if err != nil || failures != 1 {
		t.Errorf("%d series of failed tasks (%v), want that of the one task", failures, err)
	}
	waits, err := testutil.GatherAndCount(reg, "rolewright_run_wait_seconds")
	if err != nil || waits != 3 {
		t.Errorf("%d series of waits (%v), want those of created, changed and deleted", waits, err)
	}
}

// An object whose finalizer is refused counts as due since the first attempt, however often it is tried.
func TestMetrics_ShowSinceWhenReconcilesFail(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	reg := prometheus.NewPedanticRegistry()
	var open atomic.Bool
	faulty := refusing(cfg, http.StatusForbidden, func(req *http.Request) bool {
		return !open.Load() && req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/one")
	})
	start(t, faulty, &fakeExecutor{}, Options{
		Watches: []watches.Watch{watchOf(gvk, withFinalizer)}, Metrics: must.Get(metrics.New(reg))(t), RetryMin: 50 * time.Millisecond, RetryMax: 300 * time.Millisecond,
	})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	value := func() float64 { return gauge(t, reg, "rolewright_queue_oldest_seconds") }
	eventually(t, "the object to be due for longer than between two tries", func() bool { return value() > 2 })
	open.Store(true)
	awaitCondition(t, c, obj, status.Ready, "True")
	eventually(t, "nothing to wait", func() bool { return value() == 0 })
}

// An object whose last run has failed is counted until a run succeeds or the object is gone. The next process counts it
// too.
func TestMetrics_CountFailedObjects(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var broken atomic.Bool
	broken.Store(true)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		if broken.Load() {
			return failed("the disk is full"), nil
		}
		return succeeded(), nil
	}}
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.Retry.MaxAttempts = 1 })}}
	one := create(t, c, object(gvk, ns, "one", map[string]any{}))
	two := create(t, c, object(gvk, ns, "two", map[string]any{}))
	counted := func() (is *operator, reg *prometheus.Registry) {
		reg = prometheus.NewPedanticRegistry()
		opts.Metrics = must.Get(metrics.New(reg))(t)
		is = start(t, cfg, exec, opts)
		eventually(t, "both objects to be counted", func() bool { return gauge(t, reg, "rolewright_objects_failed") == 2 })
		must.Be(t, "runs", 2, exec.count())
		return is, reg
	}
	first, _ := counted()
	awaitCondition(t, c, one, status.Stalled, "True")
	awaitCondition(t, c, two, status.Stalled, "True")
	first.stop()
	_, reg := counted()
	broken.Store(false)
	annotate(t, c, one, "reconcile-at", "now")
	eventually(t, "the other one to be counted", func() bool { return gauge(t, reg, "rolewright_objects_failed") == 1 })
	must.Do(t, c.Delete(t.Context(), two))
	eventually(t, "none to be counted", func() bool { return gauge(t, reg, "rolewright_objects_failed") == 0 })
}

// gauge returns the value of the first series of a metric; 0 if there is none.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	for _, f := range must.Get(reg.Gather())(t) {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}
