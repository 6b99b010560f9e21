package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

func TestEventOf(t *testing.T) {
	t.Parallel()
	run := func(result status.Result, edits ...func(*status.Run)) *status.Run {
		r := &status.Run{ID: "12345678-more", Result: result, Reason: "TaskFailed", Message: "m", Fingerprint: "f", Cause: string(causeRetry), Attempts: 2}
		for _, edit := range edits {
			edit(r)
		}
		return r
	}
	reason := func(reason string) func(*status.Run) { return func(r *status.Run) { r.Reason = reason } }
	inputs := func(r *status.Run) { r.Fingerprint = "other" }
	deleted := func(r *status.Run) { r.Cause = string(causeDeleted) }
	permanent := func(r *status.Run) { r.Permanent = true }
	warning := func(reason, action string) reported {
		return reported{corev1.EventTypeWarning, reason, action, "m"}
	}
	for name, tt := range map[string]struct {
		last, run *status.Run
		givenUp   string
		want      reported
	}{
		"first run succeeds":               {nil, run(status.Succeeded), "", reported{}},
		"another success":                  {run(status.Succeeded), run(status.Succeeded), "", reported{}},
		"first run fails":                  {nil, run(status.Failed), "", warning("TaskFailed", actionReconcile)},
		"first failure":                    {run(status.Succeeded), run(status.Failed), "", warning("TaskFailed", actionReconcile)},
		"another failure":                  {run(status.Failed), run(status.Failed), "", reported{}},
		"another failure, of other inputs": {run(status.Failed), run(status.Failed, inputs), "", warning("TaskFailed", actionReconcile)},
		"a timeout":                        {run(status.Failed), run(status.Failed, reason(status.ReasonTimedOut)), "", warning("TimedOut", actionReconcile)},
		"cancelled":                        {run(status.Succeeded), run(status.Failed, reason(status.ReasonCancelled)), "", warning("Cancelled", actionReconcile)},
		"cancelled again":                  {run(status.Failed, reason(status.ReasonCancelled)), run(status.Failed, reason(status.ReasonCancelled)), "", reported{}},
		"no more retries":                  {run(status.Failed), run(status.Failed, permanent), "", warning("TaskFailed", actionReconcile)},
		"the last retry":                   {run(status.Failed), run(status.Failed), status.ReasonExhausted, warning("RetriesExhausted", actionReconcile)},
		"let go":                           {run(status.Failed, deleted), run(status.Failed, deleted), reasonOrphaned, warning("Orphaned", actionFinalize)},
		"interrupted":                      {run(status.Failed), run(status.Interrupted), "", reported{}},
		"finalizer fails":                  {run(status.Failed), run(status.Failed, deleted), "", warning("TaskFailed", actionFinalize)},
		"finalizer fails again":            {run(status.Failed, deleted), run(status.Failed, deleted), "", reported{}},
		"finalizer of what has failed":     {run(status.Failed), run(status.Succeeded, deleted), "", reported{}},
		"recovery": {run(status.Failed), run(status.Succeeded), "",
			reported{corev1.EventTypeNormal, reasonRecovered, actionReconcile, "Run 12345678 succeeded after 2 runs failed with TaskFailed"}},
	} {
		got, worth := eventOf(tt.last, *tt.run, tt.givenUp)
		if worth != (tt.want != reported{}) || worth && got != tt.want {
			t.Errorf("%s: %+v, %t; want %+v", name, got, worth, tt.want)
		}
	}
}

func TestDriftEvent(t *testing.T) {
	t.Parallel()
	check := func(result status.Result, drift string) *status.Run {
		return &status.Run{Mode: status.ModeCheck, Result: result, Reason: "TaskFailed", Message: "m", Drifted: drift != "", Drift: drift}
	}
	const drift = "1 task would change something\ntask \"a\"\n\nmain.yml:1:\n-a\n+b"
	drifted := reported{corev1.EventTypeWarning, status.Drifted, actionCheck, "1 task would change something\ntask \"a\""}
	for name, tt := range map[string]struct {
		before, run *status.Run
		want        reported
	}{
		"nothing":           {nil, check(status.Succeeded, ""), reported{}},
		"drift":             {nil, check(status.Succeeded, drift), drifted},
		"drift again":       {check(status.Succeeded, "other"), check(status.Succeeded, drift), reported{}},
		"drift after a run": {&status.Run{Result: status.Succeeded}, check(status.Succeeded, drift), drifted},
		"failure":           {check(status.Succeeded, drift), check(status.Failed, ""), reported{corev1.EventTypeWarning, "TaskFailed", actionCheck, "m"}},
		"another failure":   {check(status.Failed, ""), check(status.Failed, ""), reported{}},
	} {
		got, worth := driftEvent(tt.before, *tt.run)
		if worth != (tt.want != reported{}) || worth && got != tt.want {
			t.Errorf("%s: %+v, %t; want %+v", name, got, worth, tt.want)
		}
	}
}

// However often a role fails, one Event reports it, and one Event reports that it succeeds again.
func TestReport_OncePerStreak(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var n atomic.Int64
	exec := &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		if n.Add(1) <= 3 {
			return failed("no disk"), nil
		}
		return succeeded(), nil
	}}
	period := minPeriod
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.ReconcilePeriod = &period })}})
	obj := create(t, c, object(gvk, ns, "it", nil))
	eventually(t, "two periods after the recovery", func() bool { return n.Load() >= 6 })
	for _, e := range awaitEvents(t, c, ns, reasonRecovered, "TaskFailed") {
		about := e.Regarding
		if e.ReportingController != reportingController || e.Series != nil || about.UID != obj.GetUID() || about.Kind != gvk.Kind || about.Name != "it" {
			t.Errorf("Event %+v", e)
		}
		switch e.Type {
		case corev1.EventTypeWarning:
			if e.Reason != "TaskFailed" || !strings.Contains(e.Note, "no disk") || !strings.Contains(e.Note, `task "break"`) ||
				!strings.Contains(e.Note, "roles/r/tasks/main.yml:3") {
				t.Errorf("Event of the failure: %s %s", e.Reason, e.Note)
			}
		default:
			if e.Reason != reasonRecovered || !strings.HasSuffix(e.Note, "succeeded after 3 runs failed with TaskFailed") {
				t.Errorf("Event of the success: %s %s", e.Reason, e.Note)
			}
		}
	}
}

// An operator that ends waits for its runs, and for the Event of one that fails, before it gives up its Lease.
func TestReport_OfARunThatFailsWhileTheOperatorEnds(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var o *operator
	leading := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasPrefix(req.URL.Path, "/apis/events.k8s.io/") {
			o.set.active.Wait()
			time.Sleep(100 * time.Millisecond)                                // for the manager to do what it should not do
			if strings.Contains(o.log(), "Stopping and waiting for caches") { // what needs leadership has ended
				return refusal(req, http.StatusServiceUnavailable), nil
			}
		}
		return next.RoundTrip(req)
	})
	o = start(t, leading, &fakeExecutor{do: func(context.Context, runner.Request) (runner.Result, error) {
		close(begun)
		<-end
		return failed("no disk"), nil
	}}, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, object(gvk, ns, "it", nil))
	<-begun
	o.cancel()
	eventually(t, "the operator ends", func() bool { return strings.Contains(o.log(), "Stopping and waiting for leader election runnables") })
	close(end)
	o.stop()
	var list eventsv1.EventList
	must.Do(t, c.List(t.Context(), &list, client.InNamespace(ns)))
	if len(list.Items) != 1 || list.Items[0].Reason != "TaskFailed" {
		t.Errorf("Events: %+v", list.Items)
	}
}

// awaitEvents waits for one Event in a namespace for each of these reasons, which are sorted. It fails the test if there
// are others.
func awaitEvents(t *testing.T, c client.Client, namespace string, reasons ...string) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	var told []string
	eventually(t, fmt.Sprintf("Events of the reasons %v", reasons), func() bool {
		must.Do(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
		told = nil
		for _, e := range list.Items {
			told = append(told, e.Reason)
		}
		return len(told) >= len(reasons)
	})
	slices.Sort(told)
	must.Be(t, "reasons of Events", reasons, told)
	return list.Items
}

// refusingSink refuses Events.
type refusingSink struct {
	events.EventSink
	err error
}

func (r refusingSink) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	return nil, r.err
}

// A missing permission is logged once, and not by the library for each Event.
func TestReport_WithoutPermission(t *testing.T) {
	t.Parallel()
	var said []string
	log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	denied := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("no"))
	sink := &eventSink{EventSink: refusingSink{err: denied}, log: log}
	e := &eventsv1.Event{}
	for range 3 {
		if made, err := sink.Create(t.Context(), e); made != e || err != nil {
			t.Errorf("%v, %v", made, err)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "grant the operator create and patch on events") {
		t.Errorf("the log says %q", said)
	}
	sink.EventSink = refusingSink{err: apierrors.NewTimeoutError("late", 1)}
	if _, err := sink.Create(t.Context(), e); err == nil {
		t.Error("an error that passes is kept from the library")
	}
}
