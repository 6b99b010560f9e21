package main

import (
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

// A Pod that looks like an operator's gets the user's token only where the user has named its namespace.
func TestOperatorPod_OnlyInTheNamedNamespace(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "lure"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: apiPortName, ContainerPort: 1}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	})
	for namespace, found := range map[string]bool{"": false, "operators": false, "tenant": true} {
		if pod, _, err := operatorPod(t.Context(), client, namespace); (err == nil) != found {
			t.Errorf("in namespace %q: Pod %q, %v", namespace, pod.Name, err)
		}
	}
}

func TestCredentials_DoNotGoThroughTheProxyOfTheCluster(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://cluster", BearerToken: "t", Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"})}
	c := must.Get(new(readerOptions).credentials(t.Context(), config, nil))(t)
	if c.Proxy != nil || c.BearerToken != "t" {
		t.Errorf("%+v", c)
	}
}
