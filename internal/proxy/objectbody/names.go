package objectbody

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names returns the objects in an answer in JSON: one if the answer is an object or
// the status of a successful deletion, all of them if it is a list or a table, none
// if it is any other status.
//
// A status does not contain the object's kind: its Meta has only a name and a UID.
// If the objects of a list do not contain their kind, it follows from the list's kind.
// For metadata alone, as in the rows of a table, the kind is PartialObjectMetadata.
func Names(body []byte) ([]Meta, error) {
	meta, err := Read(body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []json.RawMessage `json:"items"`
		Rows  []struct {
			Object json.RawMessage `json:"object"`
		} `json:"rows"`
	}
	switch {
	case meta.APIVersion == "v1" && meta.Kind == "Status":
		return statusNames(body)
	case meta.UID != "": // no list has a UID, even if an object's kind ends in List
		return []Meta{meta}, nil
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	if meta.Kind == "Table" && strings.HasPrefix(meta.APIVersion, "meta.k8s.io/") {
		for _, row := range answer.Rows {
			answer.Items = append(answer.Items, row.Object)
		}
		meta = Meta{} // the table's, and not the objects'
	} else if answer.Items == nil {
		return []Meta{meta}, nil
	}
	var names []Meta
	for _, text := range answer.Items {
		item, err := Read(text)
		if err != nil {
			return nil, fmt.Errorf("items: %w", err)
		}
		if item.Kind == "" {
			item.APIVersion, item.Kind = meta.APIVersion, strings.TrimSuffix(meta.Kind, "List")
		}
		names = append(names, item)
	}
	return names, nil
}

func statusNames(body []byte) ([]Meta, error) {
	var s metav1.Status
	if err := decode(body, &s); err != nil {
		return nil, err
	}
	if s.Status != metav1.StatusSuccess || s.Details == nil || s.Details.Name == "" && s.Details.UID == "" {
		return nil, nil
	}
	return []Meta{{Name: s.Details.Name, UID: s.Details.UID}}, nil
}
