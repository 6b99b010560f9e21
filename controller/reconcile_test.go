package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestReconcile_CreatedAndChangedObjectsRunOnce(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})

	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if n := exec.count(); n != 1 {
		t.Fatalf("%d runs for one creation", n)
	}
	last, ok := lastRun(is.Object["status"].(map[string]any))
	if !ok || last.Cause != "created" || last.Generation != 1 || last.Result != status.Succeeded {
		t.Errorf("lastRun = %+v", last)
	}
	if got := condition(is, status.Successful)["message"]; got != "Last reconciliation succeeded" {
		t.Errorf("Successful says %q", got)
	}

	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	is = awaitCondition(t, c, obj, status.Ready, "True")
	if last, _ = lastRun(is.Object["status"].(map[string]any)); last.Cause != "changed" || last.Generation != 2 {
		t.Errorf("lastRun after the change = %+v", last)
	}
	// Changes of labels, annotations and another client's status start no run.
	update(t, c, obj, func(m map[string]any) {
		m["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
		m["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	})
	settle()
	if n := exec.count(); n != 2 {
		t.Errorf("%d runs, want 2: one for the creation, one for the change", n)
	}
	if starts := o.count("PATCH status"); starts != 4 {
		t.Errorf("%d status writes for 2 runs, want 4", starts)
	}
}

// After a restart, only what has changed runs.
func TestReconcile_RestartRunsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}, ReconcilePeriod: time.Hour, RunnerRoot: t.TempDir()}
	first := &fakeExecutor{}
	o := start(t, cfg, first, opts)
	const n = 50
	objs := make([]*unstructured.Unstructured, n)
	for i := range objs {
		objs[i] = create(t, c, object(gvk, ns, fmt.Sprintf("o%d", i), map[string]any{"size": int64(i)}))
	}
	for _, obj := range objs {
		awaitCondition(t, c, obj, status.Ready, "True")
	}
	o.stop()
	if got := first.count(); got != n {
		t.Fatalf("%d runs for %d objects", got, n)
	}
	update(t, c, objs[7], func(m map[string]any) { m["spec"] = map[string]any{"size": int64(1000)} })

	second := &fakeExecutor{}
	o = start(t, cfg, second, opts)
	awaitCondition(t, c, objs[7], status.Ready, "True")
	eventually(t, "every object is looked at", func() bool { return o.set.Ready() == nil })
	settle()
	if second.count() != 1 || second.ranFor("o7") != 1 {
		t.Errorf("%d runs after the restart, %d of the changed object; want 1 and 1", second.count(), second.ranFor("o7"))
	}
	if reads := o.count("GET custom resource"); reads > 100 {
		t.Errorf("%d reads after the restart: objects that are not run are looked at again and again", reads)
	}
	if writes := o.count("PATCH status") + o.count("PATCH") + o.count("PUT"); writes != 2 {
		t.Errorf("%d writes after the restart, want the 2 of the one run", writes)
	}
}

func TestReconcile_RecordedPeriodContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	period := 4 * time.Second
	opts := Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.ReconcilePeriod = &period })}}
	o := start(t, cfg, &fakeExecutor{}, opts)
	obj := create(t, c, object(gvk, ns, "one", nil))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	first, _ := lastRun(is.Object["status"].(map[string]any))
	o.stop()
	start(t, cfg, &fakeExecutor{}, opts)
	var second status.Run
	eventually(t, "the periodic run", func() bool {
		second, _ = lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return second.ID != first.ID
	})
	if gap := second.Started.Sub(first.Finished); second.Cause != "period" || gap < period {
		t.Errorf("run for %q after %v, want one for the period after at least %v", second.Cause, gap, period)
	}
}

// What a role writes during its run survives, and so does what others write in between. The result is written too, and
// the run is not repeated.
func TestReconcile_StatusConflictsLoseNothing(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		updateStatus(t, c, object(gvk, ns, "one", nil), func(st map[string]any) {
			st["nodes"] = []any{"a", "b"}
			st["ratio"] = 0.5
			st["conditions"] = append(st["conditions"].([]any), map[string]any{
				"type": "DatabaseUp", "status": "True", "severity": "none", "weight": 1.25, "lastTransitionTime": "2020-01-01T00:00:00.5Z",
			})
		})
		return succeeded(), nil
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})

	// Another client writes the same object all the time.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"noise":"%d"}}}`, i)
			_ = c.Patch(context.Background(), obj.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
			time.Sleep(2 * time.Millisecond)
		}
	})
	is := awaitCondition(t, c, obj, status.Ready, "True")
	close(stop)
	wg.Wait()
	st := is.Object["status"].(map[string]any)
	if diff := cmp.Diff([]any{"a", "b"}, st["nodes"]); diff != "" || st["ratio"] != 0.5 {
		t.Errorf("status written by the role: %v", st)
	}
	want := map[string]any{"type": "DatabaseUp", "status": "True", "severity": "none", "weight": 1.25, "lastTransitionTime": "2020-01-01T00:00:00.5Z"}
	must.Be(t, "condition written by the role", want, condition(is, "DatabaseUp"))
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1: a conflict is no reason to run again\n%s", n, o.log())
	}
}

func TestReconcile_FailedRunIsRetriedWithBackoffAndResetByAChange(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), "fixed") {
			return succeeded(), nil
		}
		return failed("the disk is full"), nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, RetryMin: 300 * time.Millisecond, RetryMax: time.Hour})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"state": "broken"}))
	eventually(t, "a third attempt", func() bool {
		st, _ := get(t, c, obj).Object["status"].(map[string]any)
		last, _ := lastRun(st)
		return last.Attempts >= 3
	})
	is := get(t, c, obj)
	failure := condition(is, status.Failure)
	if failure["status"] != "True" || !strings.HasPrefix(failure["message"].(string), "the disk is full") {
		t.Errorf("Failure = %v", failure)
	}
	task, _, _ := unstructured.NestedStringMap(is.Object, "status", "ansible", "lastRun", "failedTask")
	if task["path"] != "roles/r/tasks/main.yml:3" || task["name"] != "break" {
		t.Errorf("failedTask = %v", task)
	}
	if ready := condition(is, status.Ready); ready["reason"] != string(runner.TaskFailed) {
		t.Errorf("Ready = %v", ready)
	}
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"state": "fixed"} })
	awaitCondition(t, c, obj, status.Ready, "True")
}

func TestReconcile_RequeueAfterIsObeyedAfterTheRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec, read := &fakeExecutor{}, make(chan struct{})
	exec.do = func(ctx context.Context, _ runner.Request) (runner.Result, error) {
		if exec.count() == 1 {
			return requeue("2s"), nil
		}
		select { // the record of the first run is read before the second is written
		case <-read:
		case <-ctx.Done():
		}
		return requeue("nonsense"), nil
	}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", nil))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	first, _ := lastRun(is.Object["status"].(map[string]any))
	close(read)
	var second status.Run
	eventually(t, "the run that was asked for", func() bool {
		second, _ = lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return second.ID != first.ID
	})
	if gap := second.Started.Sub(first.Finished); gap < 2*time.Second || second.Cause != "requeue_after" {
		t.Errorf("run for %q after %v, want requeue_after after at least 2s", second.Cause, gap)
	}
	warnings, _, _ := unstructured.NestedStringSlice(get(t, c, obj).Object, "status", "ansible", "warnings")
	if len(warnings) != 1 || !strings.Contains(warnings[0], `"nonsense" is not a duration`) {
		t.Errorf("warnings = %q", warnings)
	}
	settle()
	if n := exec.count(); n != 2 {
		t.Errorf("%d runs, want 2: a bad period is no period", n)
	}
}

func TestReconcile_FinalizerGoesOnlyAfterAProvedSuccess(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var mu sync.Mutex
	results := []runner.Result{failed("still in use"), {ExitCode: 0, Status: "successful", Finished: time.Now()}, requeue("1s"), succeeded()}
	var finalizers []runner.Request
	seen := make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if req.Content.Role != "testdata/roles/finalizer" {
			return succeeded(), nil
		}
		mu.Lock()
		defer mu.Unlock()
		if len(finalizers) == 1 { // the failure of the first run is seen before the second fails
			select {
			case <-seen:
			case <-ctx.Done():
			}
		}
		finalizers = append(finalizers, req)
		res := results[0]
		results = results[1:]
		return res, nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"},
			Vars: map[string]any{"state": "absent"}}
	})}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if diff := cmp.Diff([]string{"example.com/finalizer"}, is.GetFinalizers()); diff != "" {
		t.Fatalf("finalizers: %s", diff)
	}
	must.Do(t, c.Delete(t.Context(), is))
	eventually(t, "the first failed finalizer run is shown", func() bool {
		is := object(gvk, ns, "one", nil)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), is); err != nil {
			t.Fatal("the object went although its finalizer run failed")
		}
		return strings.HasPrefix(fmt.Sprint(condition(is, status.Failure)["message"]), "still in use")
	})
	close(seen)
	eventually(t, "the object goes", func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), object(gvk, ns, "one", nil))) == nil &&
			c.Get(t.Context(), client.ObjectKeyFromObject(obj), object(gvk, ns, "one", nil)) != nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(finalizers) != 4 {
		t.Errorf("%d finalizer runs, want 4: failed, unproved, not yet, proved", len(finalizers))
	}
	if !strings.Contains(string(finalizers[0].ExtraVars), `"state": "absent"`) {
		t.Errorf("finalizer vars are missing in %s", finalizers[0].ExtraVars)
	}
}

// A result is never written to another object with the same name.
func TestReconcile_ResultOfADeletedObjectIsNotItsSuccessors(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	begun, release := make(chan struct{}, 9), make(chan struct{})
	exec := &fakeExecutor{}
	exec.do = func(_ context.Context, req runner.Request) (runner.Result, error) {
		if exec.count() > 1 {
			return succeeded(), nil
		}
		begun <- struct{}{}
		<-release
		// Progress that comes late must not reach the new object either.
		for i := range 30 {
			req.OnEvent(taskStart(i))
			time.Sleep(20 * time.Millisecond)
		}
		return failed("of the first object"), nil
	}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, ProgressInterval: 50 * time.Millisecond})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	<-begun
	must.Do(t, c.Delete(t.Context(), obj))
	successor := create(t, c, object(gvk, ns, "one", map[string]any{}))
	close(release)
	var seen []string
	eventually(t, "the successor's run", func() bool {
		w := get(t, c, successor)
		seen = append(seen, fmt.Sprint(condition(w, status.Failure)["message"]))
		if task, _, _ := unstructured.NestedString(w.Object, "status", "ansible", "activeRun", "task", "name"); task != "" {
			seen = append(seen, "of the first object: "+task)
		}
		return condition(w, status.Ready)["status"] == "True"
	})
	if all := strings.Join(seen, "|"); strings.Contains(all, "of the first object") {
		t.Errorf("the successor was told the end of its predecessor's run: %s", all)
	}
}

func TestReconcile_ObjectsWithoutGenerationRunOnRealChanges(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	ns := testenv.Namespace(t, cfg)
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Namespaces: []string{ns}, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Selector.MatchLabels = map[string]string{"watched": "yes"}
	})}})
	cm := object(gvk, ns, "one", nil)
	cm.SetLabels(map[string]string{"watched": "yes"})
	cm.Object["data"] = map[string]any{"a": "1"}
	create(t, c, cm)
	eventually(t, "the run for the creation", func() bool { return exec.count() == 1 })
	update(t, c, cm, func(m map[string]any) { m["data"] = map[string]any{"a": "2"} })
	eventually(t, "the run for the change", func() bool { return exec.count() == 2 })
	// The same content again, with different metadata.
	must.Do(t, c.Patch(t.Context(), cm.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"a":"2"}}`)),
		client.FieldOwner("another")))
	settle()
	if n := exec.count(); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
	if !strings.Contains(o.log(), "no status subresource") {
		t.Error("the log does not say that the kind has no status")
	}
}

// If a kind has no generations and the watch does not write its status, what others write into the status starts a run.
func TestReconcile_StatusOfOthersWithoutGeneration(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	ns := testenv.Namespace(t, cfg)
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Namespaces: []string{ns}, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.ManageStatus = false
		w.Selector.MatchLabels = map[string]string{"watched": "yes"}
	})}})
	quota := object(gvk, ns, "one", map[string]any{"hard": map[string]any{"pods": "1"}})
	quota.SetLabels(map[string]string{"watched": "yes"})
	create(t, c, quota)
	eventually(t, "the run for the creation", func() bool { return exec.count() > 0 })
	settle() // the controller manager may write the status
	before := exec.count()
	must.Do(t, c.Status().Patch(t.Context(), quota.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"used":{"pods":"7"}}}`))))
	eventually(t, "the run for the status", func() bool { return exec.count() > before })
}

func TestReconcile_SelectorIsFollowed(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	period := time.Second
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Selector.MatchLabels = map[string]string{"tier": "gold"}
		w.ReconcilePeriod = &period
	})}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	settle()
	if n := exec.count(); n != 0 {
		t.Fatalf("%d runs of an object that does not match", n)
	}
	label := func(value any) {
		update(t, c, obj, func(m map[string]any) { m["metadata"].(map[string]any)["labels"] = map[string]any{"tier": value} })
	}
	label("gold")
	eventually(t, "runs once it matches", func() bool { return exec.count() >= 2 })
	label("silver")
	eventually(t, "no more runs after it ceased to match", func() bool {
		n := exec.count()
		settle()
		settle() // two periods
		return exec.count() == n
	})
}

func TestReconcile_ManageStatusFalseWritesNothing(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	exec.do = func(context.Context, runner.Request) (runner.Result, error) {
		if exec.count() == 1 {
			return runner.Result{}, errors.New("no room")
		}
		return succeeded(), nil
	}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.ManageStatus = false })}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "an error, and a run", func() bool { return exec.count() == 2 })
	settle()
	for _, kind := range []string{"PATCH", "PATCH status", "PUT", "PUT status", "POST"} {
		if n := o.count(kind); n != 0 {
			t.Errorf("%d %s requests, want none", n, kind)
		}
	}
	if _, ok := get(t, c, obj).Object["status"]; ok {
		t.Error("a status was written")
	}
}

// A run that cannot start is reported with ansible-operator's text and the cause, and is retried.
func TestReconcile_RunThatCannotStartIsReported(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		return runner.Result{}, fmt.Errorf("%w: not found on the PATH; install it", runner.ErrUnavailable)
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	is := awaitCondition(t, c, obj, status.Ready, "False")
	failure := condition(is, status.Failure)
	if failure["status"] != "True" || !strings.HasPrefix(failure["message"].(string), "Unable to run reconciliation: ") {
		t.Errorf("Failure = %v", failure)
	}
	if ready := condition(is, status.Ready); ready["reason"] != status.ReasonUnavailable {
		t.Errorf("Ready = %v", ready)
	}
	eventually(t, "a second attempt", func() bool { return exec.count() > 1 })
}

func TestReconcile_ArtifactsAreBoundedAndGoWithTheObject(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		return succeeded(), os.MkdirAll(filepath.Join(req.Dir, "artifacts", req.ID), 0o700)
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.MaxRunnerArtifacts = 2 })}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"n": int64(0)}))
	awaitCondition(t, c, obj, status.Ready, "True")
	for i := 1; i <= 4; i++ {
		update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"n": int64(i)} })
		awaitCondition(t, c, obj, status.Ready, "True")
	}
	dir := filepath.Join(o.root, ".runs", string(obj.GetUID()))
	eventually(t, "2 runs are kept", func() bool {
		runs, _ := filepath.Glob(filepath.Join(dir, "*-*")) // also there: the spec of the last success
		return len(runs) == 2
	})
	link := filepath.Join(o.root, gvk.Group, gvk.Version, gvk.Kind, ns, "one")
	if _, err := os.Stat(filepath.Join(link, "artifacts")); err != nil {
		t.Errorf("the documented path does not resolve: %v", err)
	}
	must.Do(t, c.Delete(t.Context(), obj))
	eventually(t, "the directories go with the object", func() bool {
		_, dirErr := os.Lstat(dir)
		_, linkErr := os.Lstat(link)
		return os.IsNotExist(dirErr) && os.IsNotExist(linkErr)
	})
}
