package controller

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// If the API server does not accept a result, it waits on disk. The next process writes that result once, and repeats no
// run for it.
func TestOutcome_WaitsOnDiskForTheNextProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do     func(context.Context) (runner.Result, error)
		result status.Result
		reason string
	}{
		"a success": {func(context.Context) (runner.Result, error) { return succeeded(), nil }, status.Succeeded, "Succeeded"},
		"a failure": {func(context.Context) (runner.Result, error) { return failed("broken"), nil }, status.Failed, "TaskFailed"},
		"a timeout": {func(ctx context.Context) (runner.Result, error) {
			<-ctx.Done()
			return runner.Result{Finished: time.Now()}, fmt.Errorf("cut short: %w", context.Cause(ctx))
		}, status.Failed, "TimedOut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			opts := Options{RunnerRoot: t.TempDir(), RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{
				watchOf(gvk, func(w *watches.Watch) { w.MaxRunnerArtifacts = 0 }),
			}}
			if tt.reason == status.ReasonTimedOut {
				opts.Watches[0].Timeout = 5 * time.Second // which also a busy machine needs only a part of, to begin the run
			}
			var ended atomic.Bool
			exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
				if err := os.MkdirAll(filepath.Join(req.Dir, "artifacts", req.ID), 0o700); err != nil {
					return runner.Result{}, err
				}
				defer ended.Store(true)
				return tt.do(ctx)
			}}
			down := refusing(cfg, http.StatusInternalServerError, func(*http.Request) bool { return ended.Load() })
			first := start(t, down, exec, opts)
			obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
			eventually(t, "the end that cannot be written", func() bool {
				return strings.Contains(first.log(), "Result of the run cannot be written yet")
			})
			first.stop()
			id := exec.runs[0].ID

			again := &fakeExecutor{}
			second := start(t, cfg, again, opts)
			var last status.Run
			eventually(t, "the end is in the status", func() bool {
				st, _ := get(t, c, obj).Object["status"].(map[string]any)
				last, _ = lastRun(st)
				return last.ID != "" && !hasActiveRun(st)
			})
			if last.ID != id || last.Result != tt.result || last.Reason != tt.reason || last.Cause != "created" {
				t.Errorf("record = %+v, want that of run %s", last, id)
			}
			quiet(t, again, 0, "a run whose end is known is not repeated")
			if n := second.count("PATCH status"); n != 1 {
				t.Errorf("%d writes of the status, want 1", n)
			}
			eventually(t, "the directory goes, now that the end is written", func() bool {
				_, err := os.Lstat(filepath.Join(opts.RunnerRoot, ".runs", string(obj.GetUID())))
				return os.IsNotExist(err)
			})
		})
	}
}

// If a disk is full before a run, old runs are removed. If there are none, the object says so, and what to do.
func TestReconcile_OnAFullDisk(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var full atomic.Bool
	var old atomic.Value
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if dir, _ := old.Load().(string); full.Load() && exists(dir) {
			return runner.Result{}, fmt.Errorf("%w: %w", runner.ErrNoSpace, unix.ENOSPC)
		}
		return succeeded(), os.MkdirAll(filepath.Join(req.Dir, "artifacts", req.ID), 0o700)
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, RetryMin: time.Hour, RetryMax: time.Hour})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"n": int64(0)}))
	awaitCondition(t, c, obj, status.Ready, "True")
	full.Store(true)
	old.Store(exec.runs[0].Dir)
	eventually(t, "the run is an old one", func() bool {
		_, busy := o.set.busy.Load(obj.GetUID())
		return !busy
	})
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"n": int64(1)} })
	awaitCondition(t, c, obj, status.Ready, "True")
	if exists(exec.runs[0].Dir) {
		t.Error("the old run has made no room")
	}

	old.Store(t.TempDir()) // no operator removes this file
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"n": int64(2)} })
	is := awaitCondition(t, c, obj, status.Ready, "False")
	message, _ := condition(is, status.Ready)["message"].(string)
	if reason := condition(is, status.Ready)["reason"]; reason != "NoSpace" ||
		!strings.Contains(message, "no space left") || !strings.Contains(message, "--artifacts-max-bytes") {
		t.Errorf("Ready = %v: %s", reason, message)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
