// Package reference reads the references of an object to other objects. It is pure, and knows
// neither clients nor runs.
package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
)

// Field says where references to objects of a kind are found.
type Field struct {
	GVK schema.GroupVersionKind
	// Name is the name of the other object. If it is empty, Path is the path of the name in
	// the object, as in [watches.Reference].
	Name, Path string
	// Namespace is the namespace of the other object; else NamespacePath is the path of the
	// namespace in the object. If both are empty, it is the object's own namespace.
	Namespace, NamespacePath string
}

// Fields returns the fields of a watch: those of its references, then those of its varsFrom.
func Fields(w watches.Watch) []Field {
	var fields []Field
	for _, r := range w.References {
		if r.Reported {
			continue
		}
		fields = append(fields, Field{GVK: r.GVK, Path: r.FromField, NamespacePath: r.NamespaceField})
	}
	for _, v := range w.VarsFrom {
		fields = append(fields, Field{GVK: v.Kind(), Name: v.Name, Path: v.NameField, Namespace: v.Namespace})
	}
	return fields
}

// Reference is one referenced object.
type Reference struct {
	GVK schema.GroupVersionKind
	// NamespacedName has a namespace even if the kind is cluster-scoped.
	types.NamespacedName
}

// Reported returns the kinds of the references that a watch's commands may report.
func Reported(w watches.Watch) (kinds []schema.GroupVersionKind) {
	for _, r := range w.References {
		if r.Reported {
			kinds = append(kinds, r.GVK)
		}
	}
	return kinds
}

// Most is the largest number of references of one object that are followed.
const Most = 100

// mostProblems is how many invalid names are reported, since an object can have a hundred thousand.
const mostProblems = 10

// Read returns the references in an object, sorted and without duplicates, and a few texts about
// what is wrong. home and kind are the object's own: a reference to the object itself is left out.
func Read(object map[string]any, home types.NamespacedName, kind schema.GroupKind, fields []Field) (refs []Reference, problems []string) {
	more := 0
	for _, f := range fields {
		names := []string{f.Name}
		if f.Name == "" {
			names = Names(object, f.Path)
		}
		namespace := cmp.Or(f.Namespace, home.Namespace)
		if f.NamespacePath != "" {
			if said := Names(object, f.NamespacePath); len(said) > 0 {
				namespace = said[0]
			}
		}
		for _, name := range names {
			if !IsName(name) || namespace != "" && !IsName(namespace) {
				if len(problems) == mostProblems {
					more++
					continue
				}
				problems = append(problems, fmt.Sprintf("%s: %q is not a name of an object, and is not followed", f.Path, text.Clip(namespace+"/"+name, 100)))
				continue
			}
			r := Reference{f.GVK, types.NamespacedName{Namespace: namespace, Name: name}}
			if r.GVK.GroupKind() != kind || r.NamespacedName != home {
				refs = append(refs, r)
			}
		}
	}
	if more > 0 {
		problems = append(problems, fmt.Sprintf("%d more names are not valid either", more))
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.GVK.Group, b.GVK.Group), cmp.Compare(a.GVK.Version, b.GVK.Version), cmp.Compare(a.GVK.Kind, b.GVK.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	refs = slices.Compact(refs)
	if len(refs) > Most {
		problems = append(problems, fmt.Sprintf("the object refers to %d others; %d of them are followed", len(refs), Most))
		refs = refs[:Most]
	}
	return refs, problems
}

// IsName reports whether the API server may accept name as a name.
func IsName(name string) bool {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	return name != "" && len(name) <= 253 && len(content.IsPathSegmentName(name)) == 0 && !strings.ContainsFunc(name, odd)
}

// Names returns the names at a dotted path: a string, the string with the key name in a map, or
// the names in each element of a list. It follows the path in each element of a list on the way.
// Keys may contain dots.
func Names(object map[string]any, path string) []string {
	return names(nil, object, strings.Split(path, "."))
}

func names(found []string, tree any, path []string) []string {
	switch t := tree.(type) {
	case []any:
		for _, v := range t {
			found = names(found, v, path)
		}
	case map[string]any:
		if name, ok := t["name"].(string); ok && len(path) == 0 && name != "" {
			found = append(found, name)
		}
		for n := range path {
			if v, has := t[strings.Join(path[:n+1], ".")]; has {
				found = names(found, v, path[n+1:])
			}
		}
	case string:
		if len(path) == 0 && t != "" {
			found = append(found, t)
		}
	}
	return found
}
