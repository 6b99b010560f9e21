package objectbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operation is an operation that is added to a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func decodePatch(body []byte) (jsonpatch.Patch, error) {
	p, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, fmt.Errorf("not a JSON patch: %w", err)
	}
	if p == nil { // API servers take it for a patch without operations
		return nil, fmt.Errorf("%w: the JSON patch is null", ErrUnmarkable)
	}
	return p, nil
}

// addToPatch appends operations to a JSON patch. Which ones depends on the stored
// metadata after the patch.
func addToPatch(body []byte, m Mark, stored Meta) ([]byte, error) {
	patch, err := decodePatch(body)
	if err != nil {
		return nil, err
	}
	md, err := patchedMetadata(patch, m.field(), stored)
	if err != nil {
		return nil, err
	}
	var meta metadata
	if err := errors.Join(md.decode(referencesField, &meta.OwnerReferences), md.decode(annotationsField, &meta.Annotations)); err != nil {
		return nil, err
	}
	if m.in(meta.meta("", "")) {
		return body, nil
	}
	marked, isEmpty := bytes.TrimSpace(body), len(patch) == 0
	for _, op := range m.operations(md) {
		text, err := json.Marshal(op)
		if err != nil {
			return nil, fmt.Errorf("encode JSON patch: %w", err)
		}
		marked, isEmpty = insert(marked, text, isEmpty), false
	}
	return marked, nil
}

// patchedMetadata applies those operations that change the field to the stored
// metadata, with the library that API servers use.
func patchedMetadata(patch jsonpatch.Patch, field string, stored Meta) (object, error) {
	var changing jsonpatch.Patch
	for _, op := range patch {
		path, err := op.Path()
		if err != nil {
			return object{}, fmt.Errorf("not a JSON patch: %w", err)
		}
		from, _ := op.From() // most operations have none
		switch kind := op.Kind(); {
		case kind == "test":
		case kind == "move" && (concerns(from, field) || concerns(path, field)),
			concerns(path, field) && (kind == "copy" || depth(path) < 2):
			return object{}, fmt.Errorf("%w: operation %q of the JSON patch changes metadata.%s as part of something else", ErrUnmarkable, kind, field)
		case concerns(path, field):
			changing = append(changing, op)
		}
	}
	before, err := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{
		OwnerReferences: stored.OwnerReferences, Annotations: stored.Annotations,
	}})
	if err != nil {
		return object{}, fmt.Errorf("encode what is stored: %w", err)
	}
	after, err := changing.Apply(before)
	if err != nil {
		return object{}, fmt.Errorf("the JSON patch does not apply: %w", err)
	}
	whole, err := parseObject(after)
	if err != nil {
		return object{}, err
	}
	return parseObject(whole.get("metadata"))
}

// tokens splits a path as the library does, which ignores what is before the
// first slash.
func tokens(path string) []string {
	parts := strings.Split(path, "/")[1:]
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts
}

func depth(path string) int { return len(tokens(path)) }

// concerns reports whether the path names the field of metadata, a part of it, or
// something that contains it.
func concerns(path, field string) bool {
	parts, of := tokens(path), []string{"metadata", field}
	n := min(len(parts), len(of))
	return slices.Equal(parts[:n], of[:n])
}

// operations add the mark to metadata that does not have it.
func (m Mark) operations(md object) []operation {
	value, path := md.get(m.field()), "/metadata/"+m.field()
	missing := value == nil || isNull(value)
	if m.Reference != nil {
		if missing {
			return []operation{{"add", path, []metav1.OwnerReference{*m.Reference}}}
		}
		return []operation{{"add", path + "/-", m.Reference}}
	}
	if missing {
		return []operation{{"add", path, m.Annotations}}
	}
	var ops []operation
	for _, k := range slices.Sorted(maps.Keys(m.Annotations)) {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
		ops = append(ops, operation{"add", path + "/" + escaped, m.Annotations[k]})
	}
	return ops
}
