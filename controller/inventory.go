package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
)

// Found is an object in the cluster.
type Found struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Status is the object's status as kstatus computes it, such as Current or InProgress; Message says why.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

func foundAs(o *unstructured.Unstructured) Found {
	f := Found{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
	f.Status, f.Message = readiness(o)
	return f
}

// Item is an object that the watched object owns.
type Item struct {
	Found

	// Prunable is true if a run that does not touch the item removes it. Kept says why not; it is
	// empty if the watch does not prune.
	Prunable bool   `json:"prunable"`
	Kept     string `json:"kept,omitempty"`
}

// maxItemMessage limits the length of an object's message.
const maxItemMessage = 200

// Inventory lists what an object of a watch owns, of the kinds that its status records, in
// these namespaces; no namespaces means all.
func Inventory(ctx context.Context, c client.Client, obj *unstructured.Unstructured, w watches.Watch, namespaces []string) ([]Item, error) {
	owner := proxy.Owner{GVK: w.GVK, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	items := []Item{}
	r := &reconciler{watch: w, gvk: w.GVK, res: resource{hasStatus: true}}
	for _, res := range r.record(obj).Dependents {
		kind, err := c.RESTMapper().KindFor(res)
		if meta.IsNoMatchError(err) {
			continue // the kind is gone, with all its objects
		}
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", res.GroupResource(), err)
		}
		owned, err := ownedOf(ctx, c, kind, owner, namespaces)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", res.GroupResource(), err)
		}
		for i := range owned {
			items = append(items, itemOf(&owned[i], res, owner, obj.GetCreationTimestamp().Time, w))
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return items, nil
}

// ownedOf returns the objects of a kind that have the owner's mark. It asks only once for a
// cluster-scoped kind.
func ownedOf(ctx context.Context, c client.Client, kind schema.GroupVersionKind, owner proxy.Owner, namespaces []string) (owned []unstructured.Unstructured, err error) {
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(kind)
	if namespaced, err := c.IsObjectNamespaced(probe); err != nil {
		return nil, err // the caller adds what it asked for
	} else if !namespaced {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := c.List(ctx, list, client.InNamespace(namespace))
		if apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll && owner.Namespace != "" {
			err = c.List(ctx, list, client.InNamespace(owner.Namespace))
		}
		if err != nil {
			return nil, err // as above
		}
		for _, o := range list.Items {
			if ownedBy(&o, owner) {
				owned = append(owned, o)
			}
		}
	}
	return owned, nil
}

// ownedBy reports whether an object has the owner's mark.
func ownedBy(o *unstructured.Unstructured, owner proxy.Owner) bool {
	referred := slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID })
	return referred || proxy.AnnotatedBy(o.GetAnnotations(), owner)
}

func itemOf(o *unstructured.Unstructured, res schema.GroupVersionResource, owner proxy.Owner, created time.Time, w watches.Watch) Item {
	item := Item{Found: foundAs(o)}
	if !w.Prune {
		return item
	}
	if item.Kept = Kept(o, res, owner, created); item.Kept == "" && !ofKinds(w.Prunes(), res.Group, o.GetKind()) {
		item.Kept = "its kind is not in pruneKinds"
	}
	item.Prunable = item.Kept == ""
	return item
}

// readiness returns the status of an object as kstatus computes it, and the reason.
func readiness(o *unstructured.Unstructured) (word, why string) {
	is, err := kstatus.Compute(o)
	if err != nil {
		return string(kstatus.UnknownStatus), text.Cut(text.Plain(err.Error()), maxItemMessage)
	}
	return string(is.Status), text.Cut(text.Plain(is.Message), maxItemMessage)
}
