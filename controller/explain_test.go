package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// What explain derives from a status is what the operator decides.
func TestExplain_SaysWhatIsDecided(t *testing.T) {
	now := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	run := status.Run{
		ID: "11111111-1111-1111-1111-111111111111", Cause: "environment", Trigger: "environment: A", Generation: 2, Fingerprint: strings.Repeat("ab", 16),
		Started: now.Add(-time.Minute), Finished: now.Add(-30 * time.Second), Result: status.Succeeded, Reason: "Succeeded",
	}
	run.Warnings = []string{"it loops"}
	failed := run
	failed.Result, failed.Reason, failed.Attempts = status.Failed, "TaskFailed", 3
	stalls := failed
	stalls.Permanent = true
	unrecorded := run
	unrecorded.ID = "" // the schema drops it
	for name, tc := range map[string]struct {
		last        *status.Run
		generation  int64
		annotations map[string]any
		cause       string
		in          time.Duration // negative for never
		held        string
	}{
		"new":          {nil, 1, nil, "created", 0, ""},
		"settled":      {&run, 2, nil, "period", time.Hour - 30*time.Second, ""},
		"changed":      {&run, 3, nil, "changed", 0, ""},
		"asked for":    {&run, 2, map[string]any{ownPrefix + "reconcile-at": "now"}, "manual", 0, ""},
		"paused":       {&run, 3, map[string]any{ownPrefix + "paused": "true"}, "changed", -1, "paused"},
		"paused early": {&run, 2, map[string]any{ownPrefix + "paused": "true"}, "", -1, "paused"},
		"no period":    {&run, 2, map[string]any{incumbentPrefix + "reconcile-period": "0s"}, "", -1, ""},
		"repeated":     {&failed, 2, nil, "retry", 4*time.Minute - 30*time.Second, ""},
		"stalled":      {&stalls, 2, nil, "", -1, "stalled after a failure (TaskFailed)"},
		"unrecorded":   {&unrecorded, 2, nil, "restart", -1, "no run of it is recorded"},
		"was fixed":    {&stalls, 3, nil, "changed", 0, ""},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "it", "generation": tc.generation, "annotations": tc.annotations},
		}}
		if tc.last != nil {
			next := time.Hour
			if tc.last.Permanent {
				next = 0
			}
			obj.Object["status"] = status.Conclude(status.Begin(nil, status.Active{}, false, now), *tc.last, next, now)
			if tc.last.ID == "" {
				delete(obj.Object["status"].(map[string]any), "ansible")
			}
		}
		period := time.Hour
		e := Explain(obj, watches.Watch{ManageStatus: true, ReconcilePeriod: &period}, Options{RetryMin: time.Minute, RetryMax: time.Hour}, now)
		must.Be(t, name+": cause", tc.cause, e.Cause)
		if held := strings.Join(e.Held, "; "); !strings.Contains(held, tc.held) || tc.held == "" && held != "" {
			t.Errorf("%s: held by %q", name, held)
		}
		switch {
		case tc.in < 0:
			if e.At != nil {
				t.Errorf("%s: it runs at %s", name, e.At)
			}
		case e.At == nil || e.At.Sub(now) < tc.in || e.At.Sub(now) > tc.in+tc.in/5:
			t.Errorf("%s: it runs at %v, want in %s", name, e.At, tc.in)
		}
		if tc.last != nil && tc.last.ID != "" && (e.Last == nil || e.Last.Trigger != "environment: A" || !slices.Contains(e.Warnings, "it loops")) {
			t.Errorf("%s: last run %+v, warnings %q", name, e.Last, e.Warnings)
		}
	}

	// A periodic run of a chart without a change leaves no record.
	period := 20 * time.Second
	chart := watches.Watch{ManageStatus: true, ReconcilePeriod: &period, Content: watches.Content{Command: &watches.Command{Chart: &watches.Chart{}}}}
	e := Explain(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "it", "generation": int64(2)}, "status": status.Conclude(nil, run, 0, now),
	}}, chart, Options{}, now)
	if e.Cause != "period" || e.At == nil || e.At.Sub(now).Round(time.Second) != 10*time.Second || !e.Last.Finished.Equal(run.Finished) {
		t.Errorf("a chart: %s at %v, last run %+v", e.Cause, e.At, e.Last)
	}
}
