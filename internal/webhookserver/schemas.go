package webhookserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/rolewright/rolewright/internal/discovery"
)

// schemaAge is how long a schema is used before it is read again.
const schemaAge = 10 * time.Second

// Schemas reads the schemas that the API server publishes. It is safe for concurrent use.
type Schemas struct {
	Client rest.Interface

	mu    sync.Mutex
	known map[schema.GroupVersionKind]publishedSchema
}

type publishedSchema struct {
	root *spec.Schema
	read time.Time
}

// fit tells whether the schema accepts a value for the field at a path below the root. For a
// field that is not declared, it does so if it preserves unknown fields.
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

// of returns a schema. It reads it without the lock, so that requests for other kinds do not wait.
func (s *Schemas) of(ctx context.Context, gvk schema.GroupVersionKind) (*spec.Schema, error) {
	s.mu.Lock()
	is, known := s.known[gvk]
	s.mu.Unlock()
	if known && time.Since(is.read) < schemaAge {
		return is.root, nil
	}
	root, err := discovery.PublishedSchema(ctx, s.Client, gvk)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[schema.GroupVersionKind]publishedSchema{}
	}
	s.known[gvk] = publishedSchema{root: root, read: time.Now()}
	return root, nil
}
