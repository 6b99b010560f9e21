package controller

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/dependent"
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

// A kind counts as gone only if it is in no version of its group, at two attempts in a row.
func TestPruneOnDelete_LooksTwiceForAKindInAllVersions(t *testing.T) {
	t.Parallel()
	const widgets = `{"kind":"APIResourceList","resources":[{"name":"widgets","namespaced":true,"kind":"Widget"}]}`
	api := map[string]string{"/apis": `{"kind":"APIGroupList","groups":[{"name":"g.test","versions":[{"version":"v1"}]}]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api[r.URL.Path] == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, api[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	child := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "g.test/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "child", Annotations: map[string]string{
			"operator-sdk/primary-resource": "ns/one", "operator-sdk/primary-resource-type": "Memcached.cache.example.com",
		}},
	}
	scheme := runtime.NewScheme()
	must.Do(t, metav1.AddMetaToScheme(scheme))
	gateway := must.Get(proxy.New(t.Context(), proxy.Options{Config: &rest.Config{Host: server.URL}}))(t)
	gvk := schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}
	r := &reconciler{
		gvk: gvk, watch: watchOf(gvk), res: resource{hasStatus: true}, metadata: metadatafake.NewSimpleMetadataClient(scheme, child),
		opts: &Options{Proxy: gateway}, set: &Set{dependents: dependent.New(dependent.Options{})},
	}
	obj := object(gvk, "ns", "one", nil)
	obj.SetFinalizers([]string{pruneFinalizer})
	obj.Object["status"] = map[string]any{"ansible": map[string]any{"dependents": []any{"widgets.v1alpha1.g.test"}}}
	s := &scope{key: client.ObjectKeyFromObject(obj), object: obj, memory: &memory{}}
	now := time.Now()
	r.now = func() time.Time { return now }
	prune := func(want bool) {
		t.Helper()
		gateway.Discovery().Invalidate() // as if some seconds had passed
		must.Be(t, "is sure", want, must.Get(r.prune(t.Context(), s))(t))
	}
	prune(false)
	api["/apis/g.test/v1"] = widgets
	prune(true)
	left := must.Get(r.metadata.Resource(schema.GroupVersionResource{Group: "g.test", Version: "v1", Resource: "widgets"}).List(t.Context(), metav1.ListOptions{}))(t)
	must.Be(t, "objects left", 0, len(left.Items))
	delete(api, "/apis/g.test/v1")
	prune(false)
	now = now.Add(absentFor / 2)
	prune(false)
	now = now.Add(absentFor / 2)
	prune(true)
}
