package testenv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// CRDOption changes what CRD installs.
type CRDOption func(*apiextensionsv1.CustomResourceDefinition)

// WithKind names the kind; without it the kind is Widget. The plural is the lower-case kind with an s.
func WithKind(kind string) CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		singular := strings.ToLower(kind)
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
			Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s",
		}
	}
}

// WithGroup puts the kind into a group that another CRD of the same test has made: two kinds in one group.
func WithGroup(group string) CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Group = group }
}

// ClusterScoped makes the kind belong to no namespace.
func ClusterScoped() CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped }
}

// WithoutStatus leaves the status subresource out: the status is part of the object like any other field.
func WithoutStatus() CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Subresources = nil
		}
	}
}

// WithSchema replaces the schema that keeps everything by one that prunes what it does not name.
func WithSchema(root apiextensionsv1.JSONSchemaProps) CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: root.DeepCopy()}
		}
	}
}

// WithVersions serves the kind in these versions instead of v1alpha1; the first is the stored one and the one that CRD
// returns. It comes before WithoutStatus and WithSchema, which apply to the versions that are there.
func WithVersions(first string, more ...string) CRDOption {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions = nil
		for _, name := range append([]string{first}, more...) {
			crd.Spec.Versions = append(crd.Spec.Versions, version(name, name == first))
		}
	}
}

// CRD installs a new kind in an API group that no other test uses, and returns when objects of it can be created. The
// schema keeps unknown fields and has a status subresource unless options say otherwise. The kind and its objects are
// deleted when the test ends, without waiting.
func CRD(t testing.TB, cfg *rest.Config, opts ...CRDOption) schema.GroupVersionKind {
	t.Helper()
	crd := Definition(schema.GroupVersionKind{Group: Random("g") + ".rolewright.test", Version: "v1alpha1", Kind: "Widget"}, opts...)
	InstallCRD(t, cfg, crd)
	return schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
}

// Definition is what CRD installs, for a kind that has a name.
func Definition(gvk schema.GroupVersionKind, opts ...CRDOption) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    gvk.Group,
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version(gvk.Version, true)},
		},
	}
	WithKind(gvk.Kind)(crd)
	for _, opt := range opts {
		opt(crd)
	}
	crd.Name = crd.Spec.Names.Plural + "." + crd.Spec.Group
	return crd
}

// InstallCRD installs a definition as it is, returns when objects of it can be made, and deletes it when the test ends,
// without waiting. A definition whose group other tests use too clashes with them.
func InstallCRD(t testing.TB, cfg *rest.Config, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	client, err := apiextensions.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client for CRDs: %v", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create CRD %s: %v", crd.Name, err)
	}
	ctx := context.WithoutCancel(t.Context()) // clean-up comes after the test's context has ended
	t.Cleanup(func() {
		// Tests delete CRDs themselves, or stop the server.
		_ = crds.Delete(ctx, crd.Name, metav1.DeleteOptions{})
	})
	Eventually(t, "CRD "+crd.Name+" served", func(ctx context.Context) error { return served(ctx, cfg, client, crd) })
}

// served is nil when every served version of a kind is in the discovery documents and answers.
func served(ctx context.Context, cfg *rest.Config, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client for objects: %w", err)
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
		known, err := client.Discovery().ServerResourcesForGroupVersion(resource.GroupVersion().String())
		if err != nil {
			return fmt.Errorf("discover %s: %w", resource.GroupVersion(), err)
		}
		if !slices.ContainsFunc(known.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }) {
			return fmt.Errorf("discover %s: not there yet", resource)
		}
		if _, err := objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", resource, err)
		}
	}
	return nil
}

func version(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
	keep := true
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: stored,
		Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
		},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}
}

// Random returns prefix followed by characters that no other test has, fit for any name in Kubernetes.
func Random(prefix string) string {
	return fmt.Sprintf("%s%010x", prefix, rand.Uint64N(1<<40))
}

// patience bounds a wait for something that must happen. It ends a broken test with a message, long before any limit of
// the whole run, but gives a loaded machine plenty of time.
const patience = 3 * time.Minute

// Eventually asks until the answer is nil, and fails the test with the last answer if that never happens. It asks often
// at first, and four times a second what takes longer: a machine that is busy with the tests has no time for questions.
func Eventually(t testing.TB, what string, ask func(context.Context) error) {
	t.Helper()
	var last error
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	delay := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.2, Steps: 100, Cap: 250 * time.Millisecond}.DelayFunc()
	err := delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		answer := ask(ctx)
		if last == nil || ctx.Err() == nil { // what is asked when time is up says only that
			last = answer
		}
		return answer == nil, nil
	})
	if err != nil {
		t.Fatalf("wait for %s: %v (last answer: %v)", what, err, last)
	}
}
