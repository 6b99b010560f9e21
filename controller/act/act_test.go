package act

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
)

// cupboard is a client for one object, which records the last patch.
type cupboard struct {
	dynamic.ResourceInterface
	object  *unstructured.Unstructured
	patched string
}

func (c *cupboard) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return c.object, nil
}

func (c *cupboard) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	c.patched = string(data)
	return c.object, nil
}

// The button stops the run that the page shows, and no other run, whether or not the status records runs.
func TestAct_CancelsTheRunOfThePage(t *testing.T) {
	t.Parallel()
	const one, two = "0b1f6b1e-0000-4000-8000-000000000001", "0b1f6b1e-0000-4000-8000-000000000002"
	recorded := func(active, last map[string]any) map[string]any {
		ansible := map[string]any{}
		if last != nil {
			ansible["lastRun"] = last
		}
		if active != nil {
			ansible["activeRun"] = active
		}
		return map[string]any{"ansible": ansible}
	}
	running := map[string]any{"id": one, "cause": "created", "generation": int64(1), "started": time.Now().UTC().Format(time.RFC3339)}
	last := map[string]any{
		"id": two, "cause": "created", "generation": int64(1), "started": running["started"], "finished": running["started"],
		"result": "Succeeded", "reason": "RunSucceeded", "fingerprint": "",
	}
	for name, tt := range map[string]struct {
		status  any
		run     string
		cancels string
		err     error
	}{
		"run in the status":           {recorded(running, nil), one, one, nil},
		"run that is not on the page": {recorded(running, last), "", one, nil},
		"another run by now":          {recorded(running, last), two, "", page.ErrChanged},
		"run that has ended":          {recorded(nil, last), two, "", nil},
		"record from before":          {recorded(nil, last), one, one, nil}, // manageStatus: false was added
		"run in a record from before": {recorded(running, nil), two, two, nil},
		"no record of runs":           {nil, one, one, nil},
		"no record, nor a run":        {nil, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cupboard{object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "g.test/v1", "kind": "Tea", "metadata": map[string]any{"name": "it", "uid": "u", "generation": int64(1)}, "status": tt.status,
			}}}
			objects := Of(func(history.Object) (dynamic.ResourceInterface, error) { return c, nil })
			changed, err := objects.(Objects).Act(t.Context(), history.Object{Name: "it"}, page.Asked{Do: "cancel", Run: tt.run})
			if !errors.Is(err, tt.err) || changed != (tt.cancels != "") {
				t.Errorf("changed = %v, error = %v", changed, err)
			}
			if want := `"rolewright.dev/cancel":"` + tt.cancels + `"`; tt.cancels != "" && !strings.Contains(c.patched, want) {
				t.Errorf("patch = %s, want %s in it", c.patched, want)
			}
		})
	}
	fresh := &unstructured.Unstructured{Object: map[string]any{}} // has no record of runs, as with manageStatus: false
	if _, said := Cancel("")(fresh); !strings.HasPrefix(said, "has no run in progress") || !strings.Contains(said, "--run") {
		t.Error(said)
	}
}
