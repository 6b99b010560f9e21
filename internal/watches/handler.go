package watches

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Hooks is Go code around the runs of a watch; fields that are nil do nothing. No hook may change
// the object; it gets a copy.
type Hooks struct {
	// Vars returns further extra vars of a run.
	Vars func(ctx context.Context, object *unstructured.Unstructured) (map[string]any, error)
	// Before is called before a run starts; an error prevents the run.
	Before func(ctx context.Context, object *unstructured.Unstructured) error
	// After is called after the end of a run that Before did not prevent. An error makes the
	// run fail.
	After func(ctx context.Context, object *unstructured.Unstructured, end HookEnd) error
}

// HookEnd is how a run has ended.
type HookEnd struct {
	Run, Result, Reason, Message string
}

// setHandler reads the name of a handler.
func setHandler[T any](of func(*T) *string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		name, ok := c.string(a)
		if ok && name == "" {
			c.error(a, "the handler has no name", "write the name under which the Go program registers it, such as handler: tickets")
		}
		*of(into) = name
	}
}
