package rbac

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/content"
)

// Resource describes the resource of a kind.
type Resource struct {
	Group      string   `json:"group,omitempty"`
	Name       string   `json:"name"` // the plural
	Kind       string   `json:"kind"`
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Namespaced bool     `json:"namespaced,omitempty"`
}

// Catalog is a list of resources.
type Catalog []Resource

//go:embed kinds.json
var kinds []byte

// Builtin returns Kubernetes' own resources, as an API server's discovery listed them.
func Builtin() (Catalog, error) {
	var c Catalog
	if err := json.Unmarshal(kinds, &c); err != nil {
		return nil, fmt.Errorf("read the table of Kubernetes' kinds: %w", err)
	}
	return c, nil
}

// IsBuiltin tells whether a kind is one of Kubernetes' own, which needs no CRD.
func IsBuiltin(kind schema.GroupKind) (bool, error) {
	c, err := Builtin()
	return slices.ContainsFunc(c, func(r Resource) bool { return r.Group == kind.Group && r.Kind == kind.Kind }), err
}

// Find returns the resource that a kind means in an API version. As in Ansible's
// modules, the kind may also be the name of a resource: the plural, the singular
// or a short name. Versions do not matter, because RBAC rules have none.
func (c Catalog) Find(apiVersion, kind string) (Resource, bool) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Resource{}, false
	}
	if r, ok := c.in(gv.Group, kind); ok || strings.Contains(apiVersion, "/") {
		return r, ok
	}
	// For the modules, a version without a group matches any group.
	for _, r := range c {
		if found, ok := c.in(r.Group, kind); ok {
			return found, true
		}
	}
	return Resource{}, false
}

// in searches one group.
func (c Catalog) in(group, kind string) (Resource, bool) {
	for _, is := range []func(Resource) bool{
		func(r Resource) bool { return r.Kind == kind },
		func(r Resource) bool {
			word := strings.ToLower(kind)
			return r.Name == word || r.Singular == word || slices.Contains(r.ShortNames, word) || strings.ToLower(r.Kind) == word
		},
	} {
		if i := slices.IndexFunc(c, func(r Resource) bool { return r.Group == group && is(r) }); i >= 0 {
			return c[i], true
		}
	}
	return Resource{}, false
}

// FromDiscovery makes a catalog from an API server's discovery documents.
func FromDiscovery(lists []*metav1.APIResourceList) Catalog {
	var c Catalog
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // it cannot be requested either
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			if slices.ContainsFunc(c, func(known Resource) bool { return known.Group == gv.Group && known.Name == r.Name }) {
				continue // in another version
			}
			c = append(c, Resource{
				Group: gv.Group, Name: r.Name, Kind: r.Kind,
				Singular: r.SingularName, ShortNames: r.ShortNames, Namespaced: r.Namespaced,
			})
		}
	}
	return c
}

// ReadDefinitions returns a catalog of the CustomResourceDefinitions in a directory.
func ReadDefinitions(dir string) (Catalog, error) {
	var c Catalog
	err := EachDocument(dir, func(path, doc string) error {
		var document any
		if err := yaml.Unmarshal([]byte(doc), &document); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if is, _ := document.(map[string]any); is["kind"] != "CustomResourceDefinition" {
			return nil // for example a patch of kustomize, which may be a list
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if d.Spec.Names.Kind != "" { // otherwise it is a patch
			c = append(c, Resource{
				Group: d.Spec.Group, Name: d.Spec.Names.Plural, Kind: d.Spec.Names.Kind, Singular: d.Spec.Names.Singular,
				ShortNames: d.Spec.Names.ShortNames, Namespaced: d.Spec.Scope != apiextensionsv1.ClusterScoped,
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// EachDocument calls read for each document of the YAML and JSON files in a
// directory and below it. It does nothing if the directory does not exist.
func EachDocument(dir string, read func(path, doc string) error) error {
	err := content.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for doc := range strings.SplitSeq("\n"+string(data), "\n---") {
			if err := read(path, doc); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the CustomResourceDefinitions: %w", err)
	}
	return nil
}
