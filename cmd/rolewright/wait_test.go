package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An object that is named twice is waited for once.
func TestAwait_CountsAnObjectOnce(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(io.Discard)
	one := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a", "namespace": "x"}}}
	met := func(*unstructured.Unstructured) (string, string, error) { return "reconciled", "", nil }
	if err := (&waitOptions{}).await(cmd, &objectClient{}, []unstructured.Unstructured{one, one}, met); err != nil { // without a client to follow more
		t.Error(err)
	}
	other := *one.DeepCopy()
	other.SetNamespace("y")
	if objects := once([]unstructured.Unstructured{one, other, one}); len(objects) != 2 { // of which the timeout speaks
		t.Errorf("%v", objects)
	}
}
