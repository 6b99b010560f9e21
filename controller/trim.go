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

// inputsKey is where a trimmed object keeps the digest of what was cut. An
// object may come with such a key; it counts like any other field there.
const inputsKey = "rolewright.dev/inputs"

// createdKey is where it keeps its time of creation, which is missing from its
// metadata: that tells it from any object that an API server gives out, however
// its author named the fields.
const createdKey = "rolewright.dev/created"

// recordKey is where it keeps the record of its status, as [status.Record.Pack] writes it:
// the maps of a status take five times as much memory.
const recordKey = "rolewright.dev/record"

func isTrimmed(obj *unstructured.Unstructured) bool {
	_, digest := obj.Object[inputsKey].(string)
	return digest && obj.GetCreationTimestamp().Time.IsZero()
}

// created is the time of creation of a trimmed object.
func created(obj *unstructured.Unstructured) time.Time {
	text, _ := obj.Object[createdKey].(string)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// packed is the record of a trimmed object.
func packed(obj *unstructured.Unstructured) status.Record {
	text, _ := obj.Object[recordKey].(string)
	return status.Unpack(text)
}

// trim is what the cache keeps of an object: enough to decide whether a run is
// due, however large the object is, and the labels where there is a selector.
// Of what it refers to by fields it keeps the names. Of the status it keeps the record, where the operator writes one. Who needs
// more reads the object live, as every run does.
//
// All objects of a kind share what says their kind.
func trim(gvk schema.GroupVersionKind, counts fingerprint.Counts, labels, record bool, fields ...reference.Field) toolscache.TransformFunc {
	version, kind := gvk.ToAPIVersionAndKind()
	var apiVersion, itsKind any = version, kind
	return func(in any) (any, error) {
		obj, ok := in.(*unstructured.Unstructured)
		if !ok {
			return in, nil
		}
		if isTrimmed(obj) {
			return in, nil // a streamed first list is transformed twice
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
