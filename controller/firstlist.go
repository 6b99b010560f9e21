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

// firstList queues the unchanged objects of the initial list with low priority. Objects that have changed since their last
// run get the normal priority, so that they do not wait for thousands of unchanged ones.
type firstList struct {
	handler.EnqueueRequestForObject
}

// Create implements [handler.EventHandler].
func (l *firstList) Create(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	e.IsInInitialList = e.IsInInitialList && seemsUnchanged(e.Object)
	l.EnqueueRequestForObject.Create(ctx, e, q)
}

// seemsUnchanged reports whether, by its status, the object has not changed since its last run. Others may have written the
// status, so the answer is good only for an order.
func seemsUnchanged(o client.Object) bool {
	obj, ok := o.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	record := packed(obj)
	return obj.GetDeletionTimestamp() == nil && record.Active == nil && record.Last != nil &&
		record.Last.Generation == obj.GetGeneration() && record.Last.Handled == obj.GetAnnotations()[AnnotationReconcileAt]
}
