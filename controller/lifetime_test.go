package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// cutShort returns what the runner returns for a run whose context has ended; task was in progress then.
func cutShort(ctx context.Context, req runner.Request, task jobevent.Task) (runner.Result, error) {
	return runner.Result{ID: req.ID, ExitCode: -1, Finished: time.Now(), Summary: jobevent.Summary{Task: task}},
		fmt.Errorf("run %s cut short: %w", req.ID, context.Cause(ctx))
}

// hanging returns an executor whose runs do nothing until they are stopped, except finalizer runs, and a channel on which
// they report that they have begun.
func hanging() (*fakeExecutor, chan runner.Request) {
	began := make(chan runner.Request, 16)
	task := jobevent.Task{Name: "Wait for nothing", Role: "r", Path: "roles/r/tasks/main.yml:7"}
	return &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		began <- req
		if strings.HasSuffix(req.Content.Role, "/finalizer") {
			return succeeded(), nil
		}
		<-ctx.Done()
		return cutShort(ctx, req, task)
	}}, began
}

// until returns an executor whose runs succeed when something can be received from end.
func until(end <-chan struct{}) *fakeExecutor {
	return &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		select {
		case <-end:
			return succeeded(), nil
		case <-ctx.Done():
			return cutShort(ctx, req, jobevent.Task{})
		}
	}}
}

func TestLifetime_LimitsNameTheTask(t *testing.T) {
	t.Parallel()
	// A shorter limit could be over before a busy machine has begun the task.
	for name, tt := range map[string]struct {
		edit       func(*watches.Watch)
		annotation string
		want       string
	}{
		"timeout of the watch":        {edit: func(w *watches.Watch) { w.Timeout = 5 * time.Second }, want: "it has taken 5s, its timeout"},
		"idleTimeout of the watch":    {edit: func(w *watches.Watch) { w.IdleTimeout = 5 * time.Second }, want: "no sign of life for 5s, its idleTimeout"},
		"timeout of the annotation":   {annotation: "timeout", want: "it has taken 5s, its timeout"},
		"idle timeout of annotations": {annotation: "idle-timeout", want: "no sign of life for 5s, its idleTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			exec, _ := hanging()
			w := watchOf(gvk)
			if tt.edit != nil {
				tt.edit(&w)
			}
			start(t, cfg, exec, Options{Watches: []watches.Watch{w}, RetryMin: time.Hour, RetryMax: time.Hour})
			obj := object(gvk, ns, "one", map[string]any{})
			if tt.annotation != "" {
				obj.SetAnnotations(map[string]string{ownPrefix + tt.annotation: "5"})
			}
			create(t, c, obj)
			is := awaitCondition(t, c, obj, status.Ready, "False")
			cond := condition(is, status.Ready)
			message, _ := cond["message"].(string)
			if cond["reason"] != status.ReasonTimedOut || !strings.Contains(message, tt.want) ||
				!strings.Contains(message, `"Wait for nothing", role "r", at roles/r/tasks/main.yml:7`) {
				t.Errorf("condition = %v", cond)
			}
			last, _ := lastRun(is.Object["status"].(map[string]any))
			if last.Result != status.Failed || last.Attempts != 1 {
				t.Errorf("record = %+v", last)
			}
		})
	}
}

// A run that gives signs of life is not idle, however long it takes.
func TestLifetime_EventsAreSignsOfLife(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	// All pauses together are longer than the limit. Each is much shorter.
	const limit, pause, events = 20 * time.Second, 11 * time.Second, 2
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		for i := range events {
			req.OnEvent(taskStart(i))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return cutShort(ctx, req, jobevent.Task{})
			}
		}
		return succeeded(), nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.IdleTimeout = limit })}})
	awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "True")
}

// A run whose reports wait for the API server is not idle.
func TestLifetime_CallsAreSignsOfLife(t *testing.T) {
	t.Parallel()
	r := &reconciler{set: &Set{runs: t.Context()}, opts: &Options{}}
	_, life := r.lifetime(t.Context(), settings{idleTimeout: time.Hour})
	defer life.end()
	req := runner.Request{Call: func(context.Context, string, []byte) error {
		must.Be(t, "the idle timeout goes on during the call", false, life.idle.Stop())
		return nil
	}}
	r.follow(&scope{life: life}, &req)
	must.Do(t, req.Call(t.Context(), "status", nil))
	must.Be(t, "the idle timeout begins again after the call", true, life.idle.Stop())
}

func TestLifetime_DeletionStopsTheRunAndTheFinalizerRunsAtOnce(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec, began := hanging()
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
	})}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	<-began
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	if second := <-began; !strings.HasSuffix(second.Content.Role, "/finalizer") {
		t.Errorf("after the deletion, %s runs", second.Content.Role)
	}
	eventually(t, "the object is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
	})
	quiet(t, exec, 2, "one run and its finalizer")
}

func TestLifetime_AGoneObjectStopsItsRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec, began := hanging()
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	<-began
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	eventually(t, "the run has ended", func() bool { return strings.Contains(o.log(), ErrObjectGone.Error()) })
	quiet(t, exec, 1, "there is nothing to run")

	again := create(t, c, object(gvk, ns, "one", map[string]any{}))
	if req := <-began; !strings.Contains(req.Dir, string(again.GetUID())) {
		t.Errorf("the new object runs in %s", req.Dir)
	}
}

// The watch reports the deletion after the run was recorded and before it has begun.
func TestLifetime_AnObjectThatGoesBeforeItsRunBegins(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec, _ := hanging()
	obj := object(gvk, ns, "one", map[string]any{})
	goes := obj.DeepCopy()
	var once sync.Once
	racing := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if writesStatus(req) {
			once.Do(func() {
				must.Do(t, c.Delete(t.Context(), goes))
				settle()
			})
		}
		return resp, err
	})
	o := start(t, racing, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, obj)
	eventually(t, "the run has ended", func() bool { return strings.Contains(o.log(), ErrObjectGone.Error()) })
}

// A run is not stopped if its own role changes the spec of its object.
func TestLifetime_OnChangeOfItsOwn(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	obj := object(gvk, ns, "one", map[string]any{})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		own := clientOf(t, must.Get(clientcmd.RESTConfigFromKubeConfig(req.Files[kubeconfigFile]))(t))
		update(t, own, obj, func(o map[string]any) { o["spec"] = map[string]any{"size": int64(3)} })
		settle()
		if ctx.Err() != nil {
			return cutShort(ctx, req, jobevent.Task{})
		}
		return succeeded(), nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.OnChange = watches.OnChangeRestart })}})
	create(t, c, obj)
	eventually(t, "its generation is run", func() bool {
		st, _ := get(t, c, obj).Object["status"].(map[string]any)
		last, ok := lastRun(st)
		return ok && last.Generation == 2 && last.Result == status.Succeeded
	})
	quiet(t, exec, 2, "a run, and one for what it has changed")
}

// Which generations a run itself has caused is known only when its writes have ended.
func TestProgress_OnChange(t *testing.T) {
	for name, tt := range map[string]struct {
		events func(p *progress, seen func(generation int64))
		want   bool
	}{
		"another client":          {func(_ *progress, seen func(int64)) { seen(2) }, true},
		"its own":                 {func(p *progress, seen func(int64)) { done := p.Changing(); seen(2); p.Stored(2); done() }, false},
		"its own, seen later":     {func(p *progress, seen func(int64)) { done := p.Changing(); p.Stored(2); done(); seen(2) }, false},
		"its own, which fails":    {func(p *progress, seen func(int64)) { done := p.Changing(); seen(2); done() }, true},
		"its own after another's": {func(p *progress, seen func(int64)) { done := p.Changing(); seen(2); p.Stored(3); done() }, true},
		"another's after its own": {func(p *progress, seen func(int64)) { done := p.Changing(); p.Stored(2); done(); seen(3) }, true},
		"two of its own, answered in the other order": {func(p *progress, seen func(int64)) {
			one, two := p.Changing(), p.Changing()
			p.Stored(3)
			one()
			seen(3)
			p.Stored(2)
			two()
		}, false},
		"something else": {func(p *progress, seen func(int64)) { seen(1); p.Changing()() }, false},
	} {
		p, stopped := &progress{active: status.Active{Generation: 1}, left: 1}, false
		tt.events(p, func(generation int64) { p.onChange(generation, func() { stopped = true }) })
		if stopped != tt.want {
			t.Errorf("%s: stopped is %t", name, stopped)
		}
	}
}

func TestLifetime_OnChange(t *testing.T) {
	t.Parallel()
	for _, answer := range []watches.OnChange{watches.OnChangeRestart, watches.OnChangeWait} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			exec, began := hanging()
			start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.OnChange = answer })}})
			obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
			<-began
			update(t, c, obj, func(o map[string]any) { o["spec"] = map[string]any{"size": int64(2)} })
			if answer == watches.OnChangeWait {
				quiet(t, exec, 1, "the run goes on")
				return
			}
			if second := <-began; !strings.Contains(string(second.ExtraVars), `"size": 2`) {
				t.Errorf("extra vars of the second run: %s", second.ExtraVars)
			}
			quiet(t, exec, 2, "one run for the change")
		})
	}
}

// A run is not stopped in a section that the role protects, whatever happens to its object. It cannot begin a section
// once it is being stopped.
func TestLifetime_AProtectedSectionIsNotCutShort(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	began, stopped, late := make(chan string), make(chan bool, 1), make(chan error, 1)
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if strings.HasSuffix(req.Content.Role, "/finalizer") {
			return succeeded(), nil
		}
		file := req.Env[protectEnv]
		if err := errors.Join(os.MkdirAll(req.Dir, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Error(err)
		}
		began <- file
		<-ctx.Done()
		_, err := os.Lstat(file)
		stopped <- err == nil
		late <- os.WriteFile(file, nil, 0o600)
		return cutShort(ctx, req, jobevent.Task{})
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
	})}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	file := <-began
	must.Do(t, c.Delete(t.Context(), obj.DeepCopy()))
	eventually(t, "the section is seen", func() bool { return strings.Contains(o.log(), "will be stopped after its protected section") })
	settle()
	select {
	case <-stopped:
		t.Fatal("the run was stopped in its protected section")
	default:
	}
	must.Do(t, os.Remove(file))
	if <-stopped == false {
		t.Error("nothing bars the way of another section")
	}
	if err := <-late; err == nil {
		t.Error("a section began while the run was being stopped")
	}
	eventually(t, "the object is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopy()))
	})
	if n := strings.Count(o.log(), "protected section"); n != 1 {
		t.Errorf("the log says %d times that a section holds up the end", n)
	}
}

func TestLifetime_TheTimeoutEndsAProtectedSection(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if err := errors.Join(os.MkdirAll(req.Dir, 0o700), os.WriteFile(req.Env[protectEnv], nil, 0o600)); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return cutShort(ctx, req, jobevent.Task{})
	}}
	start(t, cfg, exec, Options{RetryMin: time.Hour, RetryMax: time.Hour, Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Timeout = time.Second
	})}})
	is := awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "False")
	if reason := condition(is, status.Ready)["reason"]; reason != status.ReasonTimedOut {
		t.Errorf("reason = %v", reason)
	}
}
