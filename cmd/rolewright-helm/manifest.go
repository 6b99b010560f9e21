package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// maxManifest bounds the manifest in the status of the object.
const maxManifest = 256 << 10

// hidden is in the place of what a Secret has. A digest would let people who may not read the
// Secret try passwords.
const hidden = "(hidden)"

// shown is the manifest of a release as the status of the object has it, without the values of Secrets wherever they are.
func shown(manifest string, expose bool, secrets []string) string {
	if !expose {
		parts := strings.Split(manifest, "\n---\n")
		for i, part := range parts {
			parts[i] = withoutSecret(part)
		}
		manifest = strings.Join(parts, "\n---\n")
		for _, secret := range secrets {
			manifest = strings.ReplaceAll(manifest, secret, hidden)
		}
	}
	return clip(manifest, maxManifest)
}

// withoutSecret hides the values of a Secret; another document stays as it is.
func withoutSecret(document string) string {
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(document), &obj); err != nil {
		return "# (hidden: this document cannot be read)\n"
	}
	if !hide(obj) {
		return document
	}
	text, err := yaml.Marshal(obj)
	if err != nil {
		return "# (hidden)\n"
	}
	comment := ""
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "# Source: ") {
			comment += line
		}
	}
	return comment + string(text)
}

// hide hides the values of a Secret, or of those in a list.
func hide(obj map[string]any) (found bool) {
	items, _ := obj["items"].([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok && hide(m) {
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

// writeDeployed writes status.deployedRelease where it is another one. It may be larger than
// a report.
func (h *handler) writeDeployed(ctx context.Context, is *release.Release) error {
	if h.check() {
		return nil
	}
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
		return nil // in a run without an operator, maybe
	}
	if err != nil {
		return fmt.Errorf("write status.deployedRelease: %w", cause(err))
	}
	return nil
}
