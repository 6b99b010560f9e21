package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// answering is a client whose status writes have the given results, one after the other, and then succeed.
type answering struct {
	client.Client
	answers []error
}

// answeringStatus is the status writer of answering.
type answeringStatus struct {
	client.SubResourceWriter
	of *answering
}

func (*answering) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (a *answering) Status() client.SubResourceWriter { return answeringStatus{of: a} }

func (a answeringStatus) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) (err error) {
	if len(a.of.answers) > 0 {
		err, a.of.answers = a.of.answers[0], a.of.answers[1:]
	}
	return err
}

// A write counts by its outcome: a resolved conflict and a deleted object are not failures.
func TestWriteStatus_CountsWhatBecameOfIt(t *testing.T) {
	tea := schema.GroupResource{Group: "g.test", Resource: "teas"}
	conflict := apierrors.NewConflict(tea, "it", errors.New("changed"))
	for name, tt := range map[string]struct {
		answers []error
		counted string
	}{
		"conflict that is over": {[]error{conflict}, "succeeded"},
		"conflict that stays":   {[]error{conflict, conflict, conflict, conflict}, "failed"},
		"object that is gone":   {[]error{apierrors.NewNotFound(tea, "it")}, ""},
		"no permission":         {[]error{apierrors.NewForbidden(tea, "it", errors.New("no"))}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			api, reg := &answering{answers: tt.answers}, prometheus.NewRegistry()
			gvk := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}
			r := &reconciler{
				gvk: gvk, client: api, metrics: must.Get(metrics.New(reg))(t),
				watch: watches.Watch{ManageStatus: true}, res: resource{plural: "teas", hasStatus: true},
			}
			err := r.writeStatus(t.Context(), object(gvk, "ns", "it", nil), metrics.MomentEnd, func(map[string]any) map[string]any {
				return map[string]any{"a": "b"}
			})
			if (err == nil) != (tt.counted == "succeeded") || len(api.answers) > 0 {
				t.Errorf("error = %v, answers left: %d", err, len(api.answers))
			}
			want := ""
			if tt.counted != "" {
				want = "# HELP rolewright_status_writes_total Writes of an object's status, by the moment of the run and their result.\n" +
					"# TYPE rolewright_status_writes_total counter\n" +
					fmt.Sprintf("rolewright_status_writes_total{group=%q,kind=%q,moment=\"end\",result=%q} 1\n", gvk.Group, gvk.Kind, tt.counted)
			}
			must.Do(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "rolewright_status_writes_total"))
		})
	}
}
