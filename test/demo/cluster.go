package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	definitionFile = "config/crd/bases/cache.example.com_memcacheds.yaml"
	sampleFile     = "config/samples/cache_v1alpha1_memcached.yaml"
	namespace      = "default"
)

// fromFile reads one object.
func fromFile(path string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read an example: %w; call the demo from the repository's root", err)
	}
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &obj.Object); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return obj, nil
}

// install creates the kind and waits until the API server serves it.
func (d *demo) install(ctx context.Context) error {
	crd, err := fromFile(definitionFile)
	if err != nil {
		return err
	}
	if err := d.client.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install the kind: %w", err)
	}
	sample, err := fromFile(sampleFile)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(sample.GroupVersionKind())
	return poll(ctx, "the kind to be served", func() (bool, error) {
		return d.client.List(ctx, list, client.InNamespace(namespace)) == nil, nil
	})
}

// uninstall removes the kind, and with it every object of it; an object that
// still waits for a finalizer no one runs any more is let go.
func (d *demo) uninstall(ctx context.Context) error {
	if obj, err := d.read(ctx); err == nil {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(d.client.Patch(ctx, obj, patch)); err != nil {
			return fmt.Errorf("let the object go: %w", err)
		}
	}
	farewell := &corev1.ConfigMap{}
	farewell.Namespace, farewell.Name = namespace, "memcached-sample-farewell"
	if err := client.IgnoreNotFound(d.client.Delete(ctx, farewell)); err != nil {
		return fmt.Errorf("remove the farewell: %w", err)
	}
	crd, err := fromFile(definitionFile)
	if err != nil {
		return err
	}
	if err := client.IgnoreNotFound(d.client.Delete(ctx, crd)); err != nil {
		return fmt.Errorf("uninstall the kind: %w", err)
	}
	return nil
}

func (d *demo) createSample(ctx context.Context) error {
	obj, err := fromFile(sampleFile)
	if err != nil {
		return err
	}
	obj.SetNamespace(namespace)
	if err := d.client.Create(ctx, obj); err != nil {
		return fmt.Errorf("create the sample: %w", err)
	}
	return nil
}

func (d *demo) resize(ctx context.Context, size int) error {
	obj, err := d.read(ctx)
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"size":%d}}`, size)
	if err := d.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change the sample: %w", err)
	}
	return nil
}

// read is the sample as it is now.
func (d *demo) read(ctx context.Context) (*unstructured.Unstructured, error) {
	obj, err := fromFile(sampleFile)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(namespace)
	return obj, d.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// remove deletes the sample and follows its finalizer run until it is gone.
func (d *demo) remove(ctx context.Context) error {
	obj, err := d.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := d.client.Delete(ctx, obj); err != nil {
		return fmt.Errorf("delete the sample: %w", err)
	}
	if err := d.follow(ctx, "deleted", 0); err != nil {
		return err
	}
	err = poll(ctx, "the object to go", func() (bool, error) {
		_, err := d.read(ctx)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	d.screen.line("  the object is gone, %s after its deletion", time.Since(began).Round(100*time.Millisecond))
	return d.awaitCollection(ctx)
}

// awaitCollection waits until the garbage collector has taken what the object
// owned, and shows what the finalizer's role left on purpose. The collector
// looks for new kinds every half minute; before that it knows no owner of ours.
func (d *demo) awaitCollection(ctx context.Context) error {
	d.screen.line("  waiting for Kubernetes to collect what it owned (it looks for new kinds every 30 s)")
	var left []child
	err := poll(ctx, "the garbage collector", func() (bool, error) {
		var err error
		left, err = d.children(ctx)
		return !slices.ContainsFunc(left, func(c child) bool { return c.owned }), err
	})
	if err != nil {
		return err
	}
	for _, c := range left {
		d.screen.line("  left by the finalizer's role: %s %s", c.kind, c.name)
	}
	return nil
}

// child is one object that the roles made.
type child struct {
	kind, name, state string
	// owned is true if it goes with its owner.
	owned bool
}

// children are the objects that bear the sample's name and label.
func (d *demo) children(ctx context.Context) ([]child, error) {
	sample, err := fromFile(sampleFile)
	if err != nil {
		return nil, err
	}
	in := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/instance": sample.GetName()}}
	var out []child
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.PodList{}} {
		if err := d.client.List(ctx, list, in...); err != nil {
			return nil, fmt.Errorf("list what the role made: %w", err)
		}
		items, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		if err != nil {
			return nil, fmt.Errorf("read what the role made: %w", err)
		}
		found, _, _ := unstructured.NestedSlice(items, "items")
		for _, item := range found {
			out = append(out, describe(list, item))
		}
	}
	return out, nil
}

// poll asks until the answer is yes; the limit is more than the demo needs.
func poll(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("waited 2 minutes for %s", what))
	defer cancel()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
