package controller

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/rolewright/rolewright/controller/fingerprint"
)

// changes lets those updates through that can be a reason to run: another
// generation, a deletion, other annotations where they count, and for objects
// without generation any change but of status and bookkeeping. The selector is
// the cache's: an object that starts to match appears as created, one that
// stops as deleted.
func changes(annotations bool) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			if e.ObjectOld == nil || e.ObjectNew == nil {
				return false
			}
			was, is := e.ObjectOld, e.ObjectNew
			switch {
			case was.GetUID() != is.GetUID(),
				was.GetGeneration() != is.GetGeneration(),
				was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero():
				return true
			case annotations && !maps.Equal(was.GetAnnotations(), is.GetAnnotations()),
				!maps.Equal(settingsOf(was), settingsOf(is)):
				return true
			}
			return is.GetGeneration() == 0 && !sameContent(was, is)
		},
	}
}

// lower is for names that Kubernetes compares in lower case.
func lower(s string) string { return strings.ToLower(s) }

// settingsOf are the annotations that Rolewright reads: a changed period counts
// from now on, whether or not it is a reason to run.
func settingsOf(o client.Object) map[string]string {
	out := map[string]string{}
	for key, value := range o.GetAnnotations() {
		if strings.HasPrefix(key, ownPrefix) || strings.HasPrefix(key, incumbentPrefix) {
			out[key] = value
		}
	}
	return out
}

func sameContent(was, is client.Object) bool {
	a, aOK := was.(*unstructured.Unstructured)
	b, bOK := is.(*unstructured.Unstructured)
	return aOK && bOK && equality.Semantic.DeepEqual(
		fingerprint.Relevant(a.Object, true), fingerprint.Relevant(b.Object, true))
}
