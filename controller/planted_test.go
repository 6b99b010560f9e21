package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	opmetrics "github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// onDisk creates the files that a run leaves on disk, and finds processes and records of earlier runs like the real
// runner.
func onDisk(do func(ctx context.Context, req runner.Request) (runner.Result, error)) *fakeExecutor {
	real := runner.New(runner.Options{})
	return &fakeExecutor{
		do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
			if err := os.MkdirAll(filepath.Join(req.Dir, "artifacts", req.ID), 0o700); err != nil {
				return runner.Result{}, err
			}
			for name, data := range req.Files {
				if err := os.WriteFile(filepath.Join(req.Dir, name), data, 0o600); err != nil {
					return runner.Result{}, err
				}
			}
			return do(ctx, req)
		},
		reap: real.Reap,
		recover: func(dir, id string) (runner.Result, error) {
			return real.Recover(context.Background(), dir, id, false, nil)
		},
	}
}

// process starts a process with the mark of a run, and returns a function that tells whether it is alive.
func process(t *testing.T, run string) (lives func() bool) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.Env = []string{"ROLEWRIGHT_RUN=" + run}
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is always killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return func() bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
}

// tree returns all files below a directory, with their contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			found[path] = info.Mode().String() + " " + string(data)
		}
		return err
	}))
	return found
}

// plantedStatuses are statuses that someone who may write the status of an object could write. foreign are the IDs of
// other objects' runs.
func plantedStatuses(foreign ...string) []map[string]any {
	var all []map[string]any
	ansible := func(part string, value any) {
		all = append(all, map[string]any{"ansible": map[string]any{part: value}})
	}
	text := func(n int) string { return strings.Repeat("a", n) }
	run := func(edit func(map[string]any)) map[string]any {
		m := map[string]any{
			"id": newUID(), "cause": "period", "generation": int64(1), "fingerprint": text(32), "result": "Succeeded", "reason": "Succeeded",
			"started": "2026-01-02T03:04:05.000000Z", "finished": "2026-01-02T03:04:06.000000Z",
		}
		edit(m)
		return m
	}
	ids := append([]string{
		"", ".", "..", "../..", "a/..", "../../../precious", "../../../elsewhere/sub/..", "../../../elsewhere", "../../../../../../proc", "/", "/etc",
		"../" + newUID(), ".runs", newUID() + "/..", newUID() + "\n", " " + newUID(), strings.ToUpper(newUID()), "{" + newUID() + "}", "-rf", "--help",
		"*", "~", "$(id)", "{{ lookup('pipe','id') }}", "\x00", "a\x00b", "..\\..", "%2e%2e", "latest", "artifacts", ".building", "." + newUID() + ".removing",
		text(64), text(65), text(255), text(4096), text(100_000), "ü", "\u202e", "null",
	}, foreign...)
	for _, id := range ids {
		ansible("activeRun", run(func(m map[string]any) { m["id"] = id }))
		ansible("lastRun", run(func(m map[string]any) { m["id"] = id }))
	}
	// Of values of any other form, which package status tests, one for each part.
	for _, part := range []string{"activeRun", "lastRun", "dependents"} {
		ansible(part, "text")
	}
	all = append(all, map[string]any{"ansible": "text"}, map[string]any{"conditions": []any{"a", nil, int64(1)}}, map[string]any{"observedGeneration": "text"})
	list := func(n int, name func(i int) string) []any {
		names := make([]any, n)
		for i := range names {
			names[i] = name(i)
		}
		return names
	}
	group := func(i int) string { return fmt.Sprintf("things.v1.g%d", i) }
	for _, names := range [][]any{
		list(50_000, group), list(101, group), list(100, group), list(100, func(i int) string { return fmt.Sprintf("things%d.v1.apps", i) }),
		list(100, func(i int) string { return fmt.Sprintf("deployments.v%d.apps", i) }), list(100, func(int) string { return "secrets.v1." }),
		{"../../x.v1.y"}, {"secrets.v1./../x"}, {"a.b"}, {"deployments.v1.apps", int64(5)}, {text(1_400_000)},
	} {
		ansible("dependents", names)
	}
	conditions := make([]any, 10_000)
	for i := range conditions {
		conditions[i] = map[string]any{"type": "Ready", "status": "True", "reason": "Mine"}
	}
	all = append(all, map[string]any{"conditions": conditions})
	deep := map[string]any{}
	for range 500 {
		deep = map[string]any{"activeRun": deep}
	}
	ansible("activeRun", deep)
	ansible("lastRun", run(func(m map[string]any) { m["message"] = text(1_400_000) }))
	ansible("activeRun", run(func(m map[string]any) { m["task"] = text(1_400_000) }))
	ansible("activeRun", run(func(m map[string]any) { m["id"] = text(1_400_000) }))
	all = append(all, map[string]any{"mine": text(1_400_000)})
	return all
}

// peaks samples the resources that a process uses.
type peaks struct {
	goroutines int
	heap       uint64
}

// sample takes samples until the returned function is called.
func sample() (stop func() peaks) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var p peaks
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			metrics.Read(live)
			p.goroutines, p.heap = max(p.goroutines, runtime.NumGoroutine()), max(p.heap, live[0].Value.Uint64())
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() peaks { close(done); wg.Wait(); return p }
}

// Someone who may write the status of an object cannot use it to reach a file or process that does not belong to the
// object's own runs, or to keep the operator busy. The statuses are there before the operator starts, come between two
// runs, and are found again by the next process.
func TestPlanted_AStatusTouchesNothingOfOthers(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	base := t.TempDir()
	recorder := must.Get(opmetrics.New(prometheus.NewRegistry()))(t)
	opts := Options{RunnerRoot: filepath.Join(base, "runner"), InjectOwnerRef: true, RetryMin: time.Second, RetryMax: time.Hour, Metrics: recorder,
		Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
			w.MaxRunnerArtifacts, w.WatchDependentResources, w.MaxConcurrentReconciles = 1, true, 8
		})}}

	// One run is in progress, another has ended, and a third was lost.
	release := make(chan struct{})
	var running sync.Once
	victim := make(chan runner.Request, 1)
	began := time.Now()
	exec := onDisk(func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), `"name": "victim"`) {
			running.Do(func() { victim <- req })
			<-release
		}
		return succeeded(), nil
	})
	first := start(t, cfg, exec, opts)
	ended := create(t, c, object(gvk, ns, "ended", map[string]any{}))
	endedRun := status.Read(awaitCondition(t, c, ended, status.Ready, "True").Object["status"].(map[string]any)).Last.ID
	create(t, c, object(gvk, ns, "victim", map[string]any{}))
	live := <-victim
	victimLives := process(t, live.ID)
	for _, path := range []string{"precious/file", "elsewhere/command", "elsewhere/sub/file"} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(base, path)), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(base, path), []byte(`{"important":"config"}`), 0o640))
	}
	canaries := func() map[string]string {
		all := map[string]string{}
		store := storeOf(t, opts.RunnerRoot)
		for _, dir := range []string{filepath.Join(base, "precious"), filepath.Join(base, "elsewhere"), live.Dir, store.Object(string(ended.GetUID()))} {
			for path, data := range tree(t, dir) {
				all[path] = data
			}
		}
		return all
	}
	before := canaries()
	if len(before) < 5 {
		t.Fatalf("too few canaries: %v", before)
	}

	statuses := plantedStatuses(live.ID, endedRun, "../"+filepath.Base(filepath.Dir(live.Dir))+"/"+live.ID)
	if len(statuses) < 100 {
		t.Fatalf("%d statuses", len(statuses))
	}
	objects := make([]*unstructured.Unstructured, len(statuses))
	spec := func(n int) map[string]any { return map[string]any{"n": int64(n)} }
	for i := range statuses {
		objects[i] = object(gvk, ns, fmt.Sprintf("planted-%d", i), spec(0))
		objects[i].SetAnnotations(map[string]string{ownPrefix + "paused": "true"})
		create(t, c, objects[i])
	}
	var all, some []int // what was read before is not read again
	for i := range objects {
		all = append(all, i)
		if i%5 == 0 {
			some = append(some, i)
		}
	}
	plant := func(which []int) {
		for _, i := range which {
			plantStatus(t, c, objects[i], statuses[i])
		}
	}
	goroutines, requests := runtime.NumGoroutine(), total(first)
	stop := sample()
	reached := func(which []int, n int, what string) {
		for _, i := range which {
			obj := objects[i]
			update(t, c, obj, func(m map[string]any) {
				m["spec"] = spec(n)
				delete(m["metadata"].(map[string]any), "annotations")
			})
		}
		for _, i := range which {
			obj := objects[i]
			eventually(t, fmt.Sprintf("%s: %.200s is replaced by a success", what, encoded(statuses[i])), func() bool {
				is := get(t, c, obj)
				st, _ := is.Object["status"].(map[string]any)
				r := status.Read(st)
				return r.Last != nil && r.Last.Result == status.Succeeded && r.Last.Generation == is.GetGeneration() && len(r.Rejected) == 0 && r.Last.Started.After(began)
			})
		}
		if diff := cmp.Diff(before, canaries()); diff != "" {
			t.Errorf("%s: files of others (-before +after):\n%s", what, diff)
		}
		if !victimLives() {
			t.Fatalf("%s: a process of another object's run was killed", what)
		}
	}
	plant(all)
	reached(all, 0, "planted while paused")
	plant(some)
	reached(some, 1, "planted between runs")
	again := append(all[:90:90], some[18:]...) // all that name runs come first
	plant(again)
	sent := total(first) - requests

	// The next process finds them all at once. It ends what a run has left only if its own disk has a record of the run.
	lost := create(t, c, object(gvk, ns, "lost", map[string]any{}))
	lostRun := status.Read(awaitCondition(t, c, lost, status.Ready, "True").Object["status"].(map[string]any)).Last.ID
	close(release)
	first.stop()
	before = canaries() // the victim's run has ended, too
	active := status.Active{ID: newUID(), Cause: "period", Generation: 1, Started: time.Now()}
	is := get(t, c, lost)
	plantStatus(t, c, lost, status.Begin(is.Object["status"].(map[string]any), active, false, time.Now()))
	leave(t, opts.RunnerRoot, lost, active, "", nil, "")
	lostLives := process(t, active.ID)
	second := start(t, cfg, onDisk(func(context.Context, runner.Request) (runner.Result, error) { return succeeded(), nil }), opts)
	eventually(t, "the lost run is repeated", func() bool {
		last, _ := lastRun(get(t, c, lost).Object["status"].(map[string]any))
		return last.ID != lostRun && last.Cause == string(causeInterrupted) && last.Result == status.Succeeded
	})
	if lostLives() {
		t.Error("a process of the object's own lost run was left")
	}
	reached(again, 2, "met by the next process")
	sent += total(second)

	peak := stop()
	n := len(objects)
	t.Logf("%d statuses: %d goroutines more, %d MiB of live heap, %d requests", n, peak.goroutines-goroutines, peak.heap>>20, sent)
	// Other tests run at the same time. Without a limit there would be two goroutines per name, for more than 50,000
	// names.
	if most := 10_000; peak.goroutines-goroutines > most {
		t.Errorf("%d goroutines more, at most %d", peak.goroutines-goroutines, most)
	}
	if most := uint64(512 << 20); peak.heap > most {
		t.Errorf("%d MiB of live heap, at most %d", peak.heap>>20, most>>20)
	}
	if n := testutil.CollectAndCount(recorder, "rolewright_status_rejected_total"); n != 3 {
		t.Errorf("%d series of rejected parts, want one for each part", n)
	}
	if most := int64(20*3*n + 1000); sent > most {
		t.Errorf("%d requests, at most %d", sent, most)
	}
}

// plantStatus writes a whole status, and repeats that at conflicts.
func plantStatus(t *testing.T, c client.Client, obj *unstructured.Unstructured, st map[string]any) {
	t.Helper()
	eventually(t, "status of "+obj.GetName()+" planted", func() bool {
		is := get(t, c, obj)
		is.Object["status"] = (&unstructured.Unstructured{Object: map[string]any{"status": st}}).DeepCopy().Object["status"]
		err := c.Status().Update(t.Context(), is)
		if err != nil && !strings.Contains(err.Error(), "the object has been modified") {
			t.Fatalf("plant %.200s: %v", encoded(st), err)
		}
		return err == nil
	})
}

func encoded(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// total returns how many requests an operator has sent.
func total(o *operator) int64 {
	var n int64
	o.counts.Range(func(kind, _ any) bool {
		n += o.count(kind.(string))
		return true
	})
	return n
}

// If the operator does not write the status, nothing in it counts as the operator's record: neither for a kind without
// the subresource, where creators write the status, nor if the watch leaves the status to others.
func TestPlanted_AStatusThatIsNotWrittenSaysNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind   []testenv.CRDOption
		manage bool
	}{
		"a kind without status": {kind: []testenv.CRDOption{testenv.WithoutStatus()}, manage: true},
		"manageStatus is false": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t, tt.kind...)
			opts := Options{RunnerRoot: filepath.Join(t.TempDir(), "runner"), InjectOwnerRef: true, Watches: []watches.Watch{
				watchOf(gvk, func(w *watches.Watch) { w.ManageStatus, w.WatchDependentResources = tt.manage, true }),
			}}
			record := status.Conclude(nil, status.Run{
				ID: newUID(), Cause: "created", Generation: 1, Fingerprint: strings.Repeat("a", 32), Started: time.Now(), Finished: time.Now(),
				Result: status.Succeeded, Reason: "Succeeded", Dependents: []string{"configmaps.v1."},
			}, 0, time.Now())
			active := status.Active{ID: newUID(), Cause: "period", Generation: 1, Started: time.Now()}
			obj := object(gvk, ns, "one", map[string]any{})
			obj.Object["status"] = status.Begin(record, active, false, time.Now())
			planted := obj.Object["status"].(map[string]any)
			create(t, c, obj)
			if !tt.manage {
				plantStatus(t, c, obj, planted)
			}
			leave(t, opts.RunnerRoot, obj, active, "", nil, "")
			lives := process(t, active.ID)
			exec := onDisk(func(context.Context, runner.Request) (runner.Result, error) { return succeeded(), nil })
			o := start(t, cfg, exec, opts)
			quiet(t, exec, 1, "it runs once, as any new object")
			if !lives() {
				t.Error("a run that is made up was ended")
			}
			if watching := o.set.dependents.Watching(); len(watching) > 0 {
				t.Errorf("%v are watched", watching)
			}
		})
	}
}
