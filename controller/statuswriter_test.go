package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
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
