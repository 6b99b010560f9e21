package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// A run that is still in progress is adopted before new runs begin, and takes a place like them.
func TestAdoption_ComesBeforeNewRuns(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	w := watchOf(gvk)
	w.Executor, w.MaxConcurrentReconciles = watches.ExecutorJob, 1
	create(t, c, object(gvk, ns, "a-new-one", map[string]any{}))
	obj := create(t, c, object(gvk, ns, "old", map[string]any{}))
	lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	ticket := must.Get(json.Marshal(runstore.Ticket{Run: lost.ID, UID: string(obj.GetUID()), Generation: 1, Fingerprint: "earlier"}))(t)

	var found atomic.Bool
	adopted, release, begun := make(chan runner.Request), make(chan struct{}), make(chan bool, 4)
	exec := &fakeExecutor{
		held:     func(id string) (string, []byte, bool) { return "its token", ticket, id == lost.ID },
		adopting: func() bool { return !found.Load() },
	}
	exec.do = func(_ context.Context, req runner.Request) (runner.Result, error) {
		if req.JobRun.Adopted {
			found.Store(true)
			adopted <- req
			<-release
			return succeeded(), nil
		}
		begun <- closed(release)
		return succeeded(), nil
	}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
	if req := <-adopted; req.ID != lost.ID || req.JobRun.Token != "its token" {
		t.Errorf("the first run is %s with token %q, want that of the earlier process", req.ID, req.JobRun.Token)
	}
	eventually(t, "the new one waits for a place", func() bool {
		return slices.ContainsFunc(o.set.Waiting(), func(w api.Waiting) bool { return w.Name == "a-new-one" && w.Held == string(runqueue.HeldByKind) })
	})
	close(release)
	if after := <-begun; !after {
		t.Error("a new run begins before the one that was found has ended, and there is one place")
	}
	awaitCondition(t, c, obj, status.Ready, "True")
	must.Be(t, "warnings, of which one says that the output is withheld", 1, strings.Count(o.log(), "Object needs attention"))
}

// objectOfJobs creates an object of a kind whose runs are Jobs.
func objectOfJobs(t *testing.T) (*rest.Config, client.Client, watches.Watch, *unstructured.Unstructured) {
	t.Helper()
	cfg, c, gvk, ns := installed(t)
	w := watchOf(gvk)
	w.Executor = watches.ExecutorJob
	return cfg, c, w, create(t, c, object(gvk, ns, "old", map[string]any{}))
}

func TestMetrics_ShowThatARunWaitsForItsPod(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	waits, begun, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		req.JobRun.OnPhase("ImagePullBackOff")
		<-waits
		req.JobRun.OnPhase("")
		close(begun)
		<-end
		return succeeded(), nil
	}}
	reg := prometheus.NewRegistry()
	start(t, cfg, exec, Options{Watches: []watches.Watch{w}, Metrics: must.Get(metrics.New(reg))(t)})
	value := func() float64 { return gauge(t, reg, "rolewright_pod_wait_oldest_seconds") }
	eventually(t, "the wait to be seen", func() bool { return value() > 0 })
	close(waits)
	<-begun
	must.Be(t, "seconds of a run that has begun", 0.0, value())
	close(end)
	awaitCondition(t, c, obj, status.Ready, "True")
}

// A run in progress that cannot be followed yet, as on a full disk, is neither ended nor recorded. It is followed later.
func TestAdoption_IsTriedAgain(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	ticket := must.Get(json.Marshal(runstore.Ticket{Run: lost.ID, UID: string(obj.GetUID()), Generation: 1, Fingerprint: "earlier"}))(t)
	var tries atomic.Int64
	exec := &fakeExecutor{unclaimed: lost.ID, held: func(id string) (string, []byte, bool) { return "its token", ticket, id == lost.ID }}
	exec.do = func(_ context.Context, req runner.Request) (runner.Result, error) {
		if !req.JobRun.Adopted || req.ID != lost.ID {
			t.Errorf("run %s begins beside %s", req.ID, lost.ID)
		}
		exec.mu.Lock()
		defer exec.mu.Unlock()
		if tries.Add(1) < 3 {
			if len(exec.forgotten) > 0 {
				t.Error("the run that goes on is removed")
			}
			return runner.Result{ID: req.ID}, fmt.Errorf("%w: %w", runner.ErrNotFollowed, runner.ErrNoSpace)
		}
		return succeeded(), nil
	}
	reg := prometheus.NewRegistry()
	start(t, cfg, exec, Options{Watches: []watches.Watch{w}, Metrics: must.Get(metrics.New(reg))(t)})
	awaitCondition(t, c, obj, status.Ready, "True")
	if tries.Load() != 3 {
		t.Errorf("the run was followed at try %d, want 3", tries.Load())
	}
	must.Do(t, testutil.GatherAndCompare(reg, strings.NewReader("# HELP rolewright_runs_in_flight Runs in progress.\n# TYPE rolewright_runs_in_flight gauge\n"+
		`rolewright_runs_in_flight{group="`+w.GVK.Group+`",kind="Widget",version="`+w.GVK.Version+`"} 0`+"\n"), "rolewright_runs_in_flight"))
}

// Only the process that began the run knew what the run has parked its object for; that may also be a secret that the run
// has read. So the next run parks the object, and until then the object is not ready.
func TestAdoption_OfARunThatParksItsObject(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	ask := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + obj.GetNamespace() + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 3600, "park": true}`
	lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	ticket := must.Get(json.Marshal(runstore.Ticket{Run: lost.ID, UID: string(obj.GetUID()), Generation: 1, Fingerprint: strings.Repeat("0", 32)}))(t)
	exec := &fakeExecutor{unclaimed: lost.ID, held: func(id string) (string, []byte, bool) { return "its token", ticket, id == lost.ID }}
	last := func() status.Run {
		st, _ := get(t, c, obj).Object["status"].(map[string]any)
		run, _ := lastRun(st)
		return run
	}
	address := make(chan string, 2) // of the proxy; one for each run
	exec.do = func(_ context.Context, req runner.Request) (runner.Result, error) {
		if req.ID != lost.ID {
			if run := last(); run.ID != lost.ID || !run.NotYet() || run.RequeueAfter != notYetPause {
				t.Errorf("the record is %+v", run)
			}
		}
		config := &rest.Config{Host: <-address, BearerToken: "its token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return runner.Result{}, err
		}
		at := &caller{t, config, client}
		if req.ID != lost.ID {
			at = callerOf(t, req)
		}
		at.call("wait", ask, 200, `"parked":true`) // there is no event of the run for this
		return succeeded(), nil
	}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
	address <- o.set.opts.Proxy.URL()
	address <- o.set.opts.Proxy.URL()
	eventually(t, "the next run parks the object", func() bool { return last().Wait != nil })
	must.Be(t, "runs", 2, exec.count())
}

// What an adopted run touched before the adoption is not known, so the run prunes nothing. What it creates is still
// recorded for later runs.
func TestAdoption_NotesWhatTheRunCreates(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	w.Prune = true
	lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	ticket := must.Get(json.Marshal(runstore.Ticket{Run: lost.ID, UID: string(obj.GetUID()), Generation: 1, Fingerprint: "earlier"}))(t)
	exec := &fakeExecutor{held: func(id string) (string, []byte, bool) { return "its token", ticket, id == lost.ID }}
	child, address := configMap(obj.GetNamespace(), "child"), make(chan string, 1)
	exec.do = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if !req.JobRun.Adopted {
			return succeeded(), nil
		}
		run, err := client.New(&rest.Config{Host: <-address, BearerToken: "its token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, client.Options{})
		if err != nil {
			return runner.Result{}, err
		}
		return succeeded(), run.Create(ctx, child.DeepCopy())
	}
	o := start(t, cfg, exec, owning(w))
	address <- o.set.opts.Proxy.URL()
	awaitCondition(t, c, obj, status.Ready, "True")
	must.Be(t, "note", string(obj.GetUID())+"/configmaps/"+obj.GetNamespace()+"/child", get(t, c, child).GetAnnotations()[proxy.AnnotationCreated])
}

// An operator died after it had recorded the end of a run and before it removed the Job. The next operator removes the
// Job and does not run the object.
func TestAdoption_RemovesTheJobOfARecordedRun(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
	awaitCondition(t, c, obj, status.Ready, "True")
	o.stop()
	exec.mu.Lock()
	exec.unclaimed, exec.forgotten = exec.runs[0].ID, nil
	exec.mu.Unlock()
	start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
	eventually(t, "the Job is removed", func() bool { return len(exec.UnclaimedJobRuns(t.Context(), "")) == 0 })
	exec.mu.Lock()
	defer exec.mu.Unlock()
	if len(exec.runs) != 1 {
		t.Errorf("%d runs, want one", len(exec.runs))
	}
}

// A run that cannot be adopted is ended before the next one begins, even if the watch no longer makes Jobs. Until then
// its object has no place, and the status says what is left.
func TestLost_RunAsAJobThatCannotBeAdopted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		executor watches.Executor
		prune    bool // it has no finalizer run
	}{{watches.ExecutorJob, false}, {"", false}, {watches.ExecutorJob, true}} {
		cfg, c, w, obj := objectOfJobs(t)
		w.Executor, w.MaxConcurrentReconciles = tt.executor, 1
		if w.PruneOnDelete = tt.prune; !tt.prune {
			withFinalizer(&w)
		}
		obj.SetFinalizers((&reconciler{watch: w}).finalizers())
		must.Do(t, c.Update(t.Context(), obj))
		lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
		obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
		must.Do(t, c.Status().Update(t.Context(), obj))
		must.Do(t, c.Delete(t.Context(), obj)) // while no operator leads
		var ended atomic.Bool
		exec := &fakeExecutor{left: func() string {
			if ended.Load() {
				return ""
			}
			return "its Pod, on a dead node"
		}}
		exec.do = func(_ context.Context, req runner.Request) (runner.Result, error) {
			if strings.Contains(req.Dir, string(obj.GetUID())) && !ended.Load() {
				t.Error("the next run begins before the one before has ended")
			}
			return succeeded(), nil
		}
		start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
		eventually(t, "the status says what is left", func() bool {
			says, _, _ := unstructured.NestedString(get(t, c, obj).Object, "status", "ansible", "activeRun", "waiting")
			return says == "its Pod, on a dead node"
		})
		other := create(t, c, object(w.GVK, obj.GetNamespace(), "other", map[string]any{}))
		awaitCondition(t, c, other, status.Ready, "True")
		ended.Store(true)
		eventually(t, "the object goes", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
		})
	}
}

// The same holds if no status names the run.
func TestLost_RunAsAJobThatNoStatusNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		executor watches.Executor
		status   bool
	}{{watches.ExecutorJob, false}, {"", false}, {watches.ExecutorJob, true}, {"", true}} {
		cfg, _, w, _ := objectOfJobs(t)
		w.Executor, w.ManageStatus = tt.executor, tt.status
		exec, ended := &fakeExecutor{unclaimed: newUID()}, false
		exec.left = func() string {
			exec.mu.Lock()
			defer exec.mu.Unlock()
			if len(exec.forgotten) == 0 {
				exec.forgotten = append(exec.forgotten, exec.unclaimed)
				return "its Pod, which has a minute to end"
			}
			ended = true
			return ""
		}
		exec.do = func(context.Context, runner.Request) (runner.Result, error) {
			exec.mu.Lock()
			defer exec.mu.Unlock()
			if !ended {
				t.Error("the next run begins before the one before has ended")
			}
			return succeeded(), nil
		}
		start(t, cfg, exec, Options{Watches: []watches.Watch{w}})
		eventually(t, "the object is run", func() bool { return exec.count() == 1 })
	}
}

// The annotation orphan lets an object go although the node of its run is dead. The run is to end all the same.
func TestLost_RunAsAJobOfAnOrphan(t *testing.T) {
	t.Parallel()
	cfg, c, w, obj := objectOfJobs(t)
	withFinalizer(&w)
	obj.SetFinalizers([]string{w.Finalizer.Name})
	obj.SetAnnotations(map[string]string{ownPrefix + "orphan": "true"})
	must.Do(t, c.Update(t.Context(), obj))
	must.Do(t, c.Delete(t.Context(), obj))
	var ended atomic.Bool
	start(t, cfg, &fakeExecutor{unclaimed: newUID(), left: func() string {
		ended.Store(true)
		return "its Pod, on a dead node"
	}}, Options{Watches: []watches.Watch{w}})
	eventually(t, "the object goes", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
	})
	must.Be(t, "the run is to end", true, ended.Load())
}

// The time of a run counts from its beginning in its Pod, whichever process saw that. The idle time counts even before
// its first sign of life. The Pod may wait for as long as the run may take.
func TestLifetime_OfARunInAPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reconciler{set: &Set{runs: t.Context()}, opts: &Options{}}
		ended := func(do func(*lifetime)) time.Duration {
			from := time.Now()
			ctx, life := r.lifetime(t.Context(), settings{timeout: time.Hour, idleTimeout: time.Minute})
			defer life.end()
			do(life)
			<-ctx.Done()
			return time.Since(from)
		}
		works := func(waits, ago time.Duration) func(*lifetime) { // without exceeding the idle timeout
			return func(l *lifetime) {
				l.waits()
				time.Sleep(waits)
				l.begun(ago)
				l.waits()
			}
		}
		for name, tt := range map[string]struct {
			do   func(*lifetime)
			want time.Duration
		}{
			"its Pod never begins":    {(*lifetime).waits, time.Hour},
			"it begins and stands":    {func(l *lifetime) { l.waits(); l.begun(0) }, time.Minute},
			"its Pod waits long":      {works(50*time.Minute, 0), 50*time.Minute + time.Hour},
			"it was adopted, begun":   {func(l *lifetime) { l.spent(70 * time.Minute); works(0, 20*time.Minute)(l) }, 40 * time.Minute},
			"it was adopted, waiting": {func(l *lifetime) { l.spent(20 * time.Minute); works(30*time.Minute, 0)(l) }, 30*time.Minute + time.Hour},
			"it has half of its time": {func(l *lifetime) { l.waits(); l.spent(30 * time.Minute) }, 30 * time.Minute},
			"it has had all its time": {func(l *lifetime) { l.waits(); l.spent(2 * time.Hour) }, handIn}, // time to report that it has ended
			"the clock has gone back": {func(l *lifetime) { l.waits(); l.spent(-time.Hour) }, time.Hour},
			"a run on this machine":   {func(*lifetime) {}, time.Minute},
		} {
			if got := ended(tt.do); got != tt.want {
				t.Errorf("%s: it ends after %s, want %s", name, got, tt.want)
			}
		}
	})
}
