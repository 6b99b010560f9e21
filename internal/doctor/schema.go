package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/rbac"
)

// Schema is the part of a kind's schema that doctor needs.
type Schema struct {
	Properties map[string]Schema
	Preserve   bool `json:"x-kubernetes-preserve-unknown-fields"`
	Additional any  `json:"additionalProperties"`
}

// keeps reports whether a schema keeps fields that it does not declare.
func (s Schema) keeps() bool { return s.Preserve || s.Additional != nil }

// KeepsInSpec reports whether the API server keeps fields of the spec that the
// schema does not declare, and returns the declared ones, sorted.
func (s Schema) KeepsInSpec() (declared []string, keeps bool) {
	spec, has := s.Properties["spec"]
	if !has {
		return nil, s.keeps()
	}
	return slices.Sorted(maps.Keys(spec.Properties)), spec.keeps()
}

// namesNothing reports whether the schema declares no field in which an object could specify anything, and keeps no others.
// A ConfigMap, for example, has its fields outside of a spec.
func (s Schema) namesNothing() bool {
	if spec, has := s.Properties["spec"]; has {
		return len(spec.Properties) == 0 && !spec.keeps()
	}
	for name := range s.Properties {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) {
			return false
		}
	}
	return true
}

// maxNamed limits how many names a text lists.
const maxNamed = 10

// Replaceable says that anyone who writes an object may replace variables of the
// content, and what to do. names are those variables, at least one.
func Replaceable(names []string) (found, remedy string) {
	list := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return "the schema keeps fields of the spec that it does not declare, and extra vars replace variables that the content sets itself: an object can set " + list,
		"declare the fields of the spec, and remove x-kubernetes-preserve-unknown-fields from it"
}

// ReadSchemas reads the CustomResourceDefinitions in a directory. A version
// without a schema has an empty one that keeps everything. Other documents, such as
// patches and templates, are skipped.
func ReadSchemas(dir string) (map[schema.GroupVersionKind]Schema, error) {
	schemas := map[schema.GroupVersionKind]Schema{}
	err := rbac.EachDocument(dir, func(_, doc string) error {
		addSchemas(schemas, doc)
		return nil
	})
	return schemas, err
}

func addSchemas(schemas map[schema.GroupVersionKind]Schema, doc string) {
	var d struct {
		Kind string
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema *struct{ OpenAPIV3Schema Schema }
			}
		}
	}
	if yaml.Unmarshal([]byte(doc), &d) != nil || d.Kind != "CustomResourceDefinition" {
		return
	}
	for _, version := range d.Spec.Versions {
		s := Schema{Preserve: true}
		if version.Schema != nil {
			s = version.Schema.OpenAPIV3Schema
		}
		schemas[schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name, Kind: d.Spec.Names.Kind}] = s
	}
}
