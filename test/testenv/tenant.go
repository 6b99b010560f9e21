package testenv

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Namespace makes a namespace of the test's own and returns its name, once what every namespace gets is in it: the service account
// without which no Pod is admitted, and a ConfigMap. It is deleted when the test ends, without waiting.
func Namespace(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	client := clientset(t, cfg)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Random("test-")}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace %s: %v", namespace.Name, err)
	}
	ctx := context.WithoutCancel(t.Context()) // clean-up comes after the test's context has ended
	t.Cleanup(func() {
		// Tests delete namespaces themselves, or stop the server.
		_ = client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
	})
	Eventually(t, "the service account and the ConfigMap of namespace "+namespace.Name, func(ctx context.Context) error {
		_, noAccount := client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		_, noMap := client.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(noAccount, noMap)
	})
	return namespace.Name
}

// Kubeconfig writes cfg as a kubeconfig file that only its owner can read, and returns its path. The file is deleted when
// the test ends.
func Kubeconfig(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	const name = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: cfg.CertData, ClientCertificate: cfg.CertFile,
			ClientKeyData: cfg.KeyData, ClientKey: cfg.KeyFile,
			Token: cfg.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
	if err != nil {
		t.Fatalf("write a kubeconfig: %v", err)
	}
	return path
}

// User creates a service account with the permissions of the rules in every namespace, besides those that every account
// has, and returns the configuration of its client. It and its rights are deleted when the test ends.
func User(t testing.TB, cfg *rest.Config, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	client := clientset(t, cfg)
	namespace := Namespace(t, cfg)
	name := Random("user-")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create service account %s: %v", name, err)
	}
	grant(t, client, name, namespace, rules)
	lifetime := int64(24 * 60 * 60) // longer than any test
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token for service account %s: %v", name, err)
	}
	user := rest.AnonymousClientConfig(cfg)
	user.BearerToken = token.Status.Token
	user.QPS = cfg.QPS
	awaitGrant(t, user, rules)
	return user
}

func grant(t testing.TB, client kubernetes.Interface, name, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	rbac := client.RbacV1()
	meta := metav1.ObjectMeta{Name: name}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create cluster role %s: %v", name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create cluster role binding %s: %v", name, err)
	}
	ctx := context.WithoutCancel(t.Context()) // clean-up comes after the test's context has ended
	t.Cleanup(func() {
		// Tests take rights away themselves, or stop the server.
		_ = rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// errNotGranted says that the API server has not seen the rights yet.
var errNotGranted = errors.New("not allowed yet")

// awaitGrant waits until the API server has seen the rights, which it reads from a cache.
func awaitGrant(t testing.TB, user *rest.Config, rules []rbacv1.PolicyRule) {
	t.Helper()
	client := clientset(t, user)
	for _, rule := range rules {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: question(rule)}
		Eventually(t, "the user's rights", func(ctx context.Context) error {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = errNotGranted
			}
			return err
		})
	}
}

// question asks for the first thing that a rule allows; the rest of it is seen at the same time.
func question(rule rbacv1.PolicyRule) authorizationv1.SelfSubjectAccessReviewSpec {
	if len(rule.NonResourceURLs) > 0 {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]},
		}
	}
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{
		Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Verb: rule.Verbs[0],
	}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}
}

func clientset(t testing.TB, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return client
}
