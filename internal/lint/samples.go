package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/rolewright/rolewright/internal/content"

	kubeerrors "k8s.io/kube-openapi/pkg/validation/errors"
	kubeyaml "sigs.k8s.io/yaml"
)

// Definition is a version of a kind as its CRD defines it.
type Definition struct {
	// File is the CRD's file, Line the line of the version.
	File string
	Line int
	// HasStatus is true if there is a status subresource.
	HasStatus bool
	// schema is nil if the version has none.
	schema     *spec.Schema
	structural *structural.Structural
}

// ReadDefinitions reads the CRDs in files. It skips other documents.
func ReadDefinitions(paths []string) (map[schema.GroupVersionKind]Definition, error) {
	all := map[schema.GroupVersionKind]Definition{}
	for _, path := range paths {
		err := eachDocument(path, func(root *yaml.Node) error {
			var d struct {
				Kind string
				Spec struct {
					Group    string
					Names    struct{ Kind string }
					Versions []yaml.Node
				}
			}
			if err := root.Decode(&d); err != nil {
				return err
			}
			if d.Kind != "CustomResourceDefinition" {
				return nil
			}
			for _, node := range d.Spec.Versions {
				var v struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
					}
					Subresources struct{ Status *yaml.Node }
				}
				if err := node.Decode(&v); err != nil {
					return err
				}
				is := Definition{File: path, Line: node.Line, HasStatus: v.Subresources.Status != nil}
				if v.Schema.OpenAPIV3Schema != nil {
					data, err := json.Marshal(v.Schema.OpenAPIV3Schema)
					if err != nil {
						return err
					}
					is.schema = &spec.Schema{}
					var external apiextensionsv1.JSONSchemaProps
					var internal apiextensions.JSONSchemaProps
					if err := errors.Join(json.Unmarshal(data, is.schema), json.Unmarshal(data, &external),
						apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil)); err != nil {
						return err
					}
					if is.structural, err = structural.NewStructural(&internal); err != nil {
						return err
					}
				}
				all[schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}] = is
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Sample checks the objects in a file against the schemas of their kinds. It skips kinds without
// a definition, and the CEL rules of schemas.
func Sample(path string, definitions map[schema.GroupVersionKind]Definition) ([]Finding, error) {
	var all []Finding
	err := eachDocument(path, func(root *yaml.Node) error {
		var plain any // a duplicate key is an error
		data, err := yaml.Marshal(root)
		if err = errors.Join(err, root.Decode(&plain)); err == nil {
			data, err = kubeyaml.YAMLToJSON(data) // booleans, numbers and keys as the API server sees them
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, root.Line, err)
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			return fmt.Errorf("%s:%d: %w", path, root.Line, err)
		}
		version, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		d, known := definitions[schema.FromAPIVersionAndKind(version, kind)]
		if !known || d.schema == nil {
			return nil
		}
		found := func(place, message string) {
			node := locate(root, strings.FieldsFunc(place, func(r rune) bool { return r == '.' || r == '[' || r == ']' }))
			all = append(all, Finding{
				Rule: BadSample, Severity: Error, File: path, Line: node.Line, Column: node.Column, Message: kind + ": " + message,
				Hint: "the schema is in " + d.File,
			})
		}
		for _, err := range validate.NewSchemaValidator(d.schema, nil, "", strfmt.Default).Validate(object).Errors {
			var invalid *kubeerrors.Validation
			if errors.As(err, &invalid) {
				found(invalid.Name, invalid.Error())
			} else {
				found("", err.Error())
			}
		}
		for _, place := range pruning.PruneWithOptions(object, d.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
			found(place, place+" is not in the schema: the API server removes it")
		}
		return nil
	})
	return all, err
}

// locate returns the node at a path, or the last node on the path that exists.
func locate(node *yaml.Node, path []string) *yaml.Node {
	if len(path) == 0 {
		return node
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == path[0] {
				if len(path) == 1 {
					return node.Content[i]
				}
				return locate(node.Content[i+1], path[1:])
			}
		}
	case yaml.SequenceNode:
		var i int
		if _, err := fmt.Sscanf(path[0], "%d", &i); err == nil && i >= 0 && i < len(node.Content) {
			return locate(node.Content[i], path[1:])
		}
	}
	return node
}

// eachDocument calls do with the root of each document of a YAML file.
func eachDocument(path string, do func(root *yaml.Node) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for root, err := range content.Documents(string(data)) {
		if err == nil {
			err = do(root)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
