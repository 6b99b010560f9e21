package controller

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// changes lets those updates through that can be a reason to run: another
// generation, a deletion, changed settings, and other inputs: annotations where
// they count, and for objects without generation any change but of status and
// bookkeeping. An object that starts to match the selector has changed too; one
// that does not match is left to the reconciler. The objects are trimmed.
func changes(selector labels.Selector) predicate.Predicate {
	matches := func(o client.Object) bool { return selector.Matches(labels.Set(o.GetLabels())) }
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, wasOK := e.ObjectOld.(*unstructured.Unstructured)
			is, isOK := e.ObjectNew.(*unstructured.Unstructured)
			if !wasOK || !isOK {
				return false
			}
			if matches(is) && !matches(was) {
				return true
			}
			return was.GetUID() != is.GetUID() ||
				was.GetGeneration() != is.GetGeneration() ||
				was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero() ||
				was.Object[inputsKey] != is.Object[inputsKey] ||
				was.Object[referencesKey] != is.Object[referencesKey] ||
				!maps.Equal(was.GetAnnotations(), is.GetAnnotations())
		},
	}
}

// note marks the object of each event that gets as far as this predicate, which
// lets all of them through.
func (r *reconciler) note() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		r.objects.mark(client.ObjectKeyFromObject(o), r.now())
		return true
	})
}
