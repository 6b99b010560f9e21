package controller

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// changes lets those updates through that can be a reason to run: another
// generation, a deletion, changed settings, and other inputs: annotations where
// they count, and for objects without generation any change but of status and
// bookkeeping. The objects are trimmed. The selector is the cache's: an object
// that starts to match appears as created, one that stops as deleted.
func changes() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, wasOK := e.ObjectOld.(*unstructured.Unstructured)
			is, isOK := e.ObjectNew.(*unstructured.Unstructured)
			return wasOK && isOK && (was.GetUID() != is.GetUID() ||
				was.GetGeneration() != is.GetGeneration() ||
				was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero() ||
				was.Object[inputsKey] != is.Object[inputsKey] ||
				!maps.Equal(was.GetAnnotations(), is.GetAnnotations()))
		},
	}
}

// lower is for names that Kubernetes compares in lower case.
func lower(s string) string { return strings.ToLower(s) }
