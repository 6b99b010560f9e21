package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// notEnabledError says which of the APIs in enabledIf is missing. A kind that was served is
// treated as if the kind itself were gone.
type notEnabledError struct{ api schema.GroupVersionKind }

func (e notEnabledError) Error() string {
	return fmt.Sprintf("enabledIf of the watch names %s, which is not installed", e.api)
}

func (notEnabledError) Unwrap() error { return ErrKindGone }

// discoveryTimeout limits one discovery; the next one follows soon.
const discoveryTimeout = 10 * time.Second

// installed looks up the kind, and before it the APIs in enabledIf.
func (k *kind) installed(ctx context.Context) (resource, error) {
	for _, api := range k.watch.EnabledIf.APIs {
		if _, err := k.discover(ctx, api); errors.Is(err, errNotInstalled) {
			return resource{}, notEnabledError{api}
		} else if err != nil {
			return resource{}, err
		}
	}
	return k.discover(ctx, k.watch.GVK)
}

// discover looks a kind up, only in the discovery of its own group and version,
// so that other groups do not matter even if they are broken.
func (k *kind) discover(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(k.cfg, k.http)
	if err != nil {
		return resource{}, fmt.Errorf("discovery client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return resource{}, errNotInstalled
	}
	if err != nil {
		return resource{}, fmt.Errorf("discover %s: %w", kind.GroupVersion(), err)
	}
	var res resource
	for _, r := range list.APIResources {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			res.plural, res.namespaced = r.Name, r.Namespaced
		}
	}
	if res.plural == "" {
		return resource{}, errNotInstalled
	}
	for _, r := range list.APIResources {
		res.hasStatus = res.hasStatus || r.Name == res.plural+"/status"
	}
	return res, ctx.Err()
}
