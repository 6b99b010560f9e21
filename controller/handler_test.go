package controller

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

func hooked(hooks watches.Hooks, timeout time.Duration) (*reconciler, *scope) {
	gvk := schema.GroupVersionKind{Group: "demo.example.com", Version: "v1", Kind: "Cup"}
	r := &reconciler{
		watch: watches.Watch{GVK: gvk, Hooks: hooks}, gvk: gvk, opts: &Options{GracefulShutdown: 30 * time.Second}, log: logr.Discard(),
		now: time.Now, set: &Set{runs: context.Background()},
	}
	s := &scope{
		object: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}, memory: &memory{},
		mask: redact.New("tea", "n", "Cup", gvk.Group, "i", "u"), settings: settings{timeout: timeout}, life: &lifetime{},
	}
	return r, s
}

// A hook prevents a run by a reason that another object must change, by a panic, or by ending its goroutine. It cannot
// change the object.
func TestHooks_Before(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before    func(object map[string]any) error
		reason    string
		permanent bool
		message   string
	}{
		"ok": {func(object map[string]any) error { object["spec"] = nil; return nil }, "", false, ""},
		"failed": {func(map[string]any) error { return errors.New("no quota") }, status.ReasonHookFailed, false,
			"the hook Before of the watch of demo.example.com/v1, Kind=Cup: no quota"},
		"refused": {func(map[string]any) error { return ErrRefused }, string(runner.InputRefused), true,
			"the hook Before of the watch of demo.example.com/v1, Kind=Cup: refused"},
		"panic": {func(map[string]any) error { panic("no cups") }, status.ReasonHookFailed, false,
			"the hook Before of the watch of demo.example.com/v1, Kind=Cup: it has panicked: no cups"},
		"Goexit": {func(map[string]any) error { runtime.Goexit(); return nil }, status.ReasonHookFailed, false,
			"the hook Before of the watch of demo.example.com/v1, Kind=Cup: it has ended its goroutine (runtime.Goexit)"},
	} {
		r, s := hooked(watches.Hooks{Before: func(_ context.Context, object *unstructured.Unstructured) error { return tt.before(object.Object) }}, 0)
		r.log = funcr.New(func(_, args string) {
			if strings.Contains(args, "no cups") {
				t.Errorf("the log has what is not masked: %s", args)
			}
		}, funcr.Options{})
		_, err := r.before(t.Context(), s)
		if s.object.Object["spec"] == nil {
			t.Errorf("%s: the object is changed", name)
		}
		if s.err = err; err == nil {
			if tt.reason != "" || !s.hooked {
				t.Errorf("%s: the run starts", name)
			}
			continue
		}
		var run status.Run
		r.notRun(s, &run)
		if run.Result != status.Failed || run.Reason != tt.reason || run.Permanent != tt.permanent || run.Message != tt.message || s.hooked {
			t.Errorf("%s: %+v", name, run)
		}
	}
}

// A hook has the time limit of the run. If it exceeds that, the run ends with the reason of a timeout.
func TestHooks_HaveTheTimeOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, _ *unstructured.Unstructured) error { <-ctx.Done(); return ctx.Err() }
		r, s := hooked(watches.Hooks{Before: wait}, time.Minute)
		ctx, life := r.lifetime(t.Context(), s.settings)
		defer life.end()
		_, s.err = r.before(ctx, s)
		var run status.Run
		r.notRun(s, &run)
		if run.Reason != status.ReasonTimedOut || !strings.Contains(run.Message, "it has taken 1m0s, its timeout") || !strings.Contains(run.Message, "the hook Before") {
			t.Errorf("%+v", run)
		}

		r, s = hooked(watches.Hooks{After: func(ctx context.Context, o *unstructured.Unstructured, _ watches.HookEnd) error { return wait(ctx, o) }}, time.Minute)
		s.hooked, run = true, status.Run{Result: status.Succeeded}
		r.callAfterHook(t.Context(), s, &run)
		if run.Result != status.Failed || run.Reason != status.ReasonHookFailed || !strings.Contains(run.Message, "it has taken 1m0s, its timeout") {
			t.Errorf("%+v", run)
		}
	})
}

// Hooks give no sign of life, so the idle timeout does not end them. It counts again when the run begins.
func TestHooks_HaveNoIdleTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work := func(ctx context.Context, _ *unstructured.Unstructured) error {
			time.Sleep(2 * time.Minute)
			return ctx.Err()
		}
		r, s := hooked(watches.Hooks{Before: work, After: func(ctx context.Context, o *unstructured.Unstructured, _ watches.HookEnd) error { return work(ctx, o) }}, time.Hour)
		s.settings.idleTimeout = time.Minute
		ctx, life := r.lifetime(t.Context(), s.settings)
		defer life.end()
		s.life = life
		if _, err := r.before(ctx, s); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if cause := context.Cause(ctx); !errors.Is(cause, ErrIdle) {
			t.Errorf("a run without a sign of life has ended: %v", cause)
		}
		run := status.Run{Result: status.Succeeded}
		if r.callAfterHook(t.Context(), s, &run); run.Result != status.Succeeded {
			t.Errorf("%+v", run)
		}
	})
}

// A check that found changes and whose hook failed has a record that can be read back.
func TestHooks_AfterACheck(t *testing.T) {
	t.Parallel()
	r, s := hooked(watches.Hooks{After: func(context.Context, *unstructured.Unstructured, watches.HookEnd) error { return errors.New("no tray") }}, 0)
	now := time.Now()
	s.hooked = true
	run := status.Run{
		ID: newUID(), Cause: string(causePeriod), Mode: status.ModeCheck, Started: now, Finished: now,
		Result: status.Succeeded, Reason: "Succeeded", Drifted: true, Drift: "1 task would change",
	}
	r.callAfterHook(t.Context(), s, &run)
	record := status.Read(status.Conclude(nil, run, 0, now))
	if run.Reason != status.ReasonHookFailed || len(record.Rejected) > 0 || record.Last == nil {
		t.Errorf("run = %+v, rejected: %v", run, record.Rejected)
	}
}

// Variables from a hook are copies, and masked if the watch names them.
func TestHooks_Vars(t *testing.T) {
	t.Parallel()
	kept := map[string]any{"size": 2, "list": []string{"a"}, "db": map[string]any{"password": "swordfish"}}
	r, s := hooked(watches.Hooks{Vars: func(context.Context, *unstructured.Unstructured) (map[string]any, error) { return kept, nil }}, 0)
	r.watch.SecretVars = []string{"db.password"}
	got, err := r.before(t.Context(), s)
	kept["size"] = 3
	want := map[string]any{"size": int64(2), "list": []any{"a"}, "db": map[string]any{"password": "swordfish"}}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v, %v", err, cmp.Diff(want, got))
	}
	must.Be(t, "masked", redact.Replacement, s.mask.Mask("swordfish"))
	kept["no"] = func() {}
	if _, err := r.before(t.Context(), s); err == nil || !strings.Contains(err.Error(), "the hook Vars of the watch of demo.example.com/v1, Kind=Cup: its variables are not valid JSON") {
		t.Errorf("a function as variable: %v", err)
	}
}

// The hook After learns how the run has ended. It can fail a run, or add to its failure. It is not called for a run that
// is repeated or never began.
func TestHooks_After(t *testing.T) {
	t.Parallel()
	var told []string
	fail := error(nil)
	r, s := hooked(watches.Hooks{After: func(_ context.Context, _ *unstructured.Unstructured, end watches.HookEnd) error {
		told = append(told, end.Result+" "+end.Reason)
		return fail
	}}, 0)
	after := func(result status.Result, reason string) status.Run {
		run := status.Run{Result: result, Reason: reason}
		r.callAfterHook(t.Context(), s, &run)
		return run
	}
	after(status.Failed, status.ReasonHookFailed) // Before has prevented the run
	s.hooked = true
	after(status.Interrupted, "Interrupted")
	fine := after(status.Succeeded, "Succeeded")
	fail = errors.New("the ticket is not closed")
	broken, worse := after(status.Succeeded, "Succeeded"), after(status.Failed, "TaskFailed")
	if want := []string{"succeeded Succeeded", "succeeded Succeeded", "failed TaskFailed"}; !cmp.Equal(want, lower(told)) {
		t.Errorf("told %q", told)
	}
	if fine.Result != status.Succeeded || broken.Result != status.Failed || broken.Reason != status.ReasonHookFailed || broken.Attempts != 1 ||
		worse.Reason != "TaskFailed" || len(worse.Warnings) != 1 || !strings.Contains(worse.Warnings[0], "the hook After of the watch of demo.example.com/v1, Kind=Cup: the ticket is not closed") {
		t.Errorf("%+v\n%+v\n%+v", fine, broken, worse)
	}
}

// A run is repeated, and has not failed, if the operator stops during the hook After.
func TestHooks_AfterIsCutShort(t *testing.T) {
	t.Parallel()
	runs, abort := context.WithCancelCause(t.Context())
	r, s := hooked(watches.Hooks{After: func(ctx context.Context, _ *unstructured.Unstructured, _ watches.HookEnd) error {
		abort(ErrShutdown)
		<-ctx.Done()
		return ctx.Err()
	}}, 0)
	r.set.runs, s.hooked = runs, true
	run := status.Run{Result: status.Succeeded, RequeueAfter: time.Hour, Drifted: true}
	r.callAfterHook(t.Context(), s, &run)
	if run.Result != status.Interrupted || run.Attempts != 0 || run.RequeueAfter != 0 || run.Drifted || !strings.Contains(run.Message, "the hook After") {
		t.Errorf("%+v", run)
	}
}

func lower(texts []string) (all []string) {
	for _, text := range texts {
		first, rest, _ := strings.Cut(text, " ")
		all = append(all, strings.ToLower(first)+" "+rest)
	}
	return all
}
