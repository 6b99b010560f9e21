package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// sweepPage is how many objects are listed with one request.
const sweepPage = 500

// sweepUntilDone retries sweep until it succeeds or ctx ends.
func (r *reconciler) sweepUntilDone(ctx context.Context, namespaces []string) {
	again := retry{min: r.opts.RetryMin, max: r.opts.RetryMax}
	for n := int64(1); ; n++ {
		err := r.sweep(ctx, namespaces)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.Error(err, "Directories of deleted objects cannot be removed yet")
		select {
		case <-ctx.Done():
		case <-time.After(again.delay(n)):
		}
	}
}

// sweep removes the directories of objects of the kind that were deleted while no
// operator watched. It is called when the kind begins to be served in namespaces. It
// does not touch directories of other namespaces or kinds, or without a ticket.
func (r *reconciler) sweep(ctx context.Context, namespaces []string) error {
	kept := r.store.Tickets(r.gvk.Group, r.gvk.Kind) // before the objects are listed: later tickets are those of living objects
	if len(kept) == 0 {
		return nil
	}
	living := map[types.UID]bool{}
	resource := r.gvk.GroupVersion().WithResource(r.res.plural)
	for _, ns := range namespaces {
		if err := listUIDs(ctx, r.metadata.Resource(resource).Namespace(ns), living); err != nil {
			return fmt.Errorf("look for objects that are gone: %w", err)
		}
	}
	failpoint.Hit("sweep.listed")
	for _, t := range kept {
		if living[types.UID(t.UID)] || !hasNamespace(namespaces, t.Namespace) {
			continue
		}
		failpoint.Hit("sweep.before-remove")
		key := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
		if err := r.store.Forget(t.UID, r.pathOf(key)...); err != nil {
			return err
		}
		r.log.Info("Directories of an object removed that was deleted meanwhile", "namespace", t.Namespace, "name", t.Name)
	}
	return nil
}

// hasNamespace reports whether some has namespace, or NamespaceAll. It is true for an empty namespace.
func hasNamespace(some []string, namespace string) bool {
	return namespace == "" || slices.Contains(some, namespace) || slices.Contains(some, metav1.NamespaceAll)
}

func listUIDs(ctx context.Context, client metadata.ResourceInterface, into map[types.UID]bool) error {
	page := metav1.ListOptions{Limit: sweepPage}
	for {
		list, err := client.List(ctx, page)
		if err != nil {
			return err
		}
		for i := range list.Items {
			into[list.Items[i].UID] = true
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}
