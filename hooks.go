package rolewright

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// Hooks is Go code around the runs of a watch; hooks that are nil do nothing. Hooks run in this
// process, at the same time for different objects. Each gets a copy of the object, and a
// context that ends at the timeout of the run and when the operator stops. The run waits until
// a hook returns. A panic is an error.
type Hooks struct {
	// Before is called before a run of an object starts. An error prevents the run, which then has
	// failed with the reason HookFailed, and is retried; with [Refuse], the object is stalled
	// until its inputs change.
	Before func(ctx context.Context, object *unstructured.Unstructured) error
	// Vars returns extra vars in addition to those of the object and the watch, which they
	// override. It is called after Before, and its errors have the same effect. The values have to be
	// representable in JSON, and are data, since they may come from the object: Ansible evaluates no
	// expression in them and decrypts no vault text. The names are yours: take none from the object.
	// Names with secret values belong in secretVars of the watch.
	Vars func(ctx context.Context, object *unstructured.Unstructured) (map[string]any, error)
	// After is called after the end of a run that Before did not prevent. Its context has a timeout of
	// its own, as long as the run's. It is not called for a run that was interrupted, which is repeated. An
	// error turns a successful run into a failed one, with the reason HookFailed, or, if the operator stops
	// meanwhile, into an interrupted one.
	After func(ctx context.Context, object *unstructured.Unstructured, result Result) error
}

// Result says how a run has ended.
type Result struct {
	// Run is the ID of the run.
	Run string
	// Succeeded is also true for a run which says that the object is not as wanted yet, with
	// the reason NotYet.
	Succeeded bool
	// Reason and Message are the same as in the object's conditions; secret values are masked.
	Reason, Message string
}

// internal returns the hooks in the form that the controllers call.
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

// Refuse returns an error which says that only a changed object can help: the run is not
// retried until the inputs of the object change. It is for handlers, and for the hooks Before
// and Vars.
func Refuse(err error) error { return refusal{err} }

type refusal struct{ error }

// Unwrap returns the original error.
func (r refusal) Unwrap() error { return r.error }

// Is makes errors.Is recognise the error as a refusal.
func (refusal) Is(target error) bool { return target == controller.ErrRefused }
