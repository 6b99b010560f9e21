package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/controller/status"
)

// inputsKey is the field of a trimmed object that holds the digest of what was cut. If
// an object from the API server has such a field, it counts like any other.
const inputsKey = "rolewright.dev/inputs"

// createdKey is the field of a trimmed object that holds its time of creation. Its
// metadata does not have it, which distinguishes a trimmed object from any object of
// the API server, however the fields of that are named.
const createdKey = "rolewright.dev/created"

// recordKey is the field of a trimmed object that holds the record in its status, in the form of
// [status.Record.Pack]: the maps of a status would take five times as much memory.
const recordKey = "rolewright.dev/record"

func isTrimmed(obj *unstructured.Unstructured) bool {
	_, digest := obj.Object[inputsKey].(string)
	return digest && obj.GetCreationTimestamp().Time.IsZero()
}

// created returns the time of creation of a trimmed object.
func created(obj *unstructured.Unstructured) time.Time {
	text, _ := obj.Object[createdKey].(string)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// packed returns the record in a trimmed object.
func packed(obj *unstructured.Unstructured) status.Record {
	text, _ := obj.Object[recordKey].(string)
	return status.Unpack(text)
}

// trim returns a function that cuts an object down to what the cache keeps: enough to
// decide whether a run is due, however large the object is. It keeps the labels if labels
// is true, the names of the references in fields, and the record in the status if record is
// true. Code that needs more reads the live object, as every run does.
//
// All trimmed objects of a kind share the strings for their kind.
func trim(gvk schema.GroupVersionKind, counts fingerprint.Counts, labels, record bool, fields ...reference.Field) toolscache.TransformFunc {
	version, kind := gvk.ToAPIVersionAndKind()
	var apiVersion, itsKind any = version, kind
	return func(in any) (any, error) {
		obj, ok := in.(*unstructured.Unstructured)
		if !ok {
			return in, nil
		}
		if isTrimmed(obj) {
			return in, nil // a streamed initial list is transformed twice
		}
		inputs, err := fingerprint.Object(obj.Object, counts)
		if err != nil {
			return nil, fmt.Errorf("trim %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
		}
		kept := map[string]any{
			"apiVersion": apiVersion, "kind": itsKind,
			"metadata": trimMetadata(obj, labels), inputsKey: inputs,
			createdKey: obj.GetCreationTimestamp().UTC().Format(time.RFC3339),
		}
		home := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
		if refs, _ := reference.Read(obj.Object, home, obj.GroupVersionKind().GroupKind(), fields); len(refs) > 0 {
			kept[referencesKey] = packReferences(refs)
		}
		if st, ok := obj.Object["status"].(map[string]any); ok && record {
			kept[recordKey] = status.Read(st).Pack()
		}
		return &unstructured.Unstructured{Object: kept}, nil
	}
}

func trimMetadata(obj *unstructured.Unstructured, labels bool) map[string]any {
	all, _ := obj.Object["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, key := range []string{
		"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp", "finalizers",
	} {
		if value, ok := all[key]; ok {
			kept[key] = value
		}
	}
	if labels && all["labels"] != nil {
		kept["labels"] = all["labels"]
	}
	settings := map[string]any{}
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, ownPrefix) || strings.HasPrefix(key, incumbentPrefix) || strings.HasPrefix(key, chartPrefix) {
			settings[key] = value
		}
	}
	if len(settings) > 0 {
		kept["annotations"] = settings
	}
	return kept
}
