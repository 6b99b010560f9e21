package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// If another process has begun a run, only a proved result counts, and only for the object, the generation and the run of
// the ticket.
func TestLost_WhatIsProvedCounts(t *testing.T) {
	t.Parallel()
	proved := func(string, string) (runner.Result, error) { return succeeded(), nil }
	failing := func(string, string) (runner.Result, error) { return failed("broken"), nil }
	for name, tt := range map[string]struct {
		change  func(*runstore.Ticket)
		file    string // what the file contains instead of the ticket
		recover func(dir, id string) (runner.Result, error)
		adopted status.Result // empty: the run is lost
		// stranger is true if nothing on disk matches the status. Then processes and files are left alone.
		stranger bool
		left     error
		unseen   int // how often processes cannot be listed
	}{
		"a success":           {recover: proved, adopted: status.Succeeded},
		"a failure":           {recover: failing, adopted: status.Failed},
		"an unknown end":      {},
		"processes are left":  {recover: proved, left: fmt.Errorf("%w: 7", runner.ErrSurvivors), adopted: status.Succeeded},
		"none can be listed":  {recover: proved, unseen: 2, adopted: status.Succeeded},
		"another run":         {change: func(t *runstore.Ticket) { t.Run = newUID() }, recover: proved, stranger: true},
		"another object":      {change: func(t *runstore.Ticket) { t.UID = "other" }, recover: proved, stranger: true},
		"another generation":  {change: func(t *runstore.Ticket) { t.Generation++ }, recover: proved, stranger: true},
		"a finalizer run":     {change: func(t *runstore.Ticket) { t.Deleting = true }, recover: proved},
		"a ticket cut short":  {file: `{"Run": "`, recover: proved, stranger: true},
		"a ticket of nothing": {file: `null`, recover: proved, stranger: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			opts := Options{Watches: []watches.Watch{watchOf(gvk)}, RunnerRoot: t.TempDir(), RetryMin: time.Hour, RetryMax: time.Hour}
			o := start(t, cfg, &fakeExecutor{}, opts)
			obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
			is := awaitCondition(t, c, obj, status.Ready, "True")
			o.stop()

			before, _ := lastRun(is.Object["status"].(map[string]any))
			lost := status.Active{ID: newUID(), Cause: "period", Generation: is.GetGeneration(), Started: time.Now()}
			is.Object["status"] = status.Begin(is.Object["status"].(map[string]any), lost, false, time.Now())
			must.Do(t, c.Status().Update(t.Context(), is))
			leave(t, opts.RunnerRoot, is, lost, before.Fingerprint, tt.change, tt.file)

			var looks atomic.Int32
			if tt.unseen > 0 {
				opts.RetryMin = time.Millisecond // listing the processes is retried after RetryMin
			}
			exec := &fakeExecutor{recover: tt.recover, reap: func(string) error {
				if int(looks.Add(1)) <= tt.unseen {
					return runner.ErrUnseen
				}
				return tt.left
			}}
			start(t, cfg, exec, opts)
			var last status.Run
			eventually(t, "the lost run is settled", func() bool {
				st := get(t, c, obj).Object["status"].(map[string]any)
				last, _ = lastRun(st)
				return !hasActiveRun(st) && last.ID != before.ID && last.Result != status.Interrupted
			})
			want := 0
			if tt.adopted == "" {
				want = 1
			}
			quiet(t, exec, want, "a run that counts is not repeated")
			switch {
			case tt.adopted != "" && (last.ID != lost.ID || last.Result != tt.adopted || last.Cause != "period"):
				t.Errorf("record = %+v, want that of the lost run", last)
			case tt.adopted == "" && (last.ID == lost.ID || last.Cause != string(causeInterrupted)):
				t.Errorf("record = %+v, want that of another run", last)
			}
			if int(looks.Load()) < tt.unseen+1 && !tt.stranger {
				t.Errorf("it is settled after %d looks", looks.Load())
			}
			if reaped := slices.Contains(exec.reaped, lost.ID); reaped == tt.stranger {
				t.Errorf("processes of it were looked for: %t", reaped)
			}
		})
	}
}

// If a backup restores a status from before the end of a run, the backup also has the objects as they were then. So the
// run is made again.
func TestLost_WhatARestoredStatusHadDoesNotCount(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}, RunnerRoot: t.TempDir()}
	exec := &fakeExecutor{
		do: func(_ context.Context, req runner.Request) (runner.Result, error) {
			ticket := filepath.Join(req.Dir, runstore.TicketFile)
			return succeeded(), errors.Join(os.MkdirAll(req.Dir, 0o700), os.WriteFile(ticket, req.Files[runstore.TicketFile], 0o600))
		},
		recover: func(string, string) (runner.Result, error) { return succeeded(), nil },
	}
	o := start(t, cfg, exec, opts)
	is := awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "True")
	o.stop()
	run, _ := lastRun(is.Object["status"].(map[string]any))
	began := status.Active{ID: run.ID, Cause: run.Cause, Generation: run.Generation, Started: run.Started}
	is.Object["status"] = status.Begin(map[string]any{}, began, false, run.Started)
	must.Do(t, c.Status().Update(t.Context(), is))
	start(t, cfg, exec, opts)
	eventually(t, "another run", func() bool {
		last, _ := lastRun(get(t, c, is).Object["status"].(map[string]any))
		return last.Result == status.Succeeded && last.ID != run.ID
	})
	must.Be(t, "runs", 2, exec.count())
}

// If the API server has refused the end of a run for good, that end still counts for the next process: it does not run
// again.
func TestLost_WhatNoStatusHadCounts(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}, RunnerRoot: t.TempDir()}
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		return succeeded(), os.MkdirAll(req.Dir, 0o700)
	}}
	faulty := refusing(cfg, http.StatusBadRequest, func(req *http.Request) bool { return exec.count() > 0 && strings.HasSuffix(req.URL.Path, "/status") })
	o := start(t, faulty, exec, opts)
	is := create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the refusal is logged", func() bool { return strings.Contains(o.log(), "Status is refused") })
	o.stop()
	start(t, cfg, exec, opts)
	awaitCondition(t, c, is, status.Ready, "True")
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// Runs that are lost again and again may be the reason why the operator is killed. They are put off, so that other
// objects get their turn. Nothing else about the object changes.
func TestLost_AgainAndAgainIsPutOff(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before     int64 // how many were lost in a row before
		generation int64 // generation of those runs; 0 for the object's
		requested  string
		deleted    bool
		losses     int64 // how many the status records
		putOff     bool
	}{
		"the first":                 {losses: 1},
		"the second":                {before: 1, losses: 2},
		"the third":                 {before: 2, losses: 3, putOff: true},
		"the third, of a finalizer": {before: 2, deleted: true, losses: 3, putOff: true},
		"the third, asked for":      {before: 2, requested: "now", losses: 3, putOff: true},
		"the third, of two specs":   {before: 2, generation: 7, losses: 3, putOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			opts := Options{RunnerRoot: t.TempDir(), RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
				w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
			})}}
			it := object(gvk, ns, "one", map[string]any{"size": int64(1)})
			it.SetFinalizers([]string{"example.com/finalizer"})
			if tt.requested != "" {
				it.SetAnnotations(map[string]string{ownPrefix + "reconcile-at": tt.requested})
			}
			obj := create(t, c, it)
			why := causeCreated
			if tt.deleted {
				must.Do(t, c.Delete(t.Context(), obj))
				why = causeDeleted
			}
			obj = get(t, c, obj)
			lost := status.Active{ID: newUID(), Cause: string(why), Generation: obj.GetGeneration(), Started: time.Now()}
			st := map[string]any{}
			if tt.before > 0 {
				st = status.Conclude(st, status.Run{
					ID: newUID(), Cause: lost.Cause, Generation: cmp.Or(tt.generation, lost.Generation), Started: time.Now(), Finished: time.Now(),
					Result: status.Interrupted, Reason: status.ReasonLost, Losses: tt.before,
				}, 0, time.Now())
			}
			obj.Object["status"] = status.Begin(st, lost, tt.deleted, time.Now())
			must.Do(t, c.Status().Update(t.Context(), obj))

			exec := &fakeExecutor{}
			o := start(t, cfg, exec, opts)
			if !tt.putOff {
				eventually(t, "it is run again", func() bool { return exec.ranFor("one") == 1 })
				eventually(t, "the loss is logged", func() bool { return strings.Contains(o.log(), fmt.Sprintf(`"losses"=%d`, tt.losses)) })
				return
			}
			var last status.Run
			eventually(t, "the loss is recorded", func() bool {
				last, _ = lastRun(get(t, c, obj).Object["status"].(map[string]any))
				return last.ID == lost.ID
			})
			other := create(t, c, object(gvk, ns, "other", nil))
			awaitCondition(t, c, other, status.Ready, "True")
			settle()
			o.stop()
			start(t, cfg, exec, opts) // a new process, which knows only what the status says
			settle()
			if n := exec.ranFor("one"); n != 0 {
				t.Fatalf("%d runs of it, want none", n)
			}
			is := get(t, c, obj)
			when, _, _ := unstructured.NestedString(is.Object, "status", "ansible", "nextRetry")
			next, err := time.Parse(time.RFC3339, when)
			said := fmt.Sprint(condition(is, status.Reconciling)["message"])
			if last.Result != status.Interrupted || last.Reason != status.ReasonLost || last.Losses != tt.losses || last.Attempts != 0 ||
				err != nil || time.Until(next) < 59*time.Minute || time.Until(next) > 67*time.Minute ||
				condition(is, status.Failure)["status"] == "True" || !strings.Contains(said, "was lost, like 2 runs before it") {
				t.Errorf("last run %+v, next %q, condition %q", last, when, said)
			}
			if tt.deleted {
				return
			}
			update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
			is = awaitCondition(t, c, obj, status.Ready, "True")
			if last, _ = lastRun(is.Object["status"].(map[string]any)); last.Cause != string(causeChanged) || last.Losses != 0 || exec.ranFor("one") != 1 {
				t.Errorf("after a change of the spec: last run %+v", last)
			}
		})
	}
}

// A recovered result counts for the object as it was then. Later changes start a run.
func TestLost_WhatHasChangedSinceIsRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}, RunnerRoot: t.TempDir()}
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	lost := status.Active{ID: newUID(), Cause: string(causeCreated), Generation: 1, Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	leave(t, opts.RunnerRoot, obj, lost, "earlier", nil, "")
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })

	exec := &fakeExecutor{recover: func(string, string) (runner.Result, error) { return succeeded(), nil }}
	start(t, cfg, exec, opts)
	eventually(t, "the new generation is recorded", func() bool {
		last, _ := lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return last.Generation == 2 && last.Result == status.Succeeded
	})
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1: the found one is not repeated", n)
	}
}

// A finalizer run of an earlier process is judged by what its command requires, and by the hook After, whose call the
// earlier process may not have survived.
func TestLost_FinalizerRunIsJudgedLikeItsOwn(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{RunnerRoot: t.TempDir(), RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Command: &watches.Command{Path: "/bin/true", Dir: "/", RequireResult: true}}}
		w.SecretVars = []string{"account"}
		w.Hooks.After = func(context.Context, *unstructured.Unstructured, watches.HookEnd) error {
			return errors.New("not billed to hunter22")
		}
	})}}
	it := object(gvk, ns, "one", map[string]any{"account": "hunter22"})
	it.SetFinalizers([]string{"example.com/finalizer"})
	obj := create(t, c, it)
	must.Do(t, c.Delete(t.Context(), obj))
	obj = get(t, c, obj)
	lost := status.Active{ID: newUID(), Cause: string(causeDeleted), Generation: obj.GetGeneration(), Started: time.Now()}
	obj.Object["status"] = status.Begin(nil, lost, true, time.Now())
	must.Do(t, c.Status().Update(t.Context(), obj))
	leave(t, opts.RunnerRoot, obj, lost, "", func(t *runstore.Ticket) { t.Deleting = true }, "")

	exec := &fakeExecutor{
		recover: func(string, string) (runner.Result, error) { return succeeded(), nil },
		do: func(ctx context.Context, _ runner.Request) (runner.Result, error) { // the retry
			<-ctx.Done()
			return runner.Result{}, context.Cause(ctx)
		},
	}
	o := start(t, cfg, exec, opts)
	eventually(t, "the lost run is settled", func() bool {
		last, _ := lastRun(get(t, c, obj).Object["status"].(map[string]any))
		return last.ID == lost.ID && last.Result == status.Failed && last.Reason == status.ReasonHookFailed
	})
	if !strings.Contains(o.log(), "not billed to "+redact.Replacement) {
		t.Error("the secret value is not masked")
	}
	exec.mu.Lock()
	defer exec.mu.Unlock()
	must.Be(t, "a result is required", true, exec.required)
}

// leave creates the private data directory that an earlier process has left.
func leave(t *testing.T, root string, obj *unstructured.Unstructured, run status.Active, fingerprint string, change func(*runstore.Ticket), instead string) {
	t.Helper()
	store := storeOf(t, root)
	dir := filepath.Join(store.Object(string(obj.GetUID())), run.ID)
	must.Do(t, os.MkdirAll(dir, 0o700))
	gvk := obj.GroupVersionKind()
	tk := runstore.Ticket{
		Run: run.ID, Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: string(obj.GetUID()), Generation: run.Generation, Fingerprint: fingerprint,
	}
	if change != nil {
		change(&tk)
	}
	data := must.Get(json.Marshal(tk))(t)
	if instead != "" {
		data = []byte(instead)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, runstore.TicketFile), data, 0o600))
}

// storeOf returns a store that is used only for its paths.
func storeOf(t *testing.T, root string) *runstore.Store {
	t.Helper()
	store := must.Get(runstore.New(runstore.Options{Root: root, MaxBytes: -1}, logr.Discard()))(t)
	return store
}

func TestSweep_RemovesWhatObjectsLeftThatWereDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{RunnerRoot: t.TempDir(), Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Selector.MatchLabels = map[string]string{"tier": "gold"}
	})}}
	store := storeOf(t, opts.RunnerRoot)
	gone, unmatched := object(gvk, ns, "gone", nil), create(t, c, object(gvk, ns, "unmatched", nil))
	gone.SetUID("11111111-2222-3333-4444-555555555555")
	other := object(testenv.CRD(t, cfg), ns, "other", nil)
	other.SetUID("66666666-2222-3333-4444-555555555555")
	for _, obj := range []*unstructured.Unstructured{gone, unmatched, other} {
		leave(t, opts.RunnerRoot, obj, status.Active{ID: newUID()}, "", nil, "")
	}
	stranger := filepath.Join(opts.RunnerRoot, ".runs", "stranger")
	must.Do(t, os.MkdirAll(filepath.Join(stranger, "something"), 0o700))

	// The first attempt to find out which objects are gone fails.
	var tried atomic.Bool
	faulty := refusing(cfg, http.StatusInternalServerError, func(req *http.Request) bool {
		return strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList") && req.URL.Query().Get("watch") == "" && !tried.Swap(true)
	})
	o := start(t, faulty, &fakeExecutor{}, opts)
	eventually(t, "the failure is logged", func() bool { return strings.Contains(o.log(), "cannot be removed yet") })
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	eventually(t, "the directories of the gone object are removed", func() bool { return !exists(store.Object(string(gone.GetUID()))) })
	for _, path := range []string{store.Object(string(unmatched.GetUID())), store.Object(string(other.GetUID())), stranger} {
		if !exists(path) {
			t.Errorf("%s is removed", path)
		}
	}
}
