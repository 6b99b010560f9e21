package objectbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// Mark is an owner mark. Exactly one of Reference and Annotations is set.
type Mark struct {
	// Reference has at least a UID.
	Reference *metav1.OwnerReference
	// Annotations replace existing annotations of the same name.
	Annotations map[string]string
	// Notes are annotations that are put on the object together with the mark. They are
	// not part of the mark: an object without them can have it.
	Notes map[string]string
}

// Meta is the metadata in a body. Fields that the body does not have are empty.
// The rest of the metadata is not decoded: the API server reports errors in it.
type Meta struct {
	APIVersion      string                  `json:"-"`
	Kind            string                  `json:"-"`
	Namespace       string                  `json:"namespace"`
	Name            string                  `json:"name"`
	GenerateName    string                  `json:"generateName"`
	UID             types.UID               `json:"uid"`
	ResourceVersion string                  `json:"resourceVersion"`
	Generation      int64                   `json:"generation"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	Annotations     map[string]string       `json:"annotations"`
}

// In reports whether the object with this metadata has the mark.
func (m Mark) In(meta Meta) bool {
	if m.Reference != nil {
		return slices.ContainsFunc(meta.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == m.Reference.UID })
	}
	return within(m.Annotations, meta.Annotations)
}

// within reports whether these annotations are among those of an object.
func within(annotations, all map[string]string) bool {
	for k, v := range annotations {
		if have, ok := all[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// added returns all annotations that an object gets.
func (m Mark) added() map[string]string {
	all := map[string]string{}
	maps.Copy(all, m.Notes)
	maps.Copy(all, m.Annotations)
	return all
}

// Metadata returns the metadata of a JSON merge patch that adds the mark to an object
// with this metadata. It has the complete list of owner references.
func (m Mark) Metadata(meta Meta) map[string]any {
	metadata := map[string]any{}
	if m.Reference != nil {
		metadata["ownerReferences"] = append(slices.Clone(meta.OwnerReferences), *m.Reference)
	}
	if all := m.added(); len(all) > 0 {
		metadata["annotations"] = all
	}
	return metadata
}

// Read returns the metadata of an object in JSON. Like an API server, it uses the last
// of repeated members.
func Read(body []byte) (Meta, error) {
	var object struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        Meta `json:"metadata"`
	}
	if err := decode(body, &object); err != nil {
		return Meta{}, err
	}
	meta := object.Metadata
	meta.APIVersion, meta.Kind = object.APIVersion, object.Kind
	return meta, nil
}

// decode reads a JSON object.
func decode(body []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return errors.New("not a JSON object")
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, into); err != nil {
		return fmt.Errorf("not the JSON of an object: %w", err)
	}
	return nil
}

// Add returns the JSON of an object with the mark in it. A body that has the mark
// already is returned unchanged. All other values keep their text.
//
// It fails if the body is not the JSON of an object, or if members are repeated where
// the mark belongs: one of them would be lost, and with it the API server's warning.
func Add(body []byte, m Mark) ([]byte, error) {
	whole, err := members(body)
	if err != nil {
		return nil, err
	}
	metadata, err := members(whole["metadata"])
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	meta, err := Read(body)
	if err != nil || m.In(meta) && within(m.Notes, meta.Annotations) {
		return body, err
	}
	if m.Reference != nil && !m.In(meta) {
		var list []json.RawMessage
		if err := unmarshal(metadata["ownerReferences"], &list); err != nil {
			return nil, err
		}
		reference, err := json.Marshal(m.Reference)
		if err != nil {
			return nil, fmt.Errorf("encode an owner reference: %w", err)
		}
		if metadata["ownerReferences"], err = json.Marshal(append(list, reference)); err != nil {
			return nil, fmt.Errorf("encode the owner references: %w", err)
		}
	}
	all := m.added()
	if len(all) == 0 {
		return with(whole, metadata)
	}
	annotations, err := members(metadata["annotations"])
	if err != nil {
		return nil, fmt.Errorf("annotations: %w", err)
	}
	for key, value := range all {
		if annotations[key], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode an annotation: %w", err)
		}
	}
	if metadata["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, fmt.Errorf("encode the annotations: %w", err)
	}
	return with(whole, metadata)
}

// with returns the text of an object with the metadata.
func with(whole, metadata map[string]json.RawMessage) ([]byte, error) {
	var err error
	if whole["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	body, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	return body, nil
}

// members returns the members of an object; none if text is missing or null.
func members(text []byte) (map[string]json.RawMessage, error) {
	var found map[string]json.RawMessage
	if err := unmarshal(text, &found); err != nil {
		return nil, err
	}
	if found == nil {
		found = map[string]json.RawMessage{}
	}
	return found, nil
}

// unmarshal decodes JSON, and refuses repeated members. If there is no text, it leaves
// into unchanged.
func unmarshal(text []byte, into any) error {
	if text == nil {
		return nil
	}
	twice, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(twice, err)...); err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	return nil
}
