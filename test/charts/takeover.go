package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// takeOver has the second operator go on with a release that the first has made and changed. It fails if that makes a
// revision or changes an object.
func (b *bench) takeOver(ctx context.Context, first, second program, p project) error {
	gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: p.kind}
	if err := b.install(ctx, gvk); err != nil {
		return err
	}
	namespace := strings.ToLower("switch-" + p.kind)
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	process, err := b.start(ctx, first, p, namespace)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(p.spec)}}
	object.SetGroupVersionKind(gvk)
	object.SetNamespace(namespace)
	object.SetName("sample")
	err = b.client.Create(ctx, object)
	if err == nil {
		err = b.released(ctx, object, "InstallSuccessful")
	}
	if err == nil {
		err = b.changeSpec(ctx, object, p.change)
	}
	err = errors.Join(err, pause(ctx, time.Second))
	process.stop()
	if err != nil {
		return err
	}
	before, revision, err := b.left(ctx, namespace)
	if err != nil {
		return err
	}
	if process, err = b.start(ctx, second, p, namespace); err != nil {
		return err
	}
	defer process.stop()
	err = until(ctx, "the object to be Ready", func() bool {
		current := object.DeepCopy()
		return b.client.Get(ctx, client.ObjectKeyFromObject(object), current) == nil && strings.Contains(conditions(current), "Ready=True")
	})
	if err != nil {
		return fmt.Errorf("%w; the end of the log:\n%s", err, process.tail())
	}
	if err := pause(ctx, 2*b.period); err != nil {
		return err
	}
	after, now, err := b.left(ctx, namespace)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" || now != revision {
		return fmt.Errorf("%s takes over from %s: revision %d became %d; objects (-before +after):\n%s", second.name, first.name, revision, now, diff)
	}
	fmt.Printf("%s: %s took over from %s: revision %d stays, no object changed\n\n", p.name, second.name, first.name, revision)
	return b.client.Delete(ctx, object)
}
