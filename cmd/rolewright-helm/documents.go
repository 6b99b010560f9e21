package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// split returns the documents of a manifest, in order.
func split(manifest string) []string {
	documents := releaseutil.SplitManifests(manifest)
	keys := slices.Collect(maps.Keys(documents))
	sort.Sort(releaseutil.BySplitManifestsOrder(keys))
	list := make([]string, 0, len(keys))
	for _, key := range keys {
		list = append(list, documents[key])
	}
	return list
}

func join(documents []string) string {
	var text strings.Builder
	for _, document := range documents {
		text.WriteString("---\n" + document + "\n")
	}
	return text.String()
}

// both returns a manifest extended by the objects that only another manifest has.
func both(manifest, other string) string {
	documents, has := single(manifest), map[string]bool{}
	for _, document := range documents {
		has[keyOf(document)] = true
	}
	for _, document := range single(other) {
		if key := keyOf(document); !has[key] {
			documents, has[key] = append(documents, document), true
		}
	}
	return join(documents)
}

// keptIn returns the keys of a manifest's objects that are to be kept.
func keptIn(manifest string) map[string]bool {
	keys := map[string]bool{}
	for _, document := range single(manifest) {
		is := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(document), &is.Object) == nil && kept(is) {
			keys[keyOf(document)] = true
		}
	}
	return keys
}

// lacking returns a manifest without the objects with these keys.
func lacking(manifest string, keys map[string]bool) string {
	return join(slices.DeleteFunc(single(manifest), func(document string) bool { return keys[keyOf(document)] }))
}

// single returns the documents of a manifest, with a document for each object of a list.
func single(manifest string) []string {
	var documents []string
	for _, document := range split(manifest) {
		var list map[string]any
		err := yaml.Unmarshal([]byte(document), &list)
		items, ok := list["items"].([]any)
		kind, _ := list["kind"].(string)
		if err != nil || !ok || !strings.HasSuffix(kind, "List") {
			documents = append(documents, document) // an unreadable document is left out later, and reported then
			continue
		}
		for _, item := range items {
			if obj, ok := item.(map[string]any); ok {
				typed(obj, list)
				documents = append(documents, single(yamlOf(obj))...)
			}
		}
	}
	return documents
}

// typed sets the kind of a list's item, which the item may leave out, as in a SecretList.
func typed(item, list map[string]any) {
	kind, _ := list["kind"].(string)
	if of := strings.TrimSuffix(kind, "List"); item["kind"] == nil && of != kind && of != "" {
		item["kind"], item["apiVersion"] = of, list["apiVersion"]
	}
}

// keyOf identifies an object by its group, kind, namespace and name.
func keyOf(document string) string {
	var obj map[string]any
	if yaml.Unmarshal([]byte(document), &obj) != nil {
		return document
	}
	version, _ := obj["apiVersion"].(string)
	group, _, found := strings.Cut(version, "/")
	if !found {
		group = ""
	}
	metadata, _ := obj["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v %v/%v", group, obj["kind"], metadata["namespace"], metadata["name"])
}

// readable returns an error for a document that is not an object which the API server could be asked for: people who may
// write the record, or the status, can put in anything.
func readable(document string) error {
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(document), &obj); err != nil {
		return err
	}
	is := &unstructured.Unstructured{Object: obj}
	version, _ := obj["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case err != nil:
		return err
	case gv.Version == "" || is.GetKind() == "":
		return errors.New("it has no kind")
	case is.GetName() == "":
		return errors.New("it has no name")
	}
	for _, name := range []string{is.GetName(), is.GetNamespace()} {
		if wrong := rest.IsValidPathSegmentName(name); name != "" && len(wrong) > 0 {
			return fmt.Errorf("the name %q: %s", name, strings.Join(wrong, "; "))
		}
	}
	return nil
}
