package assembly

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
)

// A server that has ended because there was no run is not logged as a failure, and raises no alert.
func TestWarmLog(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	var log strings.Builder
	tell := warmLog(must.Get(metrics.New(registry))(t), funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}))
	idle := fmt.Errorf("%w: %w for 10m0s", warm.ErrNotReady, warm.ErrIdle)
	for i, tt := range []struct {
		err   error
		ready float64
		said  string
	}{
		{nil, 1, "Runs are forked"},
		{idle, 1, "The fork server was stopped because it was idle (--warm-idle)"},
		{errors.New("broken"), 0, "Runs are not forked"},
		{errors.New("broken"), 0, ""},
	} {
		log.Reset()
		tell(tt.err)
		if said := log.String(); !strings.Contains(said, tt.said) || (said == "") != (tt.said == "") {
			t.Errorf("%d: %q", i, said)
		}
		for _, family := range must.Get(registry.Gather())(t) {
			if family.GetName() == "rolewright_warm_ready" && family.GetMetric()[0].GetGauge().GetValue() != tt.ready {
				t.Errorf("%d: %v", i, family)
			}
		}
	}
	tell(fmt.Errorf("%w: %w", warm.ErrNotReady, &runner.CheckError{Differs: []string{"self-check: loop"}}))
	if n := must.Get(testutil.GatherAndCount(registry, "rolewright_warm_line_differs"))(t); n != 1 {
		t.Errorf("%d names of what differs, not 1", n)
	}
}
