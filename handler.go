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
// Handle is called in a goroutine of its own, at the same time for different objects, but
// never for the same one. nil means success, unless reports came after the end of ctx; any other
// error is a failure that is retried, but see [Refuse] and [NotYet]. A panic is a failure of the
// run. ctx carries a logger. It ends at the timeout of the watch, when the run is cancelled, and
// when the operator stops. Nothing can end a handler that does not return then: its object and
// its place in the queue stay taken.
type Handler interface {
	Handle(ctx context.Context, run *Run) error
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, run *Run) error

// Handle implements [Handler].
func (f HandlerFunc) Handle(ctx context.Context, run *Run) error { return f(ctx, run) }

// Action is the purpose of a run.
type Action string

// The actions. In a check, all writes with the Config of the run are dry runs. The handler itself
// must not change anything elsewhere.
const (
	Reconcile Action = "reconcile"
	Finalize  Action = "finalize"
	Check     Action = "check"
)

// Run is one run of a handler. Its methods report what the run does, like the reports of a
// command. They are safe for concurrent use, and have no effect once Handle has returned.
type Run struct {
	ID     string
	Action Action
	// Cause is why the run starts. Trigger is what has changed, if that is known.
	Cause, Trigger string
	// Attempt is 1, plus the number of runs with the same inputs that have just failed in a row.
	Attempt int64
	// Object is a copy of the object as it was when the run began.
	Object *unstructured.Unstructured
	// PreviousSpec is the spec of the last successful run, with numbers as in Object; nil if it
	// is not known. ChangedFields are the paths at which the object's spec differs from it, at most 20.
	PreviousSpec  map[string]any
	ChangedFields []string
	// Config gives access to the API server for as long as the run lasts. Objects that are created
	// with it belong to the run's object, and start a run of it when others change them. The
	// manager's own client does none of that.
	Config *rest.Config

	mu      sync.Mutex
	reports io.Writer // nil after the end of the run
	changed bool
	problem error
}

// Progress begins a step, which status, log and history treat like a task. total is 0 if
// there is nothing to count.
func (r *Run) Progress(step string, done, total int) {
	r.report(report.Progress, map[string]any{"step": clip(step), "done": done, "total": total})
}

// Condition sets a condition of the object by its Type, Status, Reason and Message. The
// operator's own conditions, such as Ready, are refused.
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

// RequeueAfter sets the time until the next run of the object.
func (r *Run) RequeueAfter(d time.Duration) {
	r.report(report.Requeue, map[string]any{"after": d.String()})
}

// Redact masks a secret value, from now on, in everything that the operator shows of the run.
func (r *Run) Redact(value string) { r.report(report.Redact, map[string]any{"value": value}) }

// Changed reports that the run has changed something or, in a check, would have.
func (r *Run) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = true
}

// NotYet returns an error which says that the object is not as wanted yet, but that nothing
// has failed. Another run follows after 10 seconds, or as [Run.RequeueAfter] says.
func NotYet(err error) error { return notYet{err} }

type notYet struct{ error }

// Unwrap returns the original error.
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

// clip shortens a text, so that its line is not too long.
func clip(s string) string {
	const most = 4 << 10
	return text.Cut(strings.ToValidUTF8(s, ""), most)
}

// The exit codes for what a handler returns.
const (
	exitOK      = 0
	exitFailed  = 1
	exitRefused = 78
)

// handler returns the function that the controllers call for h.
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

// handle calls h, and logs it if h does not return in time after the end of its context.
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

// newRun makes a Run from the same input that a command gets.
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

// while only sends requests as long as a context lasts: a handler that goes on after its time
// changes nothing in the cluster.
type while struct {
	ctx  context.Context // of the run to which the transport belongs
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (w while) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.ctx.Err() != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as the interface requires
		}
		return nil, fmt.Errorf("the run is over: %w", context.Cause(w.ctx))
	}
	return w.next.RoundTrip(req)
}

// end reports the result and returns the exit code. Later reports are ignored.
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
