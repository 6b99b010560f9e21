package objectbody

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Encoding is a media type of bodies that an API server accepts.
type Encoding string

const (
	JSON                = Encoding(runtime.ContentTypeJSON)
	YAML                = Encoding(runtime.ContentTypeYAML)
	Protobuf            = Encoding(runtime.ContentTypeProtobuf)
	CBOR                = Encoding(runtime.ContentTypeCBOR)
	JSONPatch           = Encoding(types.JSONPatchType)
	MergePatch          = Encoding(types.MergePatchType)
	StrategicMergePatch = Encoding(types.StrategicMergePatchType)
	ApplyYAML           = Encoding(types.ApplyYAMLPatchType)
	ApplyCBOR           = Encoding(types.ApplyCBORPatchType)
)

// ErrUnmarkable is in the chain of Add's errors if an API server may accept the
// body, but the mark cannot be added without another change of the stored object.
// Every other error means that an API server refuses the body.
var ErrUnmarkable = errors.New("the ownership mark cannot be added")

// EncodingOf returns the encoding that a Content-Type header names; no header means
// JSON. It is false if no API server accepts the media type.
//
// Parameters are ignored: how an API server treats them depends on the method, and
// none of them changes the encoding.
func EncodingOf(contentType string) (Encoding, bool) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch e := Encoding(strings.ToLower(strings.TrimSpace(mediaType))); e {
	case "":
		return JSON, contentType == ""
	case JSON, YAML, Protobuf, CBOR, JSONPatch, MergePatch, StrategicMergePatch, ApplyYAML, ApplyCBOR:
		return e, true
	default:
		return "", false
	}
}

// IsApply reports whether the body is for server-side apply: the only patch that
// creates an object.
func (e Encoding) IsApply() bool { return e == ApplyYAML || e == ApplyCBOR }

// onlyChanges reports whether the body is a patch of an object that exists.
func (e Encoding) onlyChanges() bool {
	return e == JSONPatch || e == MergePatch || e == StrategicMergePatch
}

// Mark is an owner mark. Exactly one of its fields is set.
type Mark struct {
	// Reference has at least a UID.
	Reference *metav1.OwnerReference
	// Annotations replace those of the same name.
	Annotations map[string]string
}

func (m Mark) valid() bool {
	if m.Reference != nil {
		return m.Reference.UID != "" && m.Annotations == nil
	}
	return len(m.Annotations) > 0
}

// Meta is the metadata in a body. Fields that the body does not have are empty.
type Meta struct {
	APIVersion, Kind              string
	Name, GenerateName, Namespace string
	UID                           types.UID
	ResourceVersion               string
	OwnerReferences               []metav1.OwnerReference
	Annotations                   map[string]string
}

// fields of metadata where the marks are.
const (
	referencesField  = "ownerReferences"
	annotationsField = "annotations"
)

// metadata is the part of an object's metadata that Meta holds. The rest is not
// decoded: the API server reports errors in it.
type metadata struct {
	Name            string                  `json:"name"`
	GenerateName    string                  `json:"generateName"`
	Namespace       string                  `json:"namespace"`
	UID             types.UID               `json:"uid"`
	ResourceVersion string                  `json:"resourceVersion"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	Annotations     map[string]string       `json:"annotations"`
}

func (m metadata) meta(apiVersion, kind string) Meta {
	return Meta{
		APIVersion: apiVersion, Kind: kind,
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace,
		UID: m.UID, ResourceVersion: m.ResourceVersion,
		OwnerReferences: m.OwnerReferences, Annotations: m.Annotations,
	}
}

// Read returns the metadata in the body. In a merge patch that is the metadata that
// it changes; a JSON patch is a list of operations and has none.
func (e Encoding) Read(body []byte) (Meta, error) {
	if e == JSONPatch {
		_, err := decodePatch(body)
		return Meta{}, err
	}
	if e == Protobuf {
		p, err := decodeProtobuf(body)
		if err != nil {
			return Meta{}, err
		}
		return p.meta()
	}
	text, err := e.toJSON(body)
	if err != nil {
		return Meta{}, err
	}
	o, err := parseObject(text)
	if err != nil {
		return Meta{}, err
	}
	return o.meta()
}

// Add returns the body with the mark in it. A body that has the mark already is
// returned as it is.
//
// Stored is the object that a patch applies to, nil if there is none. Only JSON,
// merge and strategic merge patches need it. They never create an object: with
// nothing stored they are returned as they are, and the API server refuses them.
// A reference that is added to a JSON or merge patch sets the whole list, made from
// the stored one: entries that others add to the list meanwhile are lost.
func (e Encoding) Add(body []byte, m Mark, stored *Meta) ([]byte, error) {
	if !m.valid() {
		return nil, errors.New("a mark is either a reference with a uid or annotations")
	}
	if e.onlyChanges() && stored == nil {
		return body, nil
	}
	switch e {
	case JSON, MergePatch, StrategicMergePatch:
		return e.addToJSON(body, m, stored)
	case YAML, ApplyYAML:
		return e.addToYAML(body, m)
	case CBOR, ApplyCBOR:
		return addToCBOR(body, m)
	case Protobuf:
		return addToProtobuf(body, m)
	case JSONPatch:
		return addToPatch(body, m, *stored)
	default:
		return nil, fmt.Errorf("unknown encoding %q", string(e))
	}
}

// in reports whether the object with this metadata has the mark.
func (m Mark) in(meta Meta) bool {
	if m.Reference != nil {
		for _, r := range meta.OwnerReferences {
			if r.UID == m.Reference.UID {
				return true
			}
		}
		return false
	}
	for k, v := range m.Annotations {
		if have, ok := meta.Annotations[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// toJSON returns the body as JSON text, for reading.
func (e Encoding) toJSON(body []byte) ([]byte, error) {
	switch e {
	case JSON, MergePatch, StrategicMergePatch:
		return body, checkJSON(body)
	case YAML, ApplyYAML:
		return yamlToJSON(body)
	case CBOR, ApplyCBOR:
		return cborToJSON(body)
	default:
		return nil, fmt.Errorf("unknown encoding %q", string(e))
	}
}
