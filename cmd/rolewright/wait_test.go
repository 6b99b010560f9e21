package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// An object that is named twice is waited for once.
func TestAwait_CountsAnObjectOnce(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(io.Discard)
	one := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a", "namespace": "x"}}}
	met := func(*unstructured.Unstructured) (string, string, error) { return "reconciled", "", nil }
	if err := (&waitOptions{}).await(cmd, &objectClient{}, []unstructured.Unstructured{one, one}, met); err != nil { // a client without a server: there must be nothing more to follow
		t.Error(err)
	}
	other := *one.DeepCopy()
	other.SetNamespace("y")
	if objects := once([]unstructured.Unstructured{one, other, one}); len(objects) != 2 { // the objects that the timeout names
		t.Errorf("%v", objects)
	}
}

// If one of the objects to be deleted is gone, the others are still waited for.
func TestWait_ForObjectsOfWhichOneIsDeleted(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "apps.example.com", Version: "v1", Resource: "widgets"}
	there := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "there", "namespace": "ns"}}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets: "WidgetList"}, there)
	c := &objectClient{resource: widgets, client: client.Resource(widgets), namespace: "ns"}
	for want, names := range map[int][]string{1: {"gone", "there"}, 0: {"gone"}} {
		found, err := (&waitOptions{condition: waitsForDeletion}).there(t.Context(), c, names)
		if err != nil || len(found) != want {
			t.Errorf("%v: %d objects, %v", names, len(found), err)
		}
	}
	if _, err := (&waitOptions{condition: waitsForReconcile}).there(t.Context(), c, []string{"there", "gone"}); !nothing(err) {
		t.Errorf("for a run of one that is gone: %v", err)
	}
}

// If the status has no record of runs, its Ready condition may come from an earlier run.
func TestRequested_WithoutARecordOfRuns(t *testing.T) {
	status := map[string]any{"observedGeneration": int64(1), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a", "generation": int64(1)}, "status": status}}
	if done, _, err := requested(obj); done != "" || err == nil || !strings.Contains(err.Error(), "get runs") {
		t.Errorf("%q, %v", done, err)
	}
	if done, _, err := reconciled(obj); done == "" || err != nil {
		t.Errorf("%q, %v", done, err)
	}
}
