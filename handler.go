package rolewright

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/report"
)

// Handler makes the runs of a watch in place of a role: in this process, with the same
// queue, limits, retries, finalizer, status and history.
//
// Handle is called in a goroutine of its own, several times at once for different objects,
// never for the same one. nil is success, another error a failure that is retried; see
// [Refuse] and [NotYet]. A panic is a failure of the run. ctx ends at the timeout of the
// watch, when the run is cancelled, and when the operator stops; it has a logger. Nothing ends
// a handler that does not return then: its object and its place in the queue stay taken.
type Handler interface {
	Handle(ctx context.Context, run *Run) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, run *Run) error

// Handle implements [Handler].
func (f HandlerFunc) Handle(ctx context.Context, run *Run) error { return f(ctx, run) }

// Action is what a run is for.
type Action string

// The actions. For a check, all writes with the Config of the run are dry runs; what is
// elsewhere is for the handler to leave alone.
const (
	Reconcile Action = "reconcile"
	Finalize  Action = "finalize"
	Check     Action = "check"
)

// Run is one run of a handler. Its methods report what the run does, as the reports of a
// command do; they are safe for concurrent use, and have no effect once Handle has returned.
type Run struct {
	ID     string
	Action Action
	// Cause is why the run starts, and Trigger what has changed, if that is known.
	Cause, Trigger string
	// Attempt counts the runs of the same inputs that have failed in a row, from 1.
	Attempt int64
	// Object is the object as it was when the run began: a copy.
	Object *unstructured.Unstructured
	// PreviousSpec is the spec of the last successful run, with numbers as in Object, nil if it
	// is not known, and ChangedFields are where that of the object differs.
	PreviousSpec  map[string]any
	ChangedFields []string
	// Config is the run's way to the API server, as long as the run lasts: what is created with
	// it belongs to the object and starts a run of it when others change it. The manager's own
	// client does none of that.
	Config *rest.Config

	mu      sync.Mutex
	reports io.Writer // nil after the end
	changed bool
	problem error
}

// Progress begins a step: it is to status, log and history what a task is. total is 0 where
// there is nothing to count.
func (r *Run) Progress(step string, done, total int) {
	r.report(report.Progress, map[string]any{"step": clip(step), "done": done, "total": total})
}

// Condition sets a condition of the object by its Type, Status, Reason and Message. The
// operator's own, such as Ready, are refused.
func (r *Run) Condition(c metav1.Condition) {
	r.report(report.Condition, map[string]any{
		"conditionType": c.Type, "status": string(c.Status), "reason": c.Reason, "message": clip(c.Message),
	})
}

// Status merges fields into the object's status.
func (r *Run) Status(fields map[string]any) {
	r.report(report.Status, map[string]any{"patch": fields})
}

// Event records a Kubernetes Event of the object, of the type Normal or Warning.
func (r *Run) Event(eventType, reason, message string) {
	r.report(report.Event, map[string]any{"eventType": eventType, "reason": reason, "message": clip(message)})
}

// RequeueAfter says when the next run of the object starts.
func (r *Run) RequeueAfter(d time.Duration) {
	r.report(report.Requeue, map[string]any{"after": d.String()})
}

// Redact has a secret value masked, from here on, in all that the operator shows of the run.
func (r *Run) Redact(value string) { r.report(report.Redact, map[string]any{"value": value}) }

// Changed says that the run has changed something, or would, in a check.
func (r *Run) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = true
}

// NotYet returns an error which says that the object is not as wanted yet, and that nothing
// has failed: another run follows, after 10 seconds or as [Run.RequeueAfter] says.
func NotYet(err error) error { return notYet{err} }

type notYet struct{ error }

// Unwrap returns the error that was given.
func (n notYet) Unwrap() error { return n.error }

func (r *Run) report(of report.Type, fields map[string]any) {
	fields["type"] = of
	line, err := json.Marshal(fields)
	if len(line) > report.MaxLine {
		err = fmt.Errorf("it has more than %d bytes", report.MaxLine)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reports == nil {
		return
	}
	if err == nil {
		_, err = r.reports.Write(append(line, '\n'))
	}
	if err != nil && r.problem == nil {
		r.problem = fmt.Errorf("the report of type %s cannot be made: %w", of, err)
	}
}

// clip bounds a text, so that its line is not too long.
func clip(s string) string {
	const most = 4 << 10
	return text.Cut(strings.ToValidUTF8(s, ""), most)
}

// The exit codes of what handlers return.
const (
	exitOK      = 0
	exitFailed  = 1
	exitRefused = 78
)

// handler is what the controllers call for h.
func (s *service) handler(name string, h Handler) controller.Handler {
	return func(ctx context.Context, call controller.HandlerCall) int {
		run, err := newRun(ctx, call)
		if err == nil {
			log := s.log.WithValues("handler", name, "run", run.ID,
				"gvk", run.Object.GroupVersionKind().String(), "namespace", run.Object.GetNamespace(), "name", run.Object.GetName())
			err = handle(ctrllog.IntoContext(ctx, log), h, run)
		} else {
			run = &Run{reports: call.Reports}
		}
		return run.end(err)
	}
}

// handlerPatience is how long a handler may take to return after the end of its context
// before the log says so.
const handlerPatience = 10 * time.Second

// handle calls h, and says so in the log while it does not return in time.
func handle(ctx context.Context, h Handler, run *Run) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	returned := make(chan struct{})
	defer close(returned)
	watching.Go(func() {
		select {
		case <-returned:
			return
		case <-ctx.Done():
		}
		select {
		case <-returned:
		case <-time.After(handlerPatience):
			ctrllog.FromContext(ctx).Error(context.Cause(ctx), "A handler does not return though its context has ended: nothing else can end it")
		}
	})
	return h.Handle(ctx, run)
}

// newRun reads what a command gets.
func newRun(ctx context.Context, call controller.HandlerCall) (*Run, error) {
	var in struct {
		Run struct {
			ID      string `json:"id"`
			Action  Action `json:"action"`
			Cause   string `json:"cause"`
			Trigger string `json:"trigger"`
			Attempt int64  `json:"attempt"`
		} `json:"run"`
		Object        unstructured.Unstructured `json:"object"`
		PreviousSpec  map[string]any            `json:"previousSpec"`
		ChangedFields []string                  `json:"changedFields"`
	}
	if err := utiljson.Unmarshal(call.Input, &in); err != nil {
		return nil, fmt.Errorf("read the input of the handler: %w", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(call.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the way of the handler to the API server: %w", err)
	}
	config.QPS = -1 // the API server's own priority and fairness is the limit
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return while{ctx, next} })
	return &Run{
		ID: in.Run.ID, Action: in.Run.Action, Cause: in.Run.Cause, Trigger: in.Run.Trigger, Attempt: in.Run.Attempt,
		Object: &in.Object, PreviousSpec: in.PreviousSpec, ChangedFields: in.ChangedFields, Config: config, reports: call.Reports,
	}, nil
}

// while sends requests as long as a context lasts: a handler that goes on after its time
// changes nothing in the cluster.
type while struct {
	ctx  context.Context // that of the run to which the transport belongs
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (w while) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.ctx.Err() != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as the interface demands
		}
		return nil, fmt.Errorf("the run is over: %w", context.Cause(w.ctx))
	}
	return w.next.RoundTrip(req)
}

// end reports the result, after which nothing counts, and returns the exit code.
func (r *Run) end(err error) int {
	r.mu.Lock()
	if err == nil {
		err = r.problem
	}
	changed := r.changed
	r.mu.Unlock()
	code, verdict, message := exitOK, report.OK, ""
	if err != nil {
		code, verdict, message = exitFailed, report.Failed, err.Error()
		if message == "" {
			message = "the handler has failed with an empty error"
		}
	}
	switch {
	case errors.Is(err, controller.ErrRefused):
		code = exitRefused
	case errors.As(err, &notYet{}):
		code, verdict = exitOK, report.Waiting
	}
	r.report(report.Result, map[string]any{"verdict": verdict, "changed": changed, "message": clip(message)})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = nil
	return code
}
