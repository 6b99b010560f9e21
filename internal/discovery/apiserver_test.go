package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// cluster is the API server of the tests, for direct requests.
type cluster struct {
	cfg       *rest.Config
	transport http.RoundTripper
	server    *url.URL
}

func connect(t *testing.T) *cluster {
	t.Helper()
	cfg := testenv.Config(t)
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatalf("make a transport: %v", err)
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		t.Fatalf("read the server's URL: %v", err)
	}
	return &cluster{cfg: cfg, transport: transport, server: server}
}

func (c *cluster) cache(t *testing.T) *Cache {
	t.Helper()
	return New(c.transport, c.server, testr.New(t))
}

// reply is an answer without the parts that differ between requests.
type reply struct {
	Status int
	Header http.Header
	Body   string
}

func newReply(resp *http.Response) (reply, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	header := resp.Header.Clone()
	for _, key := range []string{"Audit-Id", "Date", "Expires", "Content-Length"} {
		header.Del(key)
	}
	return reply{Status: resp.StatusCode, Header: header, Body: string(body)}, err
}

// direct sends a request to the API server itself.
func (c *cluster) direct(ctx context.Context, path string, header http.Header) (reply, error) {
	target, err := c.server.Parse(path)
	if err != nil {
		return reply{}, err
	}
	header = header.Clone()
	if header.Get("Accept-Encoding") == "" {
		header.Set("Accept-Encoding", "identity")
	}
	resp, err := c.transport.RoundTrip((&http.Request{Method: http.MethodGet, URL: target, Header: header}).WithContext(ctx))
	if err != nil {
		return reply{}, err
	}
	return newReply(resp)
}

// cached sends a request to the cache.
func cached(ctx context.Context, t *testing.T, c *Cache, path string, header http.Header) (reply, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header = header
	if !Handles(r) {
		t.Fatalf("%s is not handled", path)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return newReply(w.Result())
}

const (
	aggregated     = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedBeta = ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	protobuf       = "application/vnd.kubernetes.protobuf"
	openAPIv2      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	openAPIv3      = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

func TestAPIServer_EveryDocumentIsAsItWouldBeDirectly(t *testing.T) {
	api := connect(t)
	lists := []string{
		"", "application/json", "application/yaml", protobuf, "*/*", "text/html",
		"application/json" + aggregated, protobuf + aggregated, "application/json" + aggregatedBeta,
		"application/json" + aggregated + ",application/json" + aggregatedBeta + ",application/json",
	}
	accepts := map[string][]string{
		"/api":                              lists,
		"/apis":                             lists,
		"/api/v1":                           lists,
		"/apis/apps":                        lists,
		"/apis/apps/v1":                     lists,
		"/apis/apps/v1?timeout=32s":         lists,
		"/apis?timeout=nonsense":            {""},
		"/api/v7":                           {"", protobuf},
		"/apis/none.rolewright.test":        {"", "application/json"},
		"/apis/none.rolewright.test/v1":     {"", "application/json"},
		"/openapi/v2":                       {"", "application/json", openAPIv2, "text/html"},
		"/openapi/v2?timeout=32s":           {openAPIv2},
		"/openapi/v3":                       {"", "application/json", openAPIv3},
		"/openapi/v3/apis/apps/v1":          {"", "application/json", openAPIv3, "text/html"},
		"/openapi/v3/apis/apps/v1?hash=old": {"", openAPIv3},
		"/openapi/v3/api":                   {""},
		"/openapi/v3/apis/none.test/v1":     {""},
	}
	for path, accepts := range accepts {
		for _, accept := range accepts {
			for _, encoding := range []string{"", "gzip", "gzip, deflate, br"} {
				t.Run(fmt.Sprintf("%s %q %q", path, accept, encoding), func(t *testing.T) {
					header := http.Header{}
					if accept != "" {
						header.Set("Accept", accept)
					}
					if encoding != "" {
						header.Set("Accept-Encoding", encoding)
					}
					api.compare(t, path, header)
				})
			}
		}
	}
}

func TestAPIServer_AnOpenAPIDocumentUnderItsHashIsAsItWouldBeDirectly(t *testing.T) {
	api := connect(t)
	got := must.Get(api.direct(t.Context(), "/openapi/v3", http.Header{}))(t)
	var list struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	must.Do(t, json.Unmarshal([]byte(got.Body), &list))
	hashed := list.Paths["apis/apps/v1"].ServerRelativeURL
	if !strings.Contains(hashed, "?hash=") {
		t.Fatalf("there is no hash in %q", hashed)
	}
	api.compare(t, hashed, http.Header{"Accept": {openAPIv3}})
}

// compare fails unless the cache answers like the API server: at the first request, from memory, and to a client that
// already has the document.
func (c *cluster) compare(t *testing.T, path string, header http.Header) {
	t.Helper()
	var before, after reply
	var answers, conditional [2]reply
	// Other tests change what is served, so answers are only compared if the API server says the same before and after.
	testenv.Eventually(t, "documents to stay as they are for a moment", func(ctx context.Context) error {
		cache := c.cache(t)
		var errs [6]error
		before, errs[0] = c.direct(ctx, path, header)
		answers[0], errs[1] = cached(ctx, t, cache, path, header)
		answers[1], errs[2] = cached(ctx, t, cache, path, header)
		if tag := before.Header.Get("Etag"); tag != "" {
			with := header.Clone()
			with.Set("If-None-Match", tag)
			conditional[0], errs[3] = c.direct(ctx, path, with)
			conditional[1], errs[4] = cached(ctx, t, cache, path, with)
		}
		after, errs[5] = c.direct(ctx, path, header)
		if !cmp.Equal(before, after) {
			errs[5] = errors.New("the document has changed")
		}
		return errors.Join(errs[:]...)
	})
	for _, got := range answers {
		if before.Body != got.Body {
			t.Errorf("the body has %d bytes and differs from the API server's with %d", len(got.Body), len(before.Body))
		}
		if got.Status != before.Status {
			t.Errorf("the status is %d, want %d", got.Status, before.Status)
		}
		if diff := cmp.Diff(before.Header, got.Header); diff != "" {
			t.Errorf("header (-direct +cached):\n%s", diff)
		}
	}
	if diff := cmp.Diff(conditional[0], conditional[1]); diff != "" {
		t.Errorf("the answer to a client that has the document (-direct +cached):\n%s", diff)
	}
}

// definition returns the CRD of a kind that does not exist yet.
func definition() *apiextensionsv1.CustomResourceDefinition {
	return testenv.Definition(schema.GroupVersionKind{Group: testenv.Random("g") + ".rolewright.test", Version: "v1", Kind: "Gadget"},
		testenv.ClusterScoped(), testenv.WithoutStatus())
}

// create creates the CRD and does not wait until its kind is served.
func (c *cluster) create(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	client, err := apiextensions.NewForConfig(c.cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create CRD %s: %v", crd.Name, err)
	}
	ctx := context.WithoutCancel(t.Context()) // the clean-up comes after the end of the test's context
	t.Cleanup(func() {
		if err := crds.Delete(ctx, crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete CRD %s: %v", crd.Name, err)
		}
	})
}

// places are the documents that contain the CRD's kind once it is served, each with the representation to request.
func places(crd *apiextensionsv1.CustomResourceDefinition) map[string]http.Header {
	list, none := http.Header{"Accept": {"application/json" + aggregated}}, http.Header{}
	group := crd.Spec.Group
	return map[string]http.Header{
		"/apis": list, "/apis?timeout=32s": none, "/apis/" + group: none, "/apis/" + group + "/v1": none,
		"/openapi/v3": none, "/openapi/v3/apis/" + group + "/v1": none,
		"/openapi/v2": {"Accept-Encoding": {"identity"}},
	}
}

func TestAPIServer_ANewKindIsThereAsSoonAsItIsServed(t *testing.T) {
	api := connect(t)
	cache := api.cache(t)
	crd := definition()
	gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: "v1", Resource: "gadgets"}
	api.warm(t, cache, crd, gvr)
	api.create(t, crd)
	began := time.Now()
	cache.Invalidate()

	var wg sync.WaitGroup
	for path, header := range places(crd) {
		wg.Go(func() {
			testenv.Eventually(t, path+" to show the kind", func(ctx context.Context) error {
				if time.Since(began) > unsettledFor/2 { // on a slow machine, this takes longer than the cache asks the API server each time
					cache.Invalidate()
				}
				if _, err := cached(ctx, t, cache, path, header); err != nil { // so that the cache has the document from before
					return err
				}
				if direct, err := api.direct(ctx, path, header); err != nil || !shows(direct, crd) {
					return fmt.Errorf("it is not there: %w", errors.Join(err, errAbsent))
				}
				if got, err := cached(ctx, t, cache, path, header); err != nil || !shows(got, crd) {
					t.Errorf("%s: the API server has the kind, the cache does not (%d, %v)", path, got.Status, err)
				}
				return nil
			})
		})
	}
	wg.Go(func() {
		testenv.Eventually(t, "lookup to find the kind", func(ctx context.Context) error {
			_, _ = cache.Lookup(ctx, gvr)
			if direct, err := api.direct(ctx, "/apis/"+crd.Spec.Group+"/v1", http.Header{}); err != nil || !shows(direct, crd) {
				return fmt.Errorf("it is not there: %w", errors.Join(err, errAbsent))
			}
			if _, err := cache.Lookup(ctx, gvr); err != nil {
				t.Errorf("the API server has the kind: %v", err)
			}
			return nil
		})
	})
	wg.Wait()
}

// errAbsent means that a kind is not served yet.
var errAbsent = errors.New("the kind is absent")

func shows(r reply, crd *apiextensionsv1.CustomResourceDefinition) bool {
	return r.Status == http.StatusOK && strings.Contains(r.Body, crd.Spec.Group)
}

// warm makes the cache load all documents before the kind is served.
func (c *cluster) warm(t *testing.T, cache *Cache, crd *apiextensionsv1.CustomResourceDefinition, gvr schema.GroupVersionResource) {
	t.Helper()
	for path, header := range places(crd) {
		if got, err := cached(t.Context(), t, cache, path, header); err != nil || shows(got, crd) {
			t.Fatalf("%s shows the kind already, or cannot be asked: %v", path, err)
		}
	}
	if _, err := cache.Lookup(t.Context(), gvr); !errors.Is(err, ErrNotFound) {
		t.Fatalf("look up what is not there: %v", err)
	}
}

func TestAPIServer_AKindOfWhichNobodyTellsShowsWithinTheWindow(t *testing.T) {
	api := connect(t)
	cache := api.cache(t)
	crd := definition()
	gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: "v1", Resource: "gadgets"}
	api.warm(t, cache, crd, gvr)
	api.create(t, crd)

	for path, header := range places(crd) {
		testenv.Eventually(t, path+" to show the kind", func(ctx context.Context) error {
			if direct, err := api.direct(ctx, path, header); err != nil || !shows(direct, crd) {
				return fmt.Errorf("it is not there: %w", errors.Join(err, errAbsent))
			}
			return nil
		})
		// However slow the machine is, an answer without the kind is only allowed for requests sent before the window has
		// passed.
		served := time.Now()
		testenv.Eventually(t, path+" to show the kind in the cache", func(ctx context.Context) error {
			asked := time.Now()
			got, err := cached(ctx, t, cache, path, header)
			if err == nil && shows(got, crd) {
				return nil
			}
			if asked.Sub(served) > freshFor {
				t.Errorf("%s: the kind is absent for who asks %v after it was served", path, asked.Sub(served))
				return nil
			}
			return errors.Join(err, errAbsent)
		})
	}
	got := must.Get(cache.Lookup(t.Context(), gvr))(t)
	got.Verbs = nil // TestAPIServer_LookupKnowsResources checks them
	must.Be(t, "what was got", Resource{GVR: gvr, Kind: "Gadget"}, got)
}

// orphan registers a group version without a backend, and returns when the API server knows that the backend does not
// answer.
func (c *cluster) orphan(t *testing.T) schema.GroupVersion {
	t.Helper()
	gv := schema.GroupVersion{Group: testenv.Random("broken") + ".rolewright.test", Version: "v1"}
	client, err := dynamic.NewForConfig(c.cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": gv.Version + "." + gv.Group},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(1), "versionPriority": int64(1),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create APIService %s: %v", service.GetName(), err)
	}
	ctx := context.WithoutCancel(t.Context()) // the clean-up comes after the end of the test's context
	t.Cleanup(func() {
		if err := services.Delete(ctx, service.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete APIService %s: %v", service.GetName(), err)
		}
	})
	testenv.Eventually(t, "the API server to miss the backend", func(ctx context.Context) error {
		got, err := c.direct(ctx, "/apis/"+gv.String(), http.Header{})
		if err == nil && got.Status != http.StatusServiceUnavailable {
			err = fmt.Errorf("it answers %d", got.Status)
		}
		return err
	})
	return gv
}

func TestAPIServer_AGroupWithoutABackendHarmsNoOther(t *testing.T) {
	api := connect(t)
	gv := api.orphan(t)
	cache := api.cache(t)

	_, err := cache.Lookup(t.Context(), gv.WithResource("things"))
	if err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("look up a resource of the broken group: %v", err)
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "deployments"},
	} {
		if _, err := cache.Lookup(t.Context(), gvr); err != nil {
			t.Error(err)
		}
	}
	for path, accept := range map[string]string{
		"/apis": "application/json" + aggregated, "/api": "application/json" + aggregated, "/api/v1": "", "/apis/apps/v1": "",
		"/openapi/v2": openAPIv2, "/openapi/v3": "", "/openapi/v3/apis/apps/v1": openAPIv3, "/apis/" + gv.String(): "",
	} {
		t.Run(path, func(t *testing.T) { api.compare(t, path, http.Header{"Accept": {accept}}) })
	}
}

func TestAPIServer_LookupKnowsResources(t *testing.T) {
	api := connect(t)
	cache := api.cache(t)
	own := testenv.CRD(t, api.cfg)
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	for _, want := range []Resource{
		{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespaced: true, Verbs: all},
		{GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
			Verbs: slices.DeleteFunc(slices.Clone(all), func(v string) bool { return v == "deletecollection" })},
		{GVR: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment", Namespaced: true, Verbs: all},
		{GVR: schema.GroupVersionResource{Group: own.Group, Version: own.Version, Resource: "widgets"}, Kind: own.Kind, Namespaced: true, Verbs: all},
		{GVR: schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"},
			Kind: "SubjectAccessReview", Verbs: []string{"create"}},
	} {
		got, err := cache.Lookup(t.Context(), want.GVR)
		if err != nil {
			t.Error(err)
			continue
		}
		got.Verbs = slices.Sorted(slices.Values(got.Verbs))
		must.Be(t, want.GVR.String(), want, got)
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "things"}, {Group: "none.rolewright.test", Version: "v1", Resource: "things"},
		{Version: "v7", Resource: "pods"}, {Group: "apps", Version: "v1beta1", Resource: "deployments"},
	} {
		if _, err := cache.Lookup(t.Context(), gvr); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: the error is %v, want ErrNotFound", gvr, err)
		}
	}
}

func TestAPIServer_WithoutACredentialForItRefusalsPassOn(t *testing.T) {
	api := connect(t)
	transport := must.Get(rest.TransportFor(rest.AnonymousClientConfig(api.cfg)))(t)
	cache := New(transport, api.server, testr.New(t))
	got := must.Get(cached(t.Context(), t, cache, "/apis", http.Header{}))(t)
	var status metav1.Status
	if err := json.Unmarshal([]byte(got.Body), &status); err != nil || int(status.Code) != got.Status || got.Status/100 != 4 {
		t.Errorf("the answer is %d %s (%v)", got.Status, got.Body, err)
	}
	if _, err := cache.Lookup(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}); err == nil ||
		errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "40") {
		t.Errorf("the error is %v", err)
	}
}
