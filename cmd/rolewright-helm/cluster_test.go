package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// cluster is an API server with a few kinds. It stores objects, among them the object "it" of the kind Kettle.
type cluster struct {
	t     *testing.T
	chart string
	from  []valuesSource

	mu      sync.Mutex
	served  map[string][]metav1.APIResource
	objects map[string]*unstructured.Unstructured
	refuse  func(r *http.Request) int
}

const (
	itself     = "/apis/demo.example.com/v1/namespaces/ns/kettles/it"
	configMaps = "/api/v1/namespaces/ns/configmaps/"
	roles      = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
	record     = "/api/v1/namespaces/ns/secrets/sh.helm.release.v1.it.v1"
)

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, chart: t.TempDir(), objects: map[string]*unstructured.Unstructured{}, served: map[string][]metav1.APIResource{
		"v1":                           {{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "secrets", Kind: "Secret", Namespaced: true}},
		"rbac.authorization.k8s.io/v1": {{Name: "clusterroles", Kind: "ClusterRole"}},
		"demo.example.com/v1":          {{Name: "kettles", Kind: "Kettle", Namespaced: true}, {Name: "kettles/status", Kind: "Kettle", Namespaced: true}},
		"cups.example.com/v1":          {{Name: "cups", Kind: "Cup", Namespaced: true}},
	}}
	c.write(filepath.Join(c.chart, "Chart.yaml"), "{apiVersion: v2, name: kettle, version: 0.1.0}\n")
	c.objects[itself] = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "demo.example.com/v1", "kind": "Kettle", "metadata": map[string]any{"name": "it", "namespace": "ns", "uid": "1", "generation": int64(1)},
	}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	c.write(config, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}`, server.URL))
	t.Setenv("KUBECONFIG", config)
	return c
}

func (c *cluster) write(file, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// handler returns the handler of an action, and the file of its reports.
func (c *cluster) handler(action string) (*handler, string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "events")
	c.write(file, "")
	reports, err := openReports(file)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(reports.close)
	h := &handler{in: &input{Object: *c.get(itself).DeepCopy()}, reports: reports, timeout: time.Minute}
	h.in.Run.Action, h.in.settings.Chart, h.in.settings.ValuesFrom = action, c.chart, c.from
	return h, file
}

// run runs an action, and also returns its reports.
func (c *cluster) run(action string) (result, string, error) {
	c.t.Helper()
	h, file := c.handler(action)
	result, err := h.act(c.t.Context())
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		c.t.Fatal(readErr)
	}
	return result, string(text), err
}

// release installs a manifest as revision 1, in the state deployed.
func (c *cluster) release(manifest string) {
	c.t.Helper()
	h, _ := c.handler("reconcile")
	rel := &release.Release{
		Name: "it", Namespace: "ns", Version: 1, Manifest: manifest, Info: &release.Info{Status: common.StatusDeployed}, Labels: map[string]string{labelSalt: "s"},
		Chart: &v2.Chart{Metadata: &v2.Metadata{APIVersion: "v2", Name: "kettle", Version: "0.1.0"}},
	}
	c.try(h.connect())
	c.makes(manifest)
	c.try(h.config.Releases.Create(rel))
	h.trusted = true
	c.try(h.writeDeployed(c.t.Context(), rel))
}

// after adds a revision after the last one, with that salt and status.
func (c *cluster) after(manifest, salt string, status common.Status) *release.Release {
	c.t.Helper()
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	last, err := h.last()
	c.try(err)
	next := *last
	next.Version, next.Manifest, next.Hooks, next.Info = last.Version+1, manifest, nil, &release.Info{Status: status}
	next.Labels = map[string]string{labelSalt: salt, labelInputs: "others"}
	c.try(h.config.Releases.Create(&next))
	return &next
}

// rewrite changes the record of the last revision.
func (c *cluster) rewrite(change func(last *release.Release)) {
	c.t.Helper()
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	last, err := h.last()
	c.try(err)
	change(last)
	c.try(h.config.Releases.Update(last))
}

// makes creates the objects of a manifest as Helm does for the release.
func (c *cluster) makes(manifest string) {
	c.t.Helper()
	h, _ := c.handler("reconcile")
	c.try(h.connect())
	list, err := h.kube.Build(strings.NewReader(manifest), false)
	c.try(err)
	for _, info := range list {
		c.try(h.helmMarks(info))
	}
	_, err = h.kube.Create(list, kube.ClientCreateOptionServerSideApply(false, false))
	c.try(err)
}

// get returns the object at a path; nil if there is none.
func (c *cluster) get(at string) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[at]
}

// change changes the object at a path.
func (c *cluster) change(at string, change func(is *unstructured.Unstructured)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.objects[at])
	c.clean(at)
}

// try fails the test if err is not nil.
func (c *cluster) try(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// clean removes an object that is marked for deletion and has no finalizers.
func (c *cluster) clean(at string) {
	if is := c.objects[at]; is.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0 {
		delete(c.objects, at)
	}
}

// ServeHTTP implements [http.Handler].
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/openapi/v2" {
		return // no schemas for validation
	}
	w.Header().Set("Content-Type", "application/json")
	code, answer := http.StatusOK, any(nil)
	if c.refuse != nil {
		code = max(code, c.refuse(r))
	}
	if code == http.StatusOK {
		if answer = c.discovery(r.URL.Path); answer == nil {
			code, answer = c.serve(r)
		}
	}
	if code >= http.StatusBadRequest {
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), // has three digits
			Message: "refused by the test", Reason: map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonAlreadyExists}[code],
		}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// discovery returns the discovery document of a path; nil if the path has none.
func (c *cluster) discovery(at string) any {
	switch at {
	case "/version":
		return map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for gv := range c.served {
			if group, version, found := strings.Cut(gv, "/"); found {
				of := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version}
				list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{of}, PreferredVersion: of})
			}
		}
		return list
	}
	gv := strings.TrimPrefix(strings.TrimPrefix(at, "/apis/"), "/api/")
	if resources, found := c.served[gv]; found {
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: resources}
	}
	return nil
}

// serve serves a request for objects.
func (c *cluster) serve(r *http.Request) (int, any) {
	at := strings.TrimSuffix(r.URL.Path, "/status")
	var body bytes.Buffer
	_, _ = bufio.NewReader(r.Body).WriteTo(&body)
	is := c.objects[at]
	switch {
	case r.Method == http.MethodPost:
		return c.put(path.Join(at, nameIn(body.Bytes())), body.Bytes())
	case r.Method == http.MethodGet && path.Base(at) == "secrets":
		return http.StatusOK, c.list(at, r.URL.Query().Get("labelSelector"))
	case is == nil:
		return http.StatusNotFound, nil
	case r.Method == http.MethodPut:
		return c.put(at, body.Bytes())
	case r.Method == http.MethodPatch:
		var patch map[string]any
		if json.Unmarshal(body.Bytes(), &patch) != nil {
			return http.StatusBadRequest, nil
		}
		c.objects[at] = &unstructured.Unstructured{Object: loader.MergeMaps(is.Object, patch)}
		return http.StatusOK, c.objects[at]
	case r.Method == http.MethodDelete:
		now := metav1.Now()
		is.SetDeletionTimestamp(&now)
		c.clean(at)
	}
	return http.StatusOK, is
}

func (c *cluster) put(at string, body []byte) (int, any) {
	is := &unstructured.Unstructured{}
	if err := is.UnmarshalJSON(body); err != nil {
		return http.StatusBadRequest, nil
	}
	c.objects[at] = is
	return http.StatusOK, is
}

func (c *cluster) list(at, selector string) any {
	which, err := labels.Parse(selector)
	if err != nil {
		c.t.Error(err)
	}
	items := []any{}
	for is, object := range c.objects {
		if path.Dir(is) == at && which.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object.Object)
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "SecretList", "items": items}
}

func nameIn(body []byte) string {
	var is metav1.PartialObjectMetadata
	_ = json.Unmarshal(body, &is)
	return is.Name
}
