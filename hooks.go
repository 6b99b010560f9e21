package rolewright

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// Hooks is Go code around the runs of a watch; what is nil does nothing. Hooks run in this
// process, several at a time for different objects. Each gets a copy of the object, and a
// context that ends with the time of the run and when the operator stops: the run waits for a
// hook until it returns. A panic is an error.
type Hooks struct {
	// Before is called before a run of an object starts. An error prevents the run, which has
	// failed with the reason HookFailed and is retried; with [Refuse], the object is stalled
	// until its inputs change.
	Before func(ctx context.Context, object *unstructured.Unstructured) error
	// Vars returns extra vars beside those that the object and the watch give, in whose place
	// they come. It is called after Before, and fails as Before does. What it returns has to be
	// what JSON can say. Names with secret values belong in secretVars of the watch.
	Vars func(ctx context.Context, object *unstructured.Unstructured) (map[string]any, error)
	// After is called when a run has ended that Before has let start, with a time of its own of
	// the same length. It is not called for a run that was interrupted, and is repeated. An
	// error makes a run that has succeeded a failed one, with the reason HookFailed.
	After func(ctx context.Context, object *unstructured.Unstructured, result Result) error
}

// Result is how a run has ended.
type Result struct {
	// Run is the ID of the run.
	Run string
	// Succeeded is true also for a run which says that the object is not as wanted yet, with
	// the reason NotYet.
	Succeeded bool
	// Reason and Message are those of the object's conditions; secret values are masked.
	Reason, Message string
}

// internal is what the controllers call.
func (h Hooks) internal() watches.Hooks {
	in := watches.Hooks{Before: h.Before, Vars: h.Vars}
	if h.After != nil {
		in.After = func(ctx context.Context, object *unstructured.Unstructured, end watches.HookEnd) error {
			return h.After(ctx, object, Result{
				Run: end.Run, Succeeded: end.Result == string(status.Succeeded), Reason: end.Reason, Message: end.Message,
			})
		}
	}
	return in
}

// Refuse returns an error which says that only another object can help: the run is not
// retried until the inputs of the object change. It is for handlers, and for the hooks Before
// and Vars.
func Refuse(err error) error { return refusal{err} }

type refusal struct{ error }

// Unwrap returns the error that was given.
func (r refusal) Unwrap() error { return r.error }

// Is implements what errors.Is asks.
func (refusal) Is(target error) bool { return target == controller.ErrRefused }
