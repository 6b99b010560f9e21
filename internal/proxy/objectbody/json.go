package objectbody

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

func (m Mark) field() string {
	if m.Reference != nil {
		return referencesField
	}
	return annotationsField
}

// addToJSON adds the mark to an object, or to a patch that looks like one.
func (e Encoding) addToJSON(body []byte, m Mark, stored *Meta) ([]byte, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	whole, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	if e.onlyChanges() && isNull(whole.get("metadata")) {
		return nil, fmt.Errorf("%w: the patch removes the metadata", ErrUnmarkable)
	}
	md, err := whole.metadata(m.field())
	if err != nil {
		return nil, err
	}
	value := md.get(m.field())
	var changed []byte
	if m.Reference != nil {
		changed, err = e.addReference(value, *m.Reference, md, stored)
	} else {
		changed, err = e.addAnnotations(value, m.Annotations)
	}
	if err != nil {
		return nil, fmt.Errorf("metadata.%s: %w", m.field(), err)
	}
	if value != nil && bytes.Equal(changed, value) || changed == nil {
		return body, nil
	}
	return whole.with("metadata", md.with(m.field(), changed)), nil
}

// addReference returns the list with the reference in it; nil if the body needs no
// list, because the stored one has the reference and stays.
func (e Encoding) addReference(list []byte, ref metav1.OwnerReference, md object, stored *Meta) ([]byte, error) {
	if e == StrategicMergePatch && md.get("$setElementOrder/ownerReferences") != nil {
		return nil, fmt.Errorf("%w: the patch sets the order of the references", ErrUnmarkable)
	}
	if list == nil && e == MergePatch { // such a patch replaces the whole list
		if (Mark{Reference: &ref}).in(*stored) {
			return nil, nil
		}
		return json.Marshal(append(slices.Clone(stored.OwnerReferences), ref))
	}
	if isNull(list) && e == StrategicMergePatch {
		return nil, fmt.Errorf("%w: the patch removes the references", ErrUnmarkable)
	}
	if list == nil || isNull(list) {
		return json.Marshal([]metav1.OwnerReference{ref})
	}
	var have []struct {
		UID string `json:"uid"`
		// Directive is set in elements of a strategic merge patch that are no
		// references.
		Directive string `json:"$patch"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(list, &have); err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.UID == string(ref.UID) && (h.Directive == "" || e != StrategicMergePatch) {
			return list, nil
		}
	}
	element, err := json.Marshal(ref)
	if err != nil {
		return nil, err
	}
	return insert(list, element, len(have) == 0), nil
}

// addAnnotations returns the annotations with the added ones in them.
func (e Encoding) addAnnotations(value []byte, added map[string]string) ([]byte, error) {
	if isNull(value) && e.onlyChanges() {
		return nil, fmt.Errorf("%w: the patch removes the annotations", ErrUnmarkable)
	}
	if value == nil || isNull(value) {
		return json.Marshal(added)
	}
	for _, key := range slices.Sorted(maps.Keys(added)) {
		o, err := parseObject(value)
		if err != nil {
			return nil, err
		}
		if e == StrategicMergePatch && o.get("$patch") != nil {
			return nil, fmt.Errorf("%w: the patch has a directive for the annotations", ErrUnmarkable)
		}
		var have any
		if err := o.decode(key, &have); err != nil {
			return nil, err
		}
		if have != any(added[key]) {
			value = o.with(key, quote(added[key]))
		}
	}
	return value, nil
}
