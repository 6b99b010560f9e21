package webhookserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// schemaAge is how long a schema is used before it is read again.
const schemaAge = 10 * time.Second

// Schemas are those that the API server publishes, to each client and without permissions. It
// is safe for concurrent use.
type Schemas struct {
	Client rest.Interface

	mu    sync.Mutex
	known map[schema.GroupVersionKind]publishedSchema
}

type publishedSchema struct {
	root *spec.Schema
	read time.Time
}

// fit tells whether the field at a path below the root takes a value. A field that is not
// declared takes one where the schema keeps unknown fields.
func (s *Schemas) fit(ctx context.Context, gvk schema.GroupVersionKind, path string, value any) (bool, error) {
	at, err := s.of(ctx, gvk)
	if err != nil {
		return false, fmt.Errorf("read the schema of %s, which kept fields have to fit: %w", gvk, err)
	}
	for name := range strings.SplitSeq(path, ".") {
		property, declared := at.Properties[name]
		keeps, _ := at.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
		switch more := at.AdditionalProperties; {
		case declared:
			at = &property
		case more != nil && more.Schema != nil:
			at = more.Schema
		default:
			return keeps || more != nil && more.Allows, nil
		}
	}
	return validate.NewSchemaValidator(at, nil, path, strfmt.Default).Validate(value).IsValid(), nil
}

func (s *Schemas) of(ctx context.Context, gvk schema.GroupVersionKind) (*spec.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is, known := s.known[gvk]; known && time.Since(is.read) < schemaAge {
		return is.root, nil
	}
	data, err := s.Client.Get().AbsPath("/openapi/v3/apis", gvk.Group, gvk.Version).SetHeader("Accept", "application/json").DoRaw(ctx)
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
		if err := root.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil || !slices.Contains(kinds, gvk) {
			continue
		}
		if s.known == nil {
			s.known = map[schema.GroupVersionKind]publishedSchema{}
		}
		s.known[gvk] = publishedSchema{root: root, read: time.Now()}
		return root, nil
	}
	return nil, errors.New("the API server does not publish it yet: try again")
}

// withoutReferences puts any object in the place of what is described elsewhere, which is the metadata
// of embedded resources: the validation knows no references.
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
