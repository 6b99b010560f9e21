package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var errStillThere = errors.New("still there")

// gone returns nil when an object no longer exists.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return errStillThere
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return c
}

func widget(gvk schema.GroupVersionKind, namespace string, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(gvk)
	object.SetNamespace(namespace)
	object.SetName("sample")
	return object
}

func TestServer_CollectsWhatACustomResourceOwned(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	gvk, namespace := testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	c := newClient(t, cfg)
	owner := widget(gvk, namespace, map[string]any{})
	if err := c.Create(t.Context(), owner); err != nil {
		t.Fatalf("create the owner: %v", err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "owned",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)},
	}}
	if err := c.Create(t.Context(), owned); err != nil {
		t.Fatalf("create the owned object: %v", err)
	}
	if err := c.Delete(t.Context(), owner); err != nil {
		t.Fatalf("delete the owner: %v", err)
	}
	testenv.Eventually(t, "the owned object collected", func(ctx context.Context) error {
		return gone(c.Get(ctx, client.ObjectKeyFromObject(owned), owned))
	})
}

func TestUser_MayDoWhatTheRulesSayAndNothingElse(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	user := testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/status"}, Verbs: []string{"get"}},
	})
	core := kubernetes.NewForConfigOrDie(user).CoreV1()
	if _, err := core.ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list ConfigMaps, which is allowed: %v", err)
	}
	if _, err := core.Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets, which is not allowed: error %v, want forbidden", err)
	}
	viaFile, err := clientcmd.BuildConfigFromFlags("", testenv.Kubeconfig(t, user))
	if err != nil {
		t.Fatalf("read the user's kubeconfig: %v", err)
	}
	if _, err := kubernetes.NewForConfigOrDie(viaFile).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list ConfigMaps by the kubeconfig file: %v", err)
	}
}

func TestAuditEvents_CountsWritesAndKeepsCustomResources(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	gvk, namespace := testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	c := newClient(t, cfg)
	object := widget(gvk, namespace, map[string]any{"spec": map[string]any{"size": int64(1)}})
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create an object: %v", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secret"}, StringData: map[string]string{"key": "value"},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatalf("create a secret: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("get the object: %v", err)
	}
	var got []string
	for _, e := range testenv.AuditEvents(t, func(e testenv.AuditEvent) bool {
		return e.Writes() && e.ObjectRef.Namespace == namespace && e.User.Username == "rolewright-admin"
	}) {
		got = append(got, fmt.Sprintf("%s %s/%s %d with body: %t",
			e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Code, e.RequestObject != nil))
	}
	want := []string{"create widgets/sample 201 with body: true", "create secrets/secret 201 with body: false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestAddress_IsNobodysUntilTheTestEnds(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	for range 100 {
		address := testenv.Address(t)
		if told[address] {
			t.Errorf("%s is told twice", address)
		}
		told[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
