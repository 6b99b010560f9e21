package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/testenv"
)

// runOf returns the client of a run with that grant.
func runOf(t *testing.T, p *Proxy, g Grant) kubernetes.Interface {
	t.Helper()
	_, _, token := admit(t, p, g)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: p.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca}, QPS: -1,
	})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return client
}

func administrator(t *testing.T) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	cfg := testenv.Config(t)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return cfg, client
}

func TestMatrix_ANamespaceIsNotInItself(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	owner := newOwner(t, cfg, testenv.CRD(t, cfg), home)
	inside := runOf(t, startProxy(t, cfg), Grant{Owner: owner, Inject: true, AdoptUnowned: true})
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	if _, err := inside.CoreV1().Namespaces().Patch(t.Context(), home, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("patch the owner's namespace: %v", err)
	}
	got, err := client.CoreV1().Namespaces().Get(t.Context(), home, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the namespace: %v", err)
	}
	if len(got.OwnerReferences) != 0 || !AnnotatedBy(got.Annotations, owner) {
		t.Errorf("references = %v, annotations = %v, want the owner in annotations", got.OwnerReferences, got.Annotations)
	}
}

// family holds functions that read the objects that a run has created for its owner.
type family struct {
	// inside reads those in the owner's namespace, outside the others.
	inside, outside []func(context.Context) error
}

// raise creates objects with every verb that can create.
func raise(t *testing.T, made, client kubernetes.Interface, home, away, name string) family {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: name}
	var f family
	for _, namespace := range []string{home, away} {
		if _, err := made.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create by POST: %v", err)
		}
		if _, err := made.CoordinationV1().Leases(namespace).Update(ctx, &coordinationv1.Lease{ObjectMeta: meta}, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("create by PUT: %v", err)
		}
		secret := []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\n")
		if _, err := made.CoreV1().Secrets(namespace).Patch(ctx, name, types.ApplyYAMLPatchType, secret, metav1.PatchOptions{FieldManager: "matrix"}); err != nil {
			t.Fatalf("create by apply: %v", err)
		}
		members := []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
				return err
			},
			func(ctx context.Context) error {
				_, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
				return err
			},
			func(ctx context.Context) error {
				_, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
				return err
			},
		}
		if namespace == home {
			f.inside = members
		} else {
			f.outside = members
		}
	}
	if _, err := made.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a cluster role: %v", err)
	}
	last := context.WithoutCancel(ctx)
	t.Cleanup(func() { _ = client.RbacV1().ClusterRoles().Delete(last, name, metav1.DeleteOptions{}) })
	f.outside = append(f.outside, func(ctx context.Context) error {
		_, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return f
}

func TestMatrix_GarbageCollectionTakesWhatIsInTheOwnersNamespaceAndNothingElse(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home, away := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	owner, survivor := newOwner(t, cfg, gvk, home), newOwner(t, cfg, gvk, home)
	p := startProxy(t, cfg)
	family := raise(t, runOf(t, p, Grant{Owner: owner, Inject: true}), client, home, away, testenv.Random("child-"))
	neighbours := raise(t, runOf(t, p, Grant{Owner: survivor, Inject: true}), client, home, away, testenv.Random("child-"))

	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	gvr := resourceOf(gvk)
	if err := objects.Resource(gvr).Namespace(home).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete the owner: %v", err)
	}
	for i, get := range family.inside {
		testenv.Eventually(t, fmt.Sprintf("child %d collected", i), func(ctx context.Context) error {
			err := get(ctx)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("not gone: %w", err)
		})
	}
	for i, get := range slices.Concat(family.outside, neighbours.inside, neighbours.outside) {
		if err := get(t.Context()); err != nil {
			t.Errorf("get object %d, which no one may collect: %v", i, err)
		}
	}
}

func resourceOf(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

func TestMatrix_OfManyRunsAtOnceEachOwnsWhatItCreates(t *testing.T) {
	t.Parallel()
	const owners, children = 20, 10
	cfg, client := administrator(t)
	home, away := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	p := startProxy(t, cfg)
	var all []Owner
	var wg sync.WaitGroup
	begin := make(chan struct{})
	errs := make(chan error, owners*children)
	for i := range owners {
		owner := newOwner(t, cfg, gvk, home)
		all = append(all, owner)
		made := runOf(t, p, Grant{Owner: owner, Inject: true})
		for j := range children {
			namespace := []string{home, away}[j%2]
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("child-%d-%d", i, j)}}
			wg.Go(func() {
				<-begin
				_, err := made.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{})
				errs <- err
			})
		}
	}
	close(begin)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatalf("create a child: %v", err)
		}
	}
	for i, owner := range all {
		for j := range children {
			namespace, name := []string{home, away}[j%2], fmt.Sprintf("child-%d-%d", i, j)
			got, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("get %s: %v", name, err)
			}
			refs := got.OwnerReferences
			owned := len(refs) == 1 && refs[0].UID == owner.UID && refs[0].Name == owner.Name && len(got.Annotations) == 0
			if namespace == away {
				owned = len(refs) == 0 && len(got.Annotations) == 2 && AnnotatedBy(got.Annotations, owner)
			}
			if !owned {
				t.Errorf("%s: references = %v, annotations = %v, want those of %s alone", name, refs, got.Annotations, owner.Name)
			}
		}
	}
}
