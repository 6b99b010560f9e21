package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/fingerprint"
)

func TestTrim_KeepsTheDigestOfTheWholeObjectHoweverOftenItIsDone(t *testing.T) {
	whole := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", inputsKey: "forged",
			"metadata": map[string]any{
				"name": "one", "uid": "u", "generation": int64(1), "creationTimestamp": "2026-01-02T03:04:05Z",
				"labels": map[string]any{"a": "b"}, "managedFields": []any{"long"},
				"annotations": map[string]any{"foreign": "x", ownPrefix + "verbosity": "1", chartPrefix + "reconcile-period": "1m"},
			},
			"spec":   map[string]any{"size": int64(1)},
			"status": map[string]any{"conditions": []any{"long"}},
		}}
	}
	want, err := fingerprint.Object(whole().Object, fingerprint.Counts{})
	if err != nil {
		t.Fatal(err)
	}
	var obj any = whole()
	for range 3 {
		if obj, err = trim(whole().GroupVersionKind(), fingerprint.Counts{}, true, true)(obj); err != nil {
			t.Fatal(err)
		}
	}
	got := obj.(*unstructured.Unstructured)
	if diff := cmp.Diff(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", inputsKey: want, createdKey: "2026-01-02T03:04:05Z",
		"metadata": map[string]any{
			"name": "one", "uid": "u", "generation": int64(1), "labels": map[string]any{"a": "b"},
			"annotations": map[string]any{ownPrefix + "verbosity": "1", chartPrefix + "reconcile-period": "1m"},
		},
		recordKey: "{}",
	}, got.Object); diff != "" {
		t.Errorf("trimmed (-want +got):\n%s", diff)
	}
	if created(got).Unix() != 1767323045 {
		t.Errorf("created = %v", created(got))
	}
}
