package objectbody

import (
	"bytes"
	"encoding/json"
	"fmt"

	cborlib "github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// selfDescribed is the tag by which CBOR is recognised. Most bodies begin with it.
const selfDescribed = "\xd9\xd9\xf7"

// rawMap is a CBOR map, its values as they are in the body.
type rawMap map[string]cborlib.RawMessage

func cborToJSON(body []byte) ([]byte, error) {
	var tree any
	if err := direct.Unmarshal(body, &tree); err != nil {
		return nil, fmt.Errorf("not CBOR: %w", err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("not CBOR that is JSON too: %w", err)
	}
	return text, nil
}

func addToCBOR(body []byte, m Mark) ([]byte, error) {
	meta, err := CBOR.Read(body)
	if err != nil {
		return nil, err
	}
	if m.in(meta) {
		return body, nil
	}
	var whole rawMap
	if err := direct.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("not CBOR: %w", err)
	}
	md, err := whole.inner("metadata")
	if err != nil {
		return nil, err
	}
	if err := md.add(m); err != nil {
		return nil, err
	}
	if err := whole.encode("metadata", md); err != nil {
		return nil, err
	}
	marked, err := direct.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("encode CBOR: %w", err)
	}
	if bytes.HasPrefix(body, []byte(selfDescribed)) {
		marked = append([]byte(selfDescribed), marked...)
	}
	return marked, nil
}

// add adds the mark to metadata.
func (r rawMap) add(m Mark) error {
	if m.Reference != nil {
		var list []cborlib.RawMessage
		if err := r.decode(referencesField, &list); err != nil {
			return err
		}
		element, err := direct.Marshal(m.Reference)
		if err != nil {
			return fmt.Errorf("encode CBOR: %w", err)
		}
		return r.encode(referencesField, append(list, element))
	}
	annotations, err := r.inner(annotationsField)
	if err != nil {
		return err
	}
	for k, v := range m.Annotations {
		if err := annotations.encode(k, v); err != nil {
			return err
		}
	}
	return r.encode(annotationsField, annotations)
}

// inner returns a member that is a map; an empty one if it is missing or null.
func (r rawMap) inner(name string) (rawMap, error) {
	var m rawMap
	if err := r.decode(name, &m); err != nil {
		return nil, err
	}
	if m == nil {
		m = rawMap{}
	}
	return m, nil
}

// decode leaves the value as it is if there is no such member.
func (r rawMap) decode(name string, into any) error {
	value, ok := r[name]
	if !ok {
		return nil
	}
	if err := direct.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (r rawMap) encode(name string, value any) error {
	raw, err := direct.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode CBOR: %w", err)
	}
	r[name] = raw
	return nil
}
