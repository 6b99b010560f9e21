package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// Only one run at a time is allowed for two kinds. A new object and a deletion do not wait behind periodic runs that are
// due, and objects that were deleted meanwhile take no place.
func TestPlaces_TheMostUrgentOfAllKindsIsNext(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c, ns := clientOf(t, cfg), testenv.Namespace(t, cfg)
	some, other := testenv.CRD(t, cfg), testenv.CRD(t, cfg)
	period := time.Hour
	next := make(chan struct{})
	var mu sync.Mutex
	var order []string
	hold := false
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		name := nameIn(req)
		if filepath.Base(req.Content.Role) == "finalizer" {
			name = "end of " + name
		}
		mu.Lock()
		order = append(order, name)
		held := hold
		mu.Unlock()
		if held {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
		return succeeded(), nil
	}}
	reg := prometheus.NewRegistry()
	o := start(t, cfg, exec, Options{
		MaxConcurrentRuns: 1, Metrics: must.Get(metrics.New(reg))(t),
		Watches: []watches.Watch{
			watchOf(some, func(w *watches.Watch) { w.ReconcilePeriod, w.MaxConcurrentReconciles = &period, 5 }),
			watchOf(other, func(w *watches.Watch) {
				w.MaxConcurrentReconciles = 5
				w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
			}),
		},
	})
	gone := create(t, c, object(other, ns, "gone", nil))
	for i := range 5 {
		create(t, c, object(some, ns, fmt.Sprint("due-", i), nil))
	}
	eventually(t, "all have run", func() bool { return exec.count() == 6 })
	mu.Lock()
	hold, order = true, nil
	mu.Unlock()
	waiting := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " runs wait"), func() bool {
			var all int
			for _, k := range o.set.all() {
				for _, n := range k.served.places.State().Waiting {
					all += n
				}
			}
			return all == n
		})
	}
	for i := range 5 {
		due := get(t, c, object(some, ns, fmt.Sprint("due-", i), nil))
		update(t, c, due, func(is map[string]any) {
			is["metadata"].(map[string]any)["annotations"] = map[string]any{"ansible.sdk.operatorframework.io/reconcile-period": "1s"}
		})
	}
	waiting(4)
	create(t, c, object(other, ns, "new", nil))
	waiting(5)
	must.Do(t, c.Delete(t.Context(), gone))
	waiting(6)
	must.Do(t, c.Delete(t.Context(), object(some, ns, "due-4", nil)))
	if n := must.Get(testutil.GatherAndCount(reg, "rolewright_runs_waiting"))(t); n != 16 {
		t.Errorf("%d series of waiting runs, want one for each class of each kind", n)
	}
	for range 3 {
		next <- struct{}{}
	}
	eventually(t, "the next ones have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) >= 4
	})
	mu.Lock()
	defer mu.Unlock()
	// One of them may be the one that has waited longest.
	urgent := slices.DeleteFunc(slices.Clone(order[1:4]), func(name string) bool { return strings.HasPrefix(name, "due-") })
	if got := strings.Join(urgent, ", "); got != "end of gone, new" {
		t.Errorf("the runs: %q", order)
	}
	close(next)
}

// A changed role that breaks objects reaches only as many objects as the watch allows. When the role is fixed, it reaches
// all others.
func TestPlaces_ABadRoleIsStopped(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	tasks := filepath.Join(t.TempDir(), "roles", "it", "tasks", "main.yml")
	must.Do(t, os.MkdirAll(filepath.Dir(tasks), 0o700))
	write := func(text string) { must.Do(t, os.WriteFile(tasks, []byte(text), 0o600)) }
	write("[]\n")
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		if data, _ := os.ReadFile(tasks); string(data) == "# bad\n" {
			return failed("it is bad"), nil
		}
		return succeeded(), nil
	}}
	recorder := must.Get(metrics.New(prometheus.NewRegistry()))(t)
	o := start(t, cfg, exec, Options{Metrics: recorder, RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Content = watches.Content{Role: filepath.Dir(filepath.Dir(tasks))}
		w.Rollout = watches.Rollout{StopOnFailures: 2}
	})}})
	for i := range 8 {
		create(t, c, object(gvk, ns, fmt.Sprint("it-", i), nil))
	}
	eventually(t, "all have run", func() bool { return exec.count() == 8 })
	eventually(t, "all have ended", func() bool { return o.set.all()[0].served.places.State().Oldest.IsZero() })
	write("# bad\n")
	o.set.ContentChanged()
	is := func() (waiting int, stopped bool) {
		state := o.set.all()[0].served.places.State()
		for _, n := range state.Waiting {
			waiting += n
		}
		return waiting, state.Stopped
	}
	eventually(t, "it is stopped", func() bool {
		waiting, stopped := is()
		return stopped && waiting == 6
	})
	must.Be(t, "runs with the bad role", 2, exec.count()-8)
	eventually(t, "the log says so", func() bool { return strings.Contains(o.log(), "rollout.stopOnFailures") })
	write("# fixed\n")
	o.set.ContentChanged()
	eventually(t, "all have run", func() bool { return exec.count() == 18 })
}

// A trigger that starts all objects and breaks them reaches only as many as the watch allows. When it changes again, it
// reaches all others. A trigger that names one object does not wait for that.
func TestPlaces_ABadTriggerIsStopped(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var bad atomic.Bool
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		if bad.Load() {
			return failed("it is bad"), nil
		}
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, Options{RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Rollout = watches.Rollout{StopOnFailures: 2}
		w.Triggers = []watches.Trigger{
			startedBy("ConfigMap", ns), startedBy("ConfigMap", ns+"-named", func(t *watches.Trigger) { t.NameFromLabel = "instance" }),
		}
	})}})
	shared := create(t, c, labelled(configMap(ns, "shared"), map[string]string{"mark": ns}))
	named := create(t, c, labelled(configMap(ns, "named"), map[string]string{"mark": ns + "-named", "instance": "it-0"}))
	for i := range 6 {
		create(t, c, object(gvk, ns, fmt.Sprint("it-", i), nil))
	}
	eventually(t, "all have run", func() bool { return exec.count() == 6 })
	eventually(t, "all have ended", func() bool { return o.set.all()[0].served.places.State().Oldest.IsZero() })
	set := func(obj *unstructured.Unstructured, value string) {
		update(t, c, obj, func(is map[string]any) { is["data"] = map[string]any{"key": value} })
	}
	bad.Store(true)
	set(shared, "bad")
	eventually(t, "it is stopped", func() bool {
		state := o.set.all()[0].served.places.State()
		return state.Stopped && state.Waiting[runqueue.Trigger] == 4
	})
	must.Be(t, "runs with the bad object", 2, exec.count()-6)
	eventually(t, "the log says so", func() bool {
		return strings.Contains(o.log(), "The change that the watch's triggers reported runs no further objects")
	})
	bad.Store(false)
	create(t, c, object(gvk, ns, "new", nil))
	eventually(t, "a new object runs", func() bool { return exec.ranFor("new") == 1 })
	set(shared, "good")
	eventually(t, "all have run", func() bool { return exec.count() == 16 })
	set(named, "other")
	awaitTrigger(t, c, object(gvk, ns, "it-0", nil), causeTrigger, "configmaps "+ns+"/named was changed")
	quiet(t, exec, 17, "one run for the named one")
}

// nameIn returns the name of the object of a run.
func nameIn(req runner.Request) string {
	_, rest, _ := strings.Cut(string(req.ExtraVars), `"ansible_operator_meta": {"name": "`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// If no run is recorded, a restart may bring a bad role: it breaks only as many objects as the watch allows. New objects
// and requested runs run nevertheless.
func TestPlaces_ARestartWithoutARecordIsRolledOut(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t, prunesSummary())
	opts := Options{RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Rollout = watches.Rollout{StopOnFailures: 2}
	})}}
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, opts)
	for i := range 6 {
		awaitCondition(t, c, create(t, c, object(gvk, ns, fmt.Sprint("it-", i), nil)), status.Ready, "True")
	}
	o.stop()
	bad := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) { return failed("it is bad"), nil }}
	o = start(t, cfg, bad, opts)
	eventually(t, "it is stopped", func() bool {
		served := o.set.all()[0].reconciler()
		return served != nil && served.places.State().Stopped && served.places.State().Waiting[runqueue.Content] == 4
	})
	must.Be(t, "runs with the bad role", 2, bad.count())
	create(t, c, object(gvk, ns, "new", nil))
	eventually(t, "a new object runs", func() bool { return bad.ranFor("new") == 1 })
	for i := range 6 {
		if name := fmt.Sprint("it-", i); bad.ranFor(name) == 0 {
			update(t, c, object(gvk, ns, name, nil), func(is map[string]any) {
				is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "reconcile-at": "now"}
			})
			eventually(t, "one that is asked for runs", func() bool { return bad.ranFor(name) == 1 })
			break
		}
	}
}

// The test gives a container's memory limits as the kernel shows them in files. Runs that need more memory than is left
// wait; the log and a metric say so until they start.
func TestPlaces_RunsWaitForMemory(t *testing.T) {
	t.Parallel()
	const limit, need = 1000 << 20, 600 << 20
	root := t.TempDir() // a limit that the machine of the test does not have
	must.Write(t, root, map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": fmt.Sprint(limit), "sys/fs/cgroup/memory.current": fmt.Sprint(50 << 20),
	})
	cfg, c, gvk, ns := installed(t)
	end := make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		result := succeeded()
		result.Memory = need
		if nameIn(req) != "first" {
			select {
			case <-end:
			case <-ctx.Done():
			}
		}
		return result, nil
	}}
	reg := prometheus.NewRegistry()
	o := start(t, cfg, exec, Options{Metrics: must.Get(metrics.New(reg))(t), Watches: []watches.Watch{watchOf(gvk)}, limitsRoot: root})
	waits := func(want float64) {
		t.Helper()
		eventually(t, fmt.Sprint("the metric is ", want), func() bool {
			for _, f := range must.Get(reg.Gather())(t) {
				if f.GetName() == "rolewright_runs_wait_for_memory" {
					return f.GetMetric()[0].GetGauge().GetValue() == want
				}
			}
			return false
		})
	}
	const said = "Runs wait for memory"
	awaitCondition(t, c, create(t, c, object(gvk, ns, "first", nil)), status.Ready, "True") // the operator knows by now how much memory a run takes
	waits(0)
	create(t, c, object(gvk, ns, "second", nil))
	eventually(t, "one runs", func() bool { return exec.count() == 2 })
	create(t, c, object(gvk, ns, "third", nil))
	waits(1)
	must.Be(t, "runs while one waits", 2, exec.count())
	eventually(t, "the log says what runs wait for", func() bool { return strings.Contains(o.log(), said) })
	close(end)
	eventually(t, "the other one runs", func() bool { return exec.count() == 3 })
	waits(0)
}

// A failed check, as with the annotation for one object, stops no rollout, and a successful one resumes none.
func TestPlaces_ChecksDoNotCountForARollout(t *testing.T) {
	places := runqueue.New(runqueue.Options{}).Kind("it", 1, runqueue.Rollout{StopOnFailures: 1}, nil)
	r := &reconciler{opts: &Options{}, places: places}
	s, good := &scope{class: runqueue.Content, rollout: runqueue.Inputs{Content: "it"}}, status.Run{Result: status.Succeeded}
	s.memory = &memory{judged: &good}
	end := func(check bool, result status.Result) (stopped bool) {
		s.plan.check = check
		r.judgeRollout(s, &status.Run{Mode: status.ModeCheck, Result: status.Failed}, status.Run{Result: result})
		return places.State().Stopped
	}
	places.Ask(s.key, s.class, time.Now(), s.rollout)
	must.Be(t, "after a failed check", false, end(true, status.Failed))
	must.Be(t, "after a failed run", true, end(false, status.Failed))
	must.Be(t, "after a successful check", true, end(true, status.Succeeded))
	must.Be(t, "after a successful run", false, end(false, status.Succeeded))
}

// An object whose runs are often lost gets no priority over others.
func TestPlace_OfRunsThatAreLostOften(t *testing.T) {
	for name, tt := range map[string]struct {
		cause   cause
		losses  int64
		differs string // the group of inputs in which the last recorded run differs
		want    runqueue.Class
	}{
		"the second time":                    {causeInterrupted, 2, "none", runqueue.Change},
		"the third time":                     {causeInterrupted, 3, "none", runqueue.Retry},
		"the third time, of changed content": {causeInterrupted, 3, "content", runqueue.Content},
		"a changed object":                   {causeInterrupted, 1, "object", runqueue.Change},
		"a new object":                       {causeInterrupted, 1, "", runqueue.Change},
		"changed since":                      {causeChanged, 3, "none", runqueue.Change},
		"finalizer, the second time":         {causeDeleted, 2, "none", runqueue.Deletion},
		"finalizer, the third time":          {causeDeleted, 3, "none", runqueue.Retry},
	} {
		parts := []fingerprint.Part{{Group: fingerprint.OfObject, Value: "o"}, {Group: fingerprint.OfContent, Value: "c"}}
		last := status.Run{Cause: string(tt.cause), Result: status.Interrupted, Reason: status.ReasonLost, Losses: tt.losses}
		r := &reconciler{opts: &Options{}, places: runqueue.New(runqueue.Options{}).Kind("it", 1, runqueue.Rollout{}, nil)}
		s := &scope{plan: plan{cause: tt.cause}, memory: &memory{last: &last}, object: object(schema.GroupVersionKind{}, "", "it", nil), parts: parts, fingerprint: fingerprint.Of(parts)}
		if tt.differs != "" {
			before := slices.Clone(parts)
			for i := range before {
				if string(before[i].Group) == tt.differs {
					before[i].Value = "before"
				}
			}
			last.Fingerprint, last.Inputs = fingerprint.Of(before), fingerprint.Pack(before)
		}
		r.place(s)
		must.Be(t, name, tt.want, s.class)
	}
}
