package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// firstList has the objects of a first list looked at after all others, as its handler does, but for those that have changed
// since their last run: they need not wait until thousands were looked at that have not.
type firstList struct {
	handler.EnqueueRequestForObject
}

// Create implements [handler.EventHandler].
func (l *firstList) Create(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	e.IsInInitialList = e.IsInInitialList && seemsUnchanged(e.Object)
	l.EnqueueRequestForObject.Create(ctx, e, q)
}

// seemsUnchanged is true for an object whose last run was made for it as it is, by its status. That others may have written, so
// it is good for an order only.
func seemsUnchanged(o client.Object) bool {
	obj, ok := o.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	record := packed(obj)
	return obj.GetDeletionTimestamp() == nil && record.Active == nil && record.Last != nil &&
		record.Last.Generation == obj.GetGeneration() && record.Last.Handled == obj.GetAnnotations()[AnnotationReconcileAt]
}
