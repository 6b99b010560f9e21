package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/scenario"
)

// fieldManager is the name under which manifests are applied.
const fieldManager = "rolewright"

// installPatience is how long a kind may take to be served after its CRD was applied.
const installPatience = 10 * time.Second

// applier applies manifests the way kubectl apply --server-side does.
type applier struct {
	client    client.Client
	namespace string // for objects that name none
}

func newApplier(c cluster, namespaces []string) (*applier, error) {
	objects, err := client.New(c.config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("client for manifests: %w", err)
	}
	a := &applier{client: objects, namespace: c.namespace}
	if len(namespaces) > 0 {
		a.namespace = namespaces[0]
	}
	a.namespace = cmp.Or(a.namespace, "default")
	return a, nil
}

// apply applies the objects of a file in order, and returns their kinds and names.
func (a *applier) apply(ctx context.Context, path string) (names []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	objects, err := scenario.Decode(bufio.NewReader(f))
	if err != nil {
		return nil, err
	}
	for _, u := range objects {
		if err := a.one(ctx, u, a.namespace); err != nil {
			return names, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		names = append(names, u.GetKind()+"/"+u.GetName())
	}
	return names, nil
}

// one applies an object as soon as its kind is served. A namespaced object that names no
// namespace gets this one.
func (a *applier) one(ctx context.Context, u *unstructured.Unstructured, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, installPatience)
	defer cancel()
	for {
		namespaced, err := a.client.IsObjectNamespaced(u)
		if err == nil {
			if namespaced && u.GetNamespace() == "" {
				u.SetNamespace(namespace)
			}
			err = a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
		}
		if err == nil || !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
