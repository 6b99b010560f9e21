package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrNotFound says that the API server serves no such resource.
var ErrNotFound = errors.New("no such resource")

// Resource is what the API server says about one of its resources.
type Resource struct {
	GVR schema.GroupVersionResource
	// Kind is the kind of its objects, in the same group and version.
	Kind       string
	Namespaced bool
	// Verbs are the verbs in discovery, like get and create. They are shared, and
	// must not be changed.
	Verbs []string
}

// Lookup looks a resource up. It asks for the document of the resource's own
// group version only; errors of other groups have no effect. It may wait for the
// API server until the context ends, and a little longer while others wait for
// the same document.
//
// The error is [ErrNotFound] if the API server has said that there is no such
// resource: now or, if nothing was invalidated since, a few hundred milliseconds
// ago. Any other error means that the API server could not be asked.
func (c *Cache) Lookup(ctx context.Context, gvr schema.GroupVersionResource) (Resource, error) {
	r, err := c.lookup(ctx, gvr.GroupVersion(), func(resources map[string]Resource) (string, bool) {
		_, found := resources[gvr.Resource]
		return gvr.Resource, found
	})
	if err != nil {
		return Resource{}, fmt.Errorf("look up %s: %w", gvr, err)
	}
	return r, nil
}

// choice picks a resource of a group version by its name; false if it is not there.
type choice func(resources map[string]Resource) (name string, found bool)

func (c *Cache) lookup(ctx context.Context, gv schema.GroupVersion, pick choice) (Resource, error) {
	q := question{path: "/apis/" + gv.Group + "/" + gv.Version, accept: "application/json"}
	if gv.Group == "" {
		q.path = "/api/" + gv.Version
	}
	if !isDocument(q.path) {
		return Resource{}, ErrNotFound
	}
	t := c.termsNow(freshFor, missingFor)
	r, err := find(c.get(ctx, q, t), gv, pick)
	if errors.Is(err, ErrNotFound) {
		t.found = t.missing // a document without the resource may be no older than that
		r, err = find(c.get(ctx, q, t), gv, pick)
	}
	return r, err
}

// LookupKind looks the resource of a kind up, as [Cache.Lookup] does for a resource.
func (c *Cache) LookupKind(ctx context.Context, gvk schema.GroupVersionKind) (Resource, error) {
	r, err := c.lookup(ctx, gvk.GroupVersion(), func(resources map[string]Resource) (string, bool) {
		for name, r := range resources {
			if r.Kind == gvk.Kind && !strings.Contains(name, "/") {
				return name, true
			}
		}
		return "", false
	})
	if err != nil {
		return Resource{}, fmt.Errorf("look up %s: %w", gvk, err)
	}
	return r, nil
}

// LookupAnyVersion is like [Cache.Lookup], but a resource whose version is not served
// is also looked for in the other versions of its group. The list of groups is read
// first: one request answers for any number of names. A group that was added within
// the last two seconds may be missing.
func (c *Cache) LookupAnyVersion(ctx context.Context, gvr schema.GroupVersionResource) (Resource, error) {
	versions, err := c.versions(ctx, gvr.Group)
	if err != nil {
		return Resource{}, err
	}
	if slices.Contains(versions, gvr.Version) {
		versions = slices.Insert(versions, 0, gvr.Version)
	}
	for _, version := range versions {
		if r, err := c.Lookup(ctx, gvr.GroupResource().WithVersion(version)); !errors.Is(err, ErrNotFound) {
			return r, err
		}
	}
	return Resource{}, fmt.Errorf("look up %s: %w", gvr, ErrNotFound)
}

// versions returns the versions of a group that the API server serves.
func (c *Cache) versions(ctx context.Context, name string) ([]string, error) {
	if name == "" {
		return []string{"v1"}, nil
	}
	a := c.get(ctx, question{path: "/apis", accept: "application/json"}, c.termsNow(freshFor, missingFor))
	var list metav1.APIGroupList
	switch {
	case a.failure != nil:
		return nil, fmt.Errorf("list the API groups: %w", a.failure)
	case a.oversize || a.status != http.StatusOK:
		return nil, fmt.Errorf("list the API groups: the API server answered %d %s", a.status, http.StatusText(a.status))
	}
	if err := json.Unmarshal(a.body, &list); err != nil {
		return nil, fmt.Errorf("list the API groups: %w", err)
	}
	var versions []string
	for _, group := range list.Groups {
		if group.Name != name {
			continue
		}
		for _, version := range group.Versions {
			versions = append(versions, version.Version)
		}
	}
	return versions, nil
}

// find reads the resource from the API server's answer.
func find(a *answer, gv schema.GroupVersion, pick choice) (Resource, error) {
	switch {
	case a.oversize:
		return Resource{}, fmt.Errorf("the document of %s is larger than %d bytes", gv, maxDocument)
	case a.status == http.StatusNotFound:
		return Resource{}, ErrNotFound
	case a.status != http.StatusOK:
		if err := a.unable(); err != nil {
			return Resource{}, err
		}
		return Resource{}, fmt.Errorf("the API server answered %d %s", a.status, http.StatusText(a.status))
	}
	resources, err := a.resources()
	if err != nil {
		return Resource{}, fmt.Errorf("read the document of %s: %w", gv, err)
	}
	name, found := pick(resources)
	switch {
	case found:
		r := resources[name]
		r.GVR = gv.WithResource(name)
		return r, nil
	case a.failure != nil: // an older document does not prove that the resource is missing
		return Resource{}, a.failure
	}
	return Resource{}, ErrNotFound
}

// readResources reads the list of a group version's resources. The entries do not
// name their group version: it is in the question that the list answers.
func readResources(body []byte) (map[string]Resource, error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIResourceList" {
		return nil, fmt.Errorf("it is of kind %q, not APIResourceList", list.Kind)
	}
	resources := make(map[string]Resource, len(list.APIResources))
	for _, r := range list.APIResources {
		resources[r.Name] = Resource{Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs}
	}
	return resources, nil
}
