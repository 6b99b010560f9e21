package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// maxManifest bounds the manifest in the status of the object.
const maxManifest = 256 << 10

// maxSecrets limits how many texts are searched for in the manifest. With more, the status has only what identifies its
// objects.
const maxSecrets = 16 << 10

// hidden replaces values of Secrets. A digest would let people who may not read the
// Secret try passwords.
const hidden = "(hidden)"

// shown returns the manifest of a release for the status of the object, without the values of Secrets, wherever they occur.
// It names all objects: if the records are gone, the uninstallation needs them.
func shown(manifest string, expose bool, secrets []string) string {
	documents, most := strings.Split(manifest, "\n---\n"), maxManifest
	switch {
	case expose:
	case len(secrets) > maxSecrets:
		most = 0
	default:
		pairs := make([]string, 0, 2*len(secrets))
		for _, secret := range secrets {
			pairs = append(pairs, secret, hidden)
		}
		hider := strings.NewReplacer(pairs...)
		for i, document := range documents {
			documents[i] = withoutSecrets(document, hider)
		}
	}
	shorten(documents, most)
	return clip(strings.Join(documents, "\n---\n"), maxManifest)
}

// shorten reduces documents that are too long together to what identifies their objects, starting with the longest.
func shorten(documents []string, most int) {
	size := 0
	order := make([]int, len(documents))
	for i, document := range documents {
		order[i], size = i, size+len(document)+len("\n---\n")
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(documents[b]) - len(documents[a]) })
	for _, i := range order {
		if size <= most {
			return
		}
		size -= len(documents[i])
		documents[i] = identified(documents[i])
		size += len(documents[i])
	}
}

// identified returns only what identifies the objects of a document.
func identified(document string) string {
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(document), &obj); err != nil {
		return "# (hidden: this document cannot be read)\n"
	}
	is := identity(obj)
	if items, ok := obj["items"].([]any); ok {
		list := []any{}
		for _, item := range items {
			if m, ok := item.(map[string]any); ok {
				list = append(list, identity(m))
			}
		}
		is["items"] = list
	}
	return sources(document) + yamlOf(is)
}

// identity returns the fields by which Helm finds an object, and decides whether to keep it.
func identity(obj map[string]any) map[string]any {
	is := only(obj, "apiVersion", "kind")
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		has := only(metadata, "name", "namespace")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			has["annotations"] = only(annotations, annotationPolicy)
		}
		is["metadata"] = has
	}
	return is
}

func only(is map[string]any, keys ...string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		if value, there := is[key]; there {
			out[key] = value
		}
	}
	return out
}

// withoutSecrets hides the values of a Secret and, in other objects, what hider replaces. It leaves other documents
// unchanged.
func withoutSecrets(document string, hider *strings.Replacer) string {
	var obj map[string]any
	exact := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }
	if err := yaml.Unmarshal([]byte(document), &obj, exact); err != nil {
		return "# (hidden: this document cannot be read)\n"
	}
	if obj == nil {
		return hider.Replace(document)
	}
	found := hide(obj)
	is := objectWithout(obj, hider)
	if !found && hider.Replace(document) == document && reflect.DeepEqual(is, obj) {
		return document
	}
	return hider.Replace(sources(document)) + yamlOf(is)
}

// objectWithout returns an object, or a list of objects, without what hider replaces, except in what identifies it.
func objectWithout(obj map[string]any, hider *strings.Replacer) map[string]any {
	out, _ := without(obj, hider).(map[string]any)
	out = loader.MergeMaps(out, identity(obj))
	items, isList := obj["items"].([]any)
	if !isList {
		return out
	}
	list := make([]any, len(items))
	for i, item := range items {
		if m, ok := item.(map[string]any); ok {
			list[i] = objectWithout(m, hider)
		} else {
			list[i] = without(item, hider)
		}
	}
	out["items"] = list
	return out
}

// without returns a value without what hider replaces.
func without(value any, hider *strings.Replacer) any {
	switch is := value.(type) {
	case string:
		return hider.Replace(is)
	case json.Number:
		if hider.Replace(is.String()) != is.String() {
			return hidden
		}
	case []any:
		list := make([]any, len(is))
		for i := range is {
			list[i] = without(is[i], hider)
		}
		return list
	case map[string]any:
		out := make(map[string]any, len(is))
		for _, key := range slices.Sorted(maps.Keys(is)) {
			out[hider.Replace(key)] = without(is[key], hider)
		}
		return out
	}
	return value
}

// sources returns the lines of a document that say which template it comes from.
func sources(document string) string {
	comment := ""
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "# Source: ") {
			comment += line
		}
	}
	return comment
}

func yamlOf(obj map[string]any) string {
	is, err := yaml.Marshal(obj)
	if err != nil {
		return "# (hidden)\n"
	}
	return string(is)
}

// hide hides the values of a Secret, or of the Secrets in a list. found tells whether there were any.
func hide(obj map[string]any) (found bool) {
	items, _ := obj["items"].([]any)
	for _, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		typed(m, obj)
		if hide(m) {
			found = true
		}
	}
	if obj["kind"] != "Secret" {
		return found
	}
	for _, field := range []string{"data", "stringData"} {
		switch values := obj[field].(type) {
		case nil:
		case map[string]any:
			for key := range values {
				values[key] = hidden
			}
		default:
			obj[field] = hidden
		}
	}
	return true
}

// writeDeployed writes status.deployedRelease if it has changed. It may be too large for
// a report.
func (h *handler) writeDeployed(ctx context.Context, is *release.Release) error {
	if h.check() {
		return nil
	}
	is = h.records.whole(is)
	want := map[string]any{"name": is.Name, "manifest": shown(is.Manifest, h.in.settings.ExposeManifest, h.in.secrets())}
	if h.trusted {
		want["seal"] = h.sealOf(is)
	}
	st, _ := h.in.Object.Object["status"].(map[string]any)
	if has, ok := st["deployedRelease"].(map[string]any); ok && has["name"] == want["name"] && has["manifest"] == want["manifest"] && (!h.trusted || has["seal"] == want["seal"]) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": h.in.Object.GetUID()}, "status": map[string]any{"deployedRelease": want}})
	if err != nil {
		return err
	}
	gvk := h.in.Object.GroupVersionKind()
	mapping, err := h.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	client, err := h.kube.Factory.DynamicClient()
	if err != nil {
		return err
	}
	_, err = client.Resource(mapping.Resource).Namespace(h.in.Object.GetNamespace()).
		Patch(ctx, h.name(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsNotFound(err) {
		note("status.deployedRelease is not written: %v", err)
		return nil // perhaps in a run without an operator
	}
	if err != nil {
		return fmt.Errorf("write status.deployedRelease: %w", cause(err))
	}
	return nil
}
