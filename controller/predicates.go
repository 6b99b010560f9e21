package controller

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// changes lets those updates through that can be a reason to run: another
// generation, a deletion, changed settings, and other inputs: annotations where
// they count, and for objects without generation any change but of status and
// bookkeeping. An object that the watch begins to run, or leaves, has changed too; one
// that it does not run is left to the reconciler. The objects are trimmed.
func changes(runs func(metav1.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, wasOK := e.ObjectOld.(*unstructured.Unstructured)
			is, isOK := e.ObjectNew.(*unstructured.Unstructured)
			if !wasOK || !isOK {
				return false
			}
			return was.GetUID() != is.GetUID() ||
				was.GetGeneration() != is.GetGeneration() ||
				was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero() ||
				was.Object[inputsKey] != is.Object[inputsKey] ||
				was.Object[referencesKey] != is.Object[referencesKey] ||
				!maps.Equal(was.GetAnnotations(), is.GetAnnotations()) ||
				!slices.Equal(was.GetFinalizers(), is.GetFinalizers()) || // ours may have been taken off
				runs(was) != runs(is)
		},
	}
}

// note marks the object of each event that gets as far as this predicate, which
// lets all of them through, and notes which objects the kind began with.
func (r *reconciler) note() predicate.Predicate {
	all := predicate.NewPredicateFuncs(func(o client.Object) bool {
		r.objects.mark(client.ObjectKeyFromObject(o), r.now())
		return true
	})
	mark := all.CreateFunc
	all.CreateFunc = func(e event.CreateEvent) bool {
		r.objects.with(client.ObjectKeyFromObject(e.Object), func(o *entry) { o.listed = e.IsInInitialList })
		return mark(e)
	}
	return all
}
