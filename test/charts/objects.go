package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/tree"
)

// made are kinds that the control plane makes, and the operators' records.
func made() []string {
	return []string{"Pod", "Endpoints", "EndpointSlice", "ReplicaSet", "ControllerRevision", "Event", "Lease"}
}

// left are the objects in a namespace, without what differs from one cluster to the next, and the newest revision of
// the release.
func (b *bench) left(ctx context.Context, namespace string) (objects map[string]any, revision int, err error) {
	c, err := discovery.NewDiscoveryClientForConfig(b.config)
	if err != nil {
		return nil, 0, err
	}
	lists, err := c.ServerPreferredNamespacedResourcesWithContext(ctx)
	if err != nil {
		return nil, 0, err
	}
	objects = map[string]any{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range l.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || slices.Contains(made(), r.Kind) || gv.Group == group {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gv.WithKind(r.Kind))
			if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return nil, 0, err
			}
			for _, u := range list.Items {
				if n, ok := strings.CutPrefix(u.GetName(), "sh.helm.release.v1."); ok && r.Kind == "Secret" {
					v, _ := strconv.Atoi(n[strings.LastIndex(n, ".v")+2:])
					revision = max(revision, v)
					continue
				}
				if u.GetName() == "kube-root-ca.crt" || r.Kind == "ServiceAccount" && u.GetName() == "default" {
					continue
				}
				objects[u.GetKind()+" "+u.GetName()] = normal(u, namespace)
			}
		}
	}
	return objects, revision, nil
}

// normal is an object without what the API server and the control plane add.
func normal(u unstructured.Unstructured, namespace string) any {
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		if ip, _, _ := unstructured.NestedString(u.Object, "spec", field); ip != "None" {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	}
	owners := u.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}
	u.SetOwnerReferences(owners)
	named := func(text string) string { return strings.ReplaceAll(text, namespace, "NAMESPACE") }
	return tree.Map(u.Object, nil, tree.Texts(named))
}

// conditions are those of an object, as text.
func conditions(u *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var all []string
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%v=%v %v", m["type"], m["status"], orNothing(m["reason"]))))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func orNothing(v any) any {
	if v == nil {
		return ""
	}
	return v
}
