package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// A Pod that looks like an operator's gets the user's token only if the user has named its namespace.
func TestOperatorPod_OnlyInTheNamedNamespace(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "lure"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: apiPortName, ContainerPort: 1}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	})
	for namespace, found := range map[string]bool{"": false, "operators": false, "tenant": true} {
		if pods, err := operatorPods(t.Context(), client, namespace, "", true); (err == nil) != found {
			t.Errorf("in namespace %q: %d Pods, %v", namespace, len(pods), err)
		}
	}
}

// If there are several Pods, the user has to name one. Errors list the Pods.
func TestOperatorPod_OfSeveral(t *testing.T) {
	t.Parallel()
	pod := func(name, port string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{}, {Ports: []corev1.ContainerPort{{Name: "other"}, {Name: port, ContainerPort: 6791}}}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	client := fake.NewClientset(pod("a", apiPortName), pod("b", apiPortName), pod("c", "metrics"))
	for name, want := range map[string]string{
		"a": "a", "b": "b",
		"":  "there are several Pods of operators in namespace operators: a, b; name one with --operator-pod",
		"c": `--operator-pod "c": the running Pods of operators in namespace operators are a, b`,
	} {
		found, err := operatorPods(t.Context(), client, "operators", name, false)
		if err != nil {
			must.Be(t, "error for "+name, want, err.Error())
			continue
		}
		must.Be(t, "Pod for "+name, want, found[0].Name)
	}
	must.Be(t, "replicas", 2, len(must.Get(operatorPods(t.Context(), client, "operators", "", true))(t)))
	other := pod("d", apiPortName)
	other.Labels = map[string]string{"app.kubernetes.io/name": "another-operator"}
	must.Get(client.CoreV1().Pods("operators").Create(t.Context(), other, metav1.CreateOptions{}))(t)
	if found, err := operatorPods(t.Context(), client, "operators", "", true); err == nil {
		t.Errorf("%d Pods of two operators get the token", len(found))
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

// A real API server forwards the port of the Pod; kwok sends back what it receives.
func TestForward_ReachesThePod(t *testing.T) {
	t.Parallel()
	cfg := testenv.Own(t, "--kwok", "--pods-exec")
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	namespace := testenv.Namespace(t, cfg)
	automount := false
	must.Get(client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		Spec: corev1.PodSpec{NodeName: "rolewright-0", AutomountServiceAccountToken: &automount, Containers: []corev1.Container{
			{Name: "manager", Image: "manager", Ports: []corev1.ContainerPort{{Name: apiPortName, ContainerPort: 6791}}},
		}},
	}, metav1.CreateOptions{}))(t)
	var base string
	var end func()
	testenv.Eventually(t, "the Pod to run", func(ctx context.Context) error {
		pods, err := operatorPods(ctx, client, namespace, "", false)
		if err == nil {
			base, end, err = forward(ctx, cfg, client, pods[0])
		}
		return err
	})
	defer end()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(base, "http://")))(t)
	defer conn.Close()
	for _, word := range []string{"there and back", "again"} {
		must.Get(conn.Write([]byte(word)))(t)
		got := make([]byte, len(word))
		must.Get(io.ReadFull(conn, got))(t)
		must.Be(t, "what comes back", word, string(got))
	}
}
