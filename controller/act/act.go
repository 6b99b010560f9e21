// Package act does for an object what rolewright reconcile, suspend, resume and cancel do: it
// changes annotations, with the rights of the client that it is given.
package act

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/controller"
)

// fieldManager is the name under which objects are changed.
const fieldManager = "rolewright"

// Action changes annotations of an object: those of which a value is nil go. said is what has
// been done then. Without changes, nothing is done.
type Action func(obj *unstructured.Unstructured) (changes map[string]any, said string)

// Reconcile asks for a run now.
func Reconcile(now time.Time) Action {
	request := now.UTC().Format(time.RFC3339Nano)
	return func(obj *unstructured.Unstructured) (map[string]any, string) {
		said := "reconcile requested"
		if s := controller.Summarize(obj, now); s.Next == "paused" {
			said += ", and waits: the object is paused"
		}
		return map[string]any{controller.AnnotationReconcileAt: request}, said
	}
}

// Suspend lets no run start, for a time, or until Resume where that is 0.
func Suspend(now time.Time, lasts time.Duration) Action {
	value, said := "true", "suspended"
	if lasts > 0 {
		value = now.Add(lasts).UTC().Format(time.RFC3339)
		said += " until " + value
	}
	return func(*unstructured.Unstructured) (map[string]any, string) {
		return map[string]any{controller.AnnotationPaused: value}, said
	}
}

// Resume ends Suspend.
func Resume() Action {
	return func(obj *unstructured.Unstructured) (map[string]any, string) {
		changes := map[string]any{}
		for _, name := range controller.PauseAnnotations() {
			if _, is := obj.GetAnnotations()[name]; is {
				changes[name] = nil
			}
		}
		if len(changes) == 0 {
			return nil, "is not suspended"
		}
		return changes, "resumed"
	}
}

// Cancel stops the run in progress if it is the one with the ID, or whichever it is if that is empty. Where the
// status has no record of runs, as with manageStatus: false, only an ID says which run to stop; that of a run that
// has ended does nothing.
func Cancel(run string) Action {
	return func(obj *unstructured.Unstructured) (map[string]any, string) {
		_, recorded, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "ansible")
		id := run
		if recorded {
			active := controller.Summarize(obj, time.Now()).Active
			switch {
			case active == nil:
				return nil, "has no run in progress"
			case run != "" && run != active.ID:
				return nil, "has another run in progress: " + active.ID
			}
			id = active.ID
		}
		if id == "" {
			return nil, "has no run in progress by its status: if that has no record of runs (manageStatus: false), name the run with --run"
		}
		return map[string]any{controller.AnnotationCancel: id}, "cancel of run " + id + " requested"
	}
}

// Annotate changes annotations of the object, and of no other one that has taken its name.
func Annotate(ctx context.Context, objects dynamic.ResourceInterface, obj *unstructured.Unstructured, changes map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.GetUID(), "annotations": changes}})
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	return objects.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}
