package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/proxy"
)

// Node is an object with the objects that it owns.
type Node struct {
	Found

	Owns []Node `json:"owns,omitempty"`
}

// ErrTreeCut is the error for a tree that was cut, because it has too many objects or levels.
var ErrTreeCut = errors.New("there is more: the tree has been cut")

const (
	maxTreeNodes = 1000
	maxTreeDepth = 8
)

// Tree lists what an object owns, directly and indirectly: objects of the kinds that the status
// of a watched object records, and objects that Kubernetes' own controllers create. It leaves out
// what it may not list. Then, or if the tree was cut, it returns an error together with a
// usable node.
func Tree(ctx context.Context, c client.Client, obj *unstructured.Unstructured) (Node, error) {
	t := treeReader{client: c, seen: map[types.UID]bool{}, lists: map[string]listed{}}
	node := t.node(ctx, obj, 0)
	return node, errors.Join(t.problems...)
}

type treeReader struct {
	client   client.Client
	seen     map[types.UID]bool
	lists    map[string]listed
	problems []error
}

type listed struct {
	items []unstructured.Unstructured
	err   error
}

// createdFor returns the kinds of objects that Kubernetes' own controllers create for an object of a kind.
func createdFor(of schema.GroupKind) []schema.GroupVersionKind {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	switch of.String() {
	case "Deployment.apps":
		return []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "ReplicaSet"}}
	case "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch":
		return []schema.GroupVersionKind{pod}
	case "CronJob.batch":
		return []schema.GroupVersionKind{{Group: "batch", Version: "v1", Kind: "Job"}}
	}
	return nil
}

func (t *treeReader) node(ctx context.Context, o *unstructured.Unstructured, depth int) Node {
	n := Node{Found: foundAs(o)}
	t.seen[o.GetUID()] = true
	owned := t.owned(ctx, o)
	for i := range owned {
		switch {
		case t.seen[owned[i].GetUID()]:
		case depth == maxTreeDepth || len(t.seen) >= maxTreeNodes:
			if !slices.Contains(t.problems, ErrTreeCut) {
				t.problems = append(t.problems, ErrTreeCut)
			}
			return n
		default:
			n.Owns = append(n.Owns, t.node(ctx, &owned[i], depth+1))
		}
	}
	return n
}

// owned returns the objects that o owns, sorted by kind, namespace and name.
func (t *treeReader) owned(ctx context.Context, o *unstructured.Unstructured) []unstructured.Unstructured {
	owner := proxy.Owner{GVK: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	st, _ := o.Object["status"].(map[string]any)
	kinds := createdFor(owner.GVK.GroupKind())
	for _, res := range status.Read(st).Dependents {
		kind, err := t.client.RESTMapper().KindFor(res)
		switch {
		case meta.IsNoMatchError(err): // the kind is gone, with all its objects
		case err != nil:
			t.problems = append(t.problems, fmt.Errorf("look for %s: %w", res.GroupResource(), err))
		default:
			kinds = append(kinds, kind)
		}
	}
	var owned []unstructured.Unstructured
	for _, kind := range kinds {
		// A role may create objects anywhere; a controller creates them in the owner's namespace.
		everywhere := len(createdFor(owner.GVK.GroupKind())) == 0
		for _, is := range t.list(ctx, kind, owner.Namespace, everywhere) {
			if ownedBy(&is, owner) {
				owned = append(owned, is)
			}
		}
	}
	slices.SortFunc(owned, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return owned
}

// list returns the objects of a kind in a namespace or, with everywhere, in all namespaces if that is
// allowed. It lists each kind and namespace only once.
func (t *treeReader) list(ctx context.Context, kind schema.GroupVersionKind, namespace string, everywhere bool) []unstructured.Unstructured {
	if everywhere {
		if all := t.once(ctx, kind, metav1.NamespaceAll); namespace == "" || !apierrors.IsForbidden(all.err) {
			return t.take(kind, all)
		}
	}
	return t.take(kind, t.once(ctx, kind, namespace))
}

func (t *treeReader) take(kind schema.GroupVersionKind, l listed) []unstructured.Unstructured {
	if l.err != nil {
		problem := fmt.Errorf("list %s: %w", kind.Kind, l.err)
		if !slices.ContainsFunc(t.problems, func(err error) bool { return err.Error() == problem.Error() }) {
			t.problems = append(t.problems, problem)
		}
	}
	return l.items
}

func (t *treeReader) once(ctx context.Context, kind schema.GroupVersionKind, namespace string) listed {
	key := kind.String() + " " + namespace
	if l, is := t.lists[key]; is {
		return l
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := t.client.List(ctx, list, client.InNamespace(namespace))
	t.lists[key] = listed{list.Items, err}
	return t.lists[key]
}
