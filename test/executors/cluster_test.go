package executors

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

// objects returns the objects that a run has left in its namespace, by resource and name, without what the API server and
// the controllers add.
func (n normaliser) objects(t *testing.T, cfg *rest.Config, namespace string) map[string]any {
	t.Helper()
	client := must.Get(dynamic.NewForConfig(cfg))(t)
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerPreferredNamespacedResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // these belong to other tests
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, list := range lists {
		gv := must.Get(schema.ParseGroupVersion(list.GroupVersion))(t)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" {
				continue
			}
			items, err := client.Resource(gv.WithResource(resource.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // a kind of another test, which was removed since
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items.Items {
				if !isMade(item) {
					found[resource.Name+"/"+item.GetName()] = n.object(t, item)
				}
			}
		}
	}
	return found
}

// isMade reports whether a controller has created an object.
func isMade(o unstructured.Unstructured) bool {
	return len(o.GetOwnerReferences()) > 0 || o.GetName() == "kube-root-ca.crt" || o.GetName() == "default" && o.GetKind() == "ServiceAccount"
}

// object returns an object without times, identifiers and status. The managed fields are kept, as text.
func (n normaliser) object(t *testing.T, o unstructured.Unstructured) any {
	t.Helper()
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	var writers []any
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && !strings.HasPrefix(m.Manager, "kube-") {
			fields := must.Get(json.Marshal(m.FieldsV1))(t)
			writers = append(writers, strings.Join([]string{m.Manager, string(m.Operation), m.APIVersion, string(fields)}, " "))
		}
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	value := n.value(o.Object)
	return map[string]any{"object": value, "writers": writers}
}
