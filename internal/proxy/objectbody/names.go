package objectbody

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Names returns the objects that the answer to a delete request names: one if it
// is an object or the status of a successful deletion, all of them if it is a
// list, none if it is any other status.
//
// A status does not contain the object's kind: its Meta has only a name and a UID.
// Objects of a list do not always contain it; then it follows from the list's kind.
func (e Encoding) Names(body []byte) ([]Meta, error) {
	if e == Protobuf {
		return protobufNames(body)
	}
	text, err := e.toJSON(body)
	if err != nil {
		return nil, err
	}
	o, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	meta, err := o.meta()
	if err != nil {
		return nil, err
	}
	switch {
	case isStatus(meta.APIVersion, meta.Kind):
		var status metav1.Status
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &status); err != nil {
			return nil, fmt.Errorf("status: %w", err)
		}
		return statusNames(status), nil
	case meta.UID == "" && o.get("items") != nil: // a list has no UID, even if an object's kind ends in List
		return o.itemNames(meta)
	default:
		return []Meta{meta}, nil
	}
}

func isStatus(apiVersion, kind string) bool { return apiVersion == "v1" && kind == "Status" }

func statusNames(s metav1.Status) []Meta {
	if s.Status != metav1.StatusSuccess || s.Details == nil || s.Details.Name == "" && s.Details.UID == "" {
		return nil
	}
	return []Meta{{Name: s.Details.Name, UID: s.Details.UID}}
}

func (o object) itemNames(list Meta) ([]Meta, error) {
	var items []json.RawMessage
	if err := o.decode("items", &items); err != nil {
		return nil, err
	}
	var names []Meta
	for _, text := range items {
		item, err := parseObject(text)
		if err != nil {
			return nil, fmt.Errorf("items: %w", err)
		}
		meta, err := item.meta()
		if err != nil {
			return nil, fmt.Errorf("items: %w", err)
		}
		if meta.Kind == "" {
			meta.APIVersion, meta.Kind = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
		}
		names = append(names, meta)
	}
	return names, nil
}

func protobufNames(body []byte) ([]Meta, error) {
	p, err := decodeProtobuf(body)
	if err != nil {
		return nil, err
	}
	kind, isList := strings.CutSuffix(p.Kind, "List")
	switch {
	case isStatus(p.APIVersion, p.Kind):
		var status metav1.Status
		if err := status.Unmarshal(p.raw()); err != nil {
			return nil, fmt.Errorf("status: %w", err)
		}
		return statusNames(status), nil
	case isList: // no kind that has protobuf ends so for another reason
		var names []Meta
		err := eachField(p.raw(), listItems, func(_, start, end int) error {
			md, err := protobufMetadata(p.raw()[start:end])
			names = append(names, md.meta(p.APIVersion, kind))
			return err
		})
		return names, err
	default:
		meta, err := p.meta()
		return []Meta{meta}, err
	}
}
