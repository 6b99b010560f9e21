package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// ErrNotPublished says that the API server publishes no schema of a kind, or not yet.
var ErrNotPublished = errors.New("the API server does not publish it yet: try again")

// PublishedSchema reads the schema of a kind that the API server publishes to every client. References to other schemas,
// as for the metadata of embedded resources, are replaced by any object.
func PublishedSchema(ctx context.Context, client rest.Interface, gvk schema.GroupVersionKind) (*spec.Schema, error) {
	path := []string{"/openapi/v3/apis", gvk.Group, gvk.Version}
	if gvk.Group == "" {
		path = []string{"/openapi/v3/api", gvk.Version}
	}
	data, err := client.Get().AbsPath(path...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var document struct {
		Components struct{ Schemas map[string]*spec.Schema }
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(withoutReferences(tree)); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	for _, root := range document.Components.Schemas {
		var kinds []schema.GroupVersionKind
		if err := root.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err == nil && slices.Contains(kinds, gvk) {
			return root, nil
		}
	}
	return nil, ErrNotPublished
}

// withoutReferences replaces references to other schemas by any object: the validation does not support references.
func withoutReferences(schema any) any {
	switch at := schema.(type) {
	case map[string]any:
		if _, refers := at["$ref"].(string); refers {
			return map[string]any{"type": "object"}
		}
		for key, value := range at {
			at[key] = withoutReferences(value)
		}
	case []any:
		for i, value := range at {
			at[i] = withoutReferences(value)
		}
	}
	return schema
}
