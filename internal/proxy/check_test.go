package proxy

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// noWrites is a tracker that fails the test when the proxy tells it something.
type noWrites struct{ t *testing.T }

func (n noWrites) Expect(c Child)  { n.t.Errorf("a dry run is expected: %v", c) }
func (noWrites) Found(Child)       {}
func (n noWrites) Wrote(c Child)   { n.t.Errorf("a dry run has written: %v", c) }
func (n noWrites) Deleted(c Child) { n.t.Errorf("a dry run has deleted: %v", c) }

func TestCheckMode_WritesChangeNothingAndAreAnswered(t *testing.T) {
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	direct := must.Get(kubernetes.NewForConfig(cfg))(t).CoreV1()
	p := startProxy(t, cfg)
	a, client, _ := admit(t, p, Grant{
		CheckMode: true, Inject: true, AdoptUnowned: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: ns, Name: "o", UID: "u"}, Tracker: noWrites{t},
	})
	inJSON := clientOf(t, a).CoreV1()
	packed := rest.CopyConfig(configOf(t, a))
	packed.ContentType = "application/vnd.kubernetes.protobuf"
	inProtobuf := must.Get(kubernetes.NewForConfig(packed))(t).CoreV1()

	is := must.Get(direct.ConfigMaps(ns).Create(t.Context(), configMap("is", "a"), metav1.CreateOptions{}))(t)
	must.Get(direct.Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{}))(t)
	before := must.Get(direct.ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}))(t)
	patch := []byte(`{"data":{"key":"b"}}`)
	for what, write := range map[string]func() error{
		"create": func() error {
			return second(inJSON.ConfigMaps(ns).Create(t.Context(), configMap("new", "b"), metav1.CreateOptions{}))
		},
		"create packed": func() error {
			return second(inProtobuf.ConfigMaps(ns).Create(t.Context(), configMap("new", "b"), metav1.CreateOptions{}))
		},
		"create a Namespace": func() error {
			return second(inJSON.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-b"}}, metav1.CreateOptions{}))
		},
		"update": func() error {
			return second(inJSON.ConfigMaps(ns).Update(t.Context(), configMap("is", "b"), metav1.UpdateOptions{}))
		},
		"patch": func() error {
			return second(inJSON.ConfigMaps(ns).Patch(t.Context(), "is", types.MergePatchType, patch, metav1.PatchOptions{}))
		},
		"apply": func() error {
			return second(inJSON.ConfigMaps(ns).Patch(t.Context(), "new", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`), metav1.PatchOptions{FieldManager: "m"}))
		},
		"delete":        func() error { return inJSON.ConfigMaps(ns).Delete(t.Context(), "is", metav1.DeleteOptions{}) },
		"delete packed": func() error { return inProtobuf.ConfigMaps(ns).Delete(t.Context(), "is", *metav1.NewDeleteOptions(0)) },
		"delete by UID": func() error {
			return inJSON.ConfigMaps(ns).Delete(t.Context(), "is", *metav1.NewPreconditionDeleteOptions(string(is.UID)))
		},
		"delete all": func() error {
			return inJSON.ConfigMaps(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"delete without body": func() error {
			code, body, err := send(t.Context(), client, http.MethodDelete, p.URL()+"/api/v1/namespaces/"+ns+"/configmaps/is?dryRun=&gracePeriodSeconds=0", "")
			return answered(code, body, err)
		},
		"evict": func() error {
			code, body, err := send(t.Context(), client, http.MethodPost, p.URL()+"/api/v1/namespaces/"+ns+"/pods/pod/eviction",
				`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"pod"}}`)
			return answered(code, body, err)
		},
		"status": func() error {
			return second(inJSON.Pods(ns).Patch(t.Context(), "pod", types.MergePatchType, []byte(`{"status":{"message":"b"}}`), metav1.PatchOptions{}, "status"))
		},
	} {
		if err := write(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	after := must.Get(direct.ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}))(t)
	must.Be(t, "the ConfigMaps", before.Items, after.Items)
	pod := must.Get(direct.Pods(ns).Get(t.Context(), "pod", metav1.GetOptions{}))(t)
	if pod.DeletionTimestamp != nil || pod.Status.Message != "" {
		t.Errorf("the Pod is %v", pod)
	}
	if _, err := direct.Namespaces().Get(t.Context(), ns+"-b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Namespace: %v", err)
	}
	// The API server still checks preconditions.
	if err := inJSON.ConfigMaps(ns).Delete(t.Context(), "is", *metav1.NewPreconditionDeleteOptions("other")); !apierrors.IsConflict(err) {
		t.Errorf("the deletion of another object of the name: %v", err)
	}
}

func TestCheckMode_WhatCannotBeADryRunIsRefused(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, client, _ := admit(t, p, Grant{CheckMode: true})
	const n = "/api/v1/namespaces/n/"
	for _, r := range fenced() {
		code, body, err := send(t.Context(), client, r[0], p.URL()+r[1], "{}")
		if err != nil || code != http.StatusOK && (code != http.StatusForbidden || !strings.Contains(body, "check mode")) {
			t.Errorf("%s %s: %d %s %v", r[0], r[1], code, body, err)
		}
	}
	if code, body, err := send(t.Context(), client, http.MethodDelete, p.URL()+n+"configmaps/x", "kind: DeleteOptions"); err != nil || code != http.StatusForbidden {
		t.Errorf("options in YAML: %d %s %v", code, body, err)
	}
	console := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/apis/example.com/v1/namespaces/n/machines/m/console", http.NoBody))(t)
	console.Header.Set("Connection", "Upgrade")
	console.Header.Set("Upgrade", "websocket")
	resp, err := client.Do(console)
	must.Do(t, err)
	defer resp.Body.Close()
	must.Be(t, "the answer to a connection that is no watch", http.StatusForbidden, resp.StatusCode)
	for _, seen := range api.seen() {
		if seen.Method == http.MethodGet {
			continue // discovery
		}
		if !strings.HasSuffix(seen.URI, "?dryRun=All") || seen.Method == http.MethodDelete && seen.Body != `{"dryRun":["All"]}` {
			t.Errorf("%s %s %s has arrived", seen.Method, seen.URI, seen.Body)
		}
	}
	for _, r := range unfenced() {
		if code, body, err := send(t.Context(), client, r[0], p.URL()+r[1], ""); err != nil || code != http.StatusOK {
			t.Errorf("%s %s: %d %s %v", r[0], r[1], code, body, err)
		}
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value}}
}

func second[T any](_ T, err error) error { return err }

// answered returns the error of a request that the API server has refused.
func answered(code int, body string, err error) error {
	if err == nil && code >= http.StatusMultipleChoices {
		err = apierrors.NewGenericServerResponse(code, "", corev1.Resource(""), "", body, 0, false)
	}
	return err
}
