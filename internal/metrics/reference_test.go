package metrics

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rolewright/rolewright/test/must"
)

var update = flag.Bool("update", false, "write the reference again")

// metricsDoc returns the reference page of a registry's metrics.
func metricsDoc(t *testing.T, reg *prometheus.Registry) (page string, found int) {
	t.Helper()
	families := must.Get(reg.Gather())(t)
	var b strings.Builder
	b.WriteString("# Metrics\n\n" +
		"Written by `go test ./internal/metrics -run MetricsReference -update`; edit the metrics in the code, not this page.\n\n" +
		"Served at `/metrics` of `--metrics-bind-address`. Beside these there are those of controller-runtime (`controller_runtime_*`,\n" +
		"`workqueue_*`, `rest_client_*`, `leader_election_*`), of Go and of the process, and those that [roles post](../proxy.md#metrics-of-roles).\n\n" +
		"Metrics without the prefix `rolewright_` have the names and labels of `ansible-operator`.\n\n" +
		"| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, label := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	return b.String(), len(families)
}

func TestMetricsReference_IsInStepWithTheRegistry(t *testing.T) {
	r, reg := newRecorder(t)
	recordAll(r)
	want, found := metricsDoc(t, reg)
	all := make(chan *prometheus.Desc, 100)
	r.Describe(all)
	if found != len(all) {
		t.Errorf("%d metrics have values, of %d: recordAll forgets some", found, len(all))
	}
	must.Golden(t, *update, filepath.Join("..", "..", "docs", "reference", "metrics.md"), want)
}
