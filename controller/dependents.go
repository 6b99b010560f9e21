package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rolewright/rolewright/controller/dependent"
)

// queueSource hands the controller's queue to the reconciler, which also queues
// objects for reasons other than events of the kind.
func (r *reconciler) queueSource() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.objects.start(q)
		return nil
	})
}

// touch is called when another client has changed a dependent of an object; it queues the object for a
// run. uid is empty if the dependent does not name the owner's UID. otherNamespace is true if the dependent is in
// another namespace.
func (r *reconciler) touch(key types.NamespacedName, uid types.UID, why string, otherNamespace bool) {
	if r.foreign(uid) {
		return
	}
	if r.objects.noteDependentChange(key, uid, why, otherNamespace, r.now()) {
		r.log.V(1).Info("Dependent has changed", "namespace", key.Namespace, "name", key.Name, "change", why)
	}
}

// subscribe watches the dependents of the kind's objects until the returned function
// is called.
func (r *reconciler) subscribe() (unsubscribe func()) {
	if !r.opts.InjectOwnerRef || !r.watch.WatchDependentResources {
		return func() {}
	}
	r.dependents = r.set.dependents.Subscribe(dependent.OwnerKind{
		GVK: r.gvk, Namespaced: r.res.namespaced, ClusterScoped: r.watch.WatchClusterScopedResources,
		Status: r.watch.WatchDependentStatus, Blacklist: r.watch.Blacklist, Changed: r.touch,
	})
	return r.dependents.Close
}

// restore watches the dependents again that an earlier process recorded.
func (r *reconciler) restore(key types.NamespacedName, resources []schema.GroupVersionResource) {
	if r.dependents != nil && len(resources) > 0 {
		r.dependents.Restore(key, resources)
	}
}

// resourceNames returns the names of resources in kubectl's form, such as
// deployments.v1.apps, sorted and without duplicates.
func resourceNames(resources []schema.GroupVersionResource) []string {
	names := make([]string, 0, len(resources))
	for _, res := range resources {
		names = append(names, fmt.Sprintf("%s.%s.%s", res.Resource, res.Version, res.Group))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
