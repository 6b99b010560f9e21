package webhookserver

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The schema of a kind is the one that the API server publishes, for each version.
func TestSchemas(t *testing.T) {
	cfg := testenv.Config(t)
	keep, least := true, 1.0
	gvk := testenv.CRD(t, cfg, testenv.WithVersions("v1", "v1alpha1"), testenv.WithSchema(apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"size":  {Type: "integer", Minimum: &least},
			"name":  {Type: "string", Pattern: "^[a-z]+$", Nullable: true},
			"free":  {Type: "object", XPreserveUnknownFields: &keep},
			"other": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}}},
			"port":  {XIntOrString: true},
			"pod":   {Type: "object", XEmbeddedResource: true, XPreserveUnknownFields: &keep},
		}}},
	}))
	schemas := &Schemas{Client: must.Get(discovery.NewDiscoveryClientForConfig(cfg))(t).RESTClient()}
	for _, version := range []string{"v1", "v1alpha1"} {
		gvk := gvk.GroupKind().WithVersion(version)
		testenv.Eventually(t, "the schema of "+version, func(ctx context.Context) error {
			_, err := schemas.fit(ctx, gvk, "spec.size", int64(1))
			return err
		})
		for _, tt := range []struct {
			path  string
			value any
			want  bool
		}{
			{"spec.size", int64(3), true},
			{"spec.size", int64(0), false},
			{"spec.size", "3", false},
			{"spec.name", "abc", true},
			{"spec.name", "a; b", false},
			{"spec.name", nil, true},
			{"spec.free.x", []any{"y"}, true},
			{"spec.free", "y", false},
			{"spec.other.x", int64(1), true},
			{"spec.other.x", "y", false},
			{"spec.other", map[string]any{"x": true}, false},
			{"spec.port", "http", true},
			{"spec.port", int64(80), true},
			{"spec.pod", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}}, true},
			{"spec.none", int64(1), false},
		} {
			if fit := must.Get(schemas.fit(t.Context(), gvk, tt.path, tt.value))(t); fit != tt.want {
				t.Errorf("%s: %s: %v fits: %t", version, tt.path, tt.value, fit)
			}
		}
	}
	if _, err := schemas.fit(t.Context(), gvk.GroupKind().WithVersion("v2"), "spec.size", int64(1)); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a version that is not served: %v", err)
	}
}
