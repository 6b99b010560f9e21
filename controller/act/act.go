// Package act implements rolewright reconcile, suspend, resume and cancel for an object: it changes
// annotations, with the permissions of the client that it is given.
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

// Action returns changes of an object's annotations; a nil value removes an annotation. said is a text
// about what these changes do. Without changes, there is nothing to do.
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

// Suspend pauses the object for the time lasts or, if that is 0, until Resume.
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

// Resume ends a pause.
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

// Cancel stops the run with the ID run, or the one that the status shows in progress if run is empty. A named run is
// asked to stop even if the status does not show it in progress: with manageStatus: false the status shows nothing, or
// an old state. The ID of a run that has ended, by the status, leads to no change.
func Cancel(run string) Action {
	return func(obj *unstructured.Unstructured) (map[string]any, string) {
		is := controller.Summarize(obj, time.Now())
		id, said := run, ""
		switch {
		case ended(is, run):
			return nil, "has no such run in progress: it has ended"
		case run == "" && is.Active == nil:
			return nil, "has no run in progress according to its status; with manageStatus: false the status records no runs: name the run with --run"
		case run == "":
			id = is.Active.ID
		case is.Active != nil && is.Active.ID != run:
			said = ", but the status names a different run in progress: " + is.Active.ID
		}
		return map[string]any{controller.AnnotationCancel: id}, "cancel of run " + id + " requested" + said
	}
}

// ended reports whether the status shows that the run has ended, as the last run.
func ended(is controller.Summary, run string) bool {
	return run != "" && is.Last != nil && is.Last.ID == run
}

// Annotate changes annotations of the object. It fails if another object has the name by now.
func Annotate(ctx context.Context, objects dynamic.ResourceInterface, obj *unstructured.Unstructured, changes map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.GetUID(), "annotations": changes}})
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	return objects.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}
