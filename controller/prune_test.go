package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/test/must"
)

// A dependent that must outlive its owner has only the annotations, like the dependents that pruneOnDelete deletes.
func TestPruneOnDelete_LeavesWhatIsToStay(t *testing.T) {
	t.Parallel()
	owner := proxy.Owner{GVK: schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}, Namespace: "a", Name: "m", UID: "u"}
	scheme := runtime.NewScheme()
	must.Do(t, metav1.AddMetaToScheme(scheme))
	claim := func(name, policy string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: map[string]string{
				"helm.sh/resource-policy": policy, "operator-sdk/primary-resource": "a/m", "operator-sdk/primary-resource-type": "Memcached.cache.example.com",
			}},
		}
	}
	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	r := &reconciler{metadata: metadatafake.NewSimpleMetadataClient(scheme, claim("kept", "keep"), claim("other", ""))}
	must.Be(t, "deleted", 1, must.Get(r.pruneResource(t.Context(), claims, "", owner))(t))
	left := must.Get(r.metadata.Resource(claims).Namespace("a").List(t.Context(), metav1.ListOptions{}))(t)
	if len(left.Items) != 1 || left.Items[0].Name != "kept" {
		t.Errorf("left: %+v", left.Items)
	}
}
