package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/proxy"
)

// pruneFinalizer keeps an object until its dependents in other namespaces are
// deleted, which garbage collection does not do.
const pruneFinalizer = "rolewright.dev/prune"

// absentFor is how long a kind must not be found before it counts as gone: an API server that has just
// started does not know all of them yet. It is longer than the time for which discovery keeps an answer.
const absentFor = 3 * time.Second

// prunePage is how many objects one request lists.
const prunePage = 500

// pruneAndRemoveFinalizer releases an object whose finalizer run has succeeded or was given up.
func (r *reconciler) pruneAndRemoveFinalizer(ctx context.Context, s *scope) (phaseResult, error) {
	sure, err := r.prune(ctx, s)
	if err != nil {
		r.showStuck(ctx, s, err)
		return finished, err
	}
	if !sure {
		return notThere, nil
	}
	return r.removeFinalizer(ctx, s)
}

// prune deletes the objects with owner annotations of the object, if it has pruneFinalizer.
// Objects with owner references are left to garbage collection. If it cannot delete one, the
// object stays, and the deletion is retried with backoff. A kind that is not served any more has
// no objects; sure is false until attempts have found that for absentFor.
func (r *reconciler) prune(ctx context.Context, s *scope) (sure bool, err error) {
	if !slices.Contains(s.object.GetFinalizers(), pruneFinalizer) {
		return true, nil
	}
	owner := proxy.Owner{GVK: r.gvk, Namespace: s.key.Namespace, Name: s.key.Name, UID: s.object.GetUID()}
	before := s.memory.notServed
	s.memory.notServed = map[schema.GroupVersionResource]time.Time{}
	sure = true
	for _, res := range r.prunable(s) {
		known, err := r.opts.Proxy.Discovery().LookupAnyVersion(ctx, res)
		if errors.Is(err, discovery.ErrNotFound) {
			since, again := before[res]
			if !again {
				since = r.now()
			}
			s.memory.notServed[res] = since
			sure = sure && r.now().Sub(since) >= absentFor
			continue
		}
		if err != nil {
			return false, fmt.Errorf("look for dependents: %w", err)
		}
		res = known.GVR
		namespaces := r.opts.Namespaces
		if !known.Namespaced || len(namespaces) == 0 {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, ns := range namespaces {
			deleted, err := r.pruneResource(ctx, res, ns, owner)
			if apierrors.IsNotFound(err) { // discovery is older than the end of the kind, or the API server has just started
				sure = false
				break
			}
			if err != nil {
				return false, fmt.Errorf("delete the %s of %s: %w; grant the operator list and delete on them, or take the finalizer %s off",
					res.GroupResource(), s.key, err, pruneFinalizer)
			}
			if deleted > 0 {
				s.log.Info("Dependents deleted", "resource", res.String(), "count", deleted)
			}
		}
	}
	return sure, nil
}

// prunable returns the resources whose objects the object may own: those in its
// record and, in case the record was lost, those that are watched.
func (r *reconciler) prunable(s *scope) []schema.GroupVersionResource {
	resources := append(r.record(s.object).Dependents, r.set.dependents.Watching()...)
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(resources)
}

func (r *reconciler) pruneResource(ctx context.Context, res schema.GroupVersionResource, namespace string, owner proxy.Owner) (deleted int, err error) {
	client := r.metadata.Resource(res).Namespace(namespace)
	page := metav1.ListOptions{Limit: prunePage}
	for {
		list, err := client.List(ctx, page)
		if err != nil {
			return deleted, fmt.Errorf("list: %w", err)
		}
		for i := range list.Items {
			child := &list.Items[i]
			if !proxy.AnnotatedBy(child.Annotations, owner) || proxy.Outlives(child.Annotations) || child.DeletionTimestamp != nil {
				continue
			}
			uid, background := child.UID, metav1.DeletePropagationBackground
			err := r.metadata.Resource(res).Namespace(child.Namespace).Delete(ctx, child.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
			})
			switch {
			case err == nil:
				deleted++
			case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
				return deleted, fmt.Errorf("delete %s/%s: %w", child.Namespace, child.Name, err)
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return deleted, nil
		}
	}
}
