package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// After a refusal by the schema, the whole status of a kind is tried once per period. If the schema allows it by then, all
// objects get it at once.
func TestPatchStatus_NoticesThatTheSchemaWasFixed(t *testing.T) {
	t.Parallel()
	gvk := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}
	now, fixed, refusals := time.Unix(1_800_000_000, 0), false, 0
	var log strings.Builder
	r := &reconciler{
		gvk: gvk, metrics: must.Get(metrics.New(prometheus.NewRegistry()))(t), now: func() time.Time { return now },
		log: funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}),
		client: interceptor.NewClient(nil, interceptor.Funcs{
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
				if fixed || len(condition(obj.(*unstructured.Unstructured), status.Ready)) == 0 {
					return nil
				}
				refusals++
				return apierrors.NewInvalid(gvk.GroupKind(), obj.GetName(), field.ErrorList{field.NotSupported(field.NewPath("status", "conditions"), "Ready", []string{"Running"})})
			},
		}),
	}
	write := func(after time.Duration, ready string, refused int) {
		t.Helper()
		now = now.Add(after)
		obj := object(gvk, "ns", "one", nil)
		must.Do(t, r.patchStatus(t.Context(), obj, metrics.MomentEnd, func(st map[string]any) map[string]any {
			return status.Conclude(st, status.Run{Result: status.Succeeded, Generation: 1}, 0, now)
		}))
		must.Be(t, "Running", "Successful", condition(obj, status.Running)["reason"])
		if got, _ := condition(obj, status.Ready)["status"].(string); got != ready || refusals != refused {
			t.Errorf("Ready is %q after %d refusals, want %q after %d", got, refusals, ready, refused)
		}
	}
	write(0, "", 1)
	write(legacyPeriod-time.Second, "", 1)
	write(time.Second, "", 2)
	write(0, "", 2)
	fixed = true
	write(legacyPeriod-time.Second, "", 2)
	write(time.Second, "True", 2)
	write(0, "True", 2)
	must.Be(t, "lines in the log", 1, strings.Count(log.String(), "schema refuses"))
}

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
				gvk: gvk, client: api, metrics: must.Get(metrics.New(reg))(t), now: time.Now,
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
