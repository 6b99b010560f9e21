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

// changes lets only those updates through that may start a run: another generation,
// a deletion, other annotations or finalizers, and other inputs or references. For
// objects without generation, any change except of status and bookkeeping counts as
// other inputs. An update also passes if it changes whether the watch runs the object,
// as runs says. The objects are trimmed.
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
				!slices.Equal(was.GetFinalizers(), is.GetFinalizers()) || // ours may have been removed
				runs(was) != runs(is)
		},
	}
}

// note returns a predicate that lets all events through. It marks each event's
// object as due, and notes which objects were in the initial list.
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
