package watches

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// A chart is a directory with a Chart.yaml that has a name. Keys that have no effect on a chart are refused with their
// line.
func TestLoad_Chart(t *testing.T) {
	t.Parallel()
	dir := project(t)
	must.Do(t, os.MkdirAll(filepath.Join(dir, "charts", "kettle"), 0o755))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "nameless"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "charts/kettle/Chart.yaml"), []byte("name: kettle\nversion: 0.1.0\n"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "nameless/Chart.yaml"), []byte("version: 0.1.0\n"), 0o600))
	program := filepath.Join(dir, ChartProgram)
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o600))
	must.Do(t, os.Chmod(program, 0o755))
	env := map[string]string{"PATH": dir, "REGISTRY": "registry.example.com"}
	const chart = "chart: charts/kettle\n  "
	for name, tt := range map[string]struct{ fields, problem string }{
		"alone":             {chart, ""},
		"all keys":          {chart + "values: {a: 1}\n  valuesOverride: {b: [x]}\n  valuesFrom: [{secretRef: {name: db}, prefix: database.}]\n  wait: true\n  crds: apply\n  maxHistory: 0\n  takeOwnership: true\n  exposeManifest: true\n  dryRunOption: server", ""},
		"missing":           {"chart: charts/kettel", "4:10: error: [0].chart: invalid chart directory DIR/charts/kettel: no such file or directory; name the directory that has Chart.yaml"},
		"no chart":          {"chart: charts", "invalid chart directory DIR/charts: Chart.yaml: no such file or directory"},
		"a file":            {"chart: charts/kettle/Chart.yaml", "it is not a directory"},
		"nameless":          {"chart: nameless", "Chart.yaml has no name"},
		"with a role":       {chart + "role: memcached", `5:9: error: [0].role: "role" is for watches with a role or playbook; remove it; the values`},
		"with a command":    {chart + "command: [./x]", `"command" is for watches with a command`},
		"with vars":         {chart + "vars: {a: b}", `"vars" is for watches with a role or playbook`},
		"with a finalizer":  {chart + "finalizer: {name: example.com/f}", `"finalizer" is for watches with a role, playbook, command or handler; remove it; the release is always uninstalled`},
		"with an executor":  {chart + "executor: warm", `executor "warm" is for roles and playbooks; remove it, or write job`},
		"as Jobs":           {chart + "executor: job\n  job: {spec: {nodeSelector: {a: b}}}", ""},
		"values of a role":  {"role: memcached\n  values: {a: b}", `5:11: error: [0].values: "values" is for watches with a chart; remove it`},
		"no template":       {chart + "overrideValues: {a: '{{ nothing }}'}", `5:23: error: [0].overrideValues.a: failed to expand override values: invalid template string`},
		"crds":              {chart + "crds: never", `"never" is not a valid value of crds; write create, apply or skip`},
		"history":           {chart + "maxHistory: -1", "the number -1 is negative; write 0 for no limit"},
		"overrides no map":  {chart + "overrideValues: [a]", "a list is not a mapping"},
		"own namespace too": {chart + "ownNamespaceOnly: true\n  valuesFrom: [{secretRef: {name: db, namespace: other}}]", "a namespace in valuesFrom cannot be combined with ownNamespaceOnly"},
	} {
		text := "- version: v1\n  kind: A\n  group: g.example.com\n  " + tt.fields + "\n"
		got := loadText(t, dir, text, Options{LookupEnv: lookup(env)})
		if (got.err == nil) != (tt.problem == "") || tt.problem != "" && (len(got.problems) != 1 || !strings.Contains(got.problems[0], tt.problem)) {
			t.Errorf("%s: %v, %q; want %q", name, got.err, got.problems, tt.problem)
		}
	}

	got := loadText(t, dir, "- version: v1\n  kind: A\n  group: g.example.com\n  "+chart+
		"overrideValues: {image: $REGISTRY/x, count: 3, upper: '{{ \"a\" | upper }}', unset: \"$UNSET\"}\n", Options{LookupEnv: lookup(env)})
	if got.err != nil {
		t.Fatal(got.problems)
	}
	w := got.watches[0]
	c := w.Content.Command.Chart
	if o := c.OverrideValues; o["image"] != "registry.example.com/x" || o["count"] != "3" || o["upper"] != "A" || o["unset"] != "" || len(o) != 4 {
		t.Errorf("overrideValues: %v", o)
	}
	if w.Content.Command.Path != program || *w.ReconcilePeriod != time.Minute || w.Timeout != 5*time.Minute || w.IdleTimeout != 0 || w.Retry.MaxAttempts != 0 ||
		w.Finalizer.Name != ChartFinalizer || w.Finalizer.Former != "uninstall-helm-release" || w.Finalizer.Content != w.Content || c.CRDs != CRDsCreate || c.MaxHistory != 10 {
		t.Errorf("watch: %+v, chart %+v", w, c)
	}
	hour := time.Hour
	got = loadText(t, dir, "- version: v1\n  kind: A\n  group: g.example.com\n  "+chart+"\n", Options{LookupEnv: lookup(env), Defaults: Defaults{ReconcilePeriod: &hour}})
	if period := *got.watches[0].ReconcilePeriod; period != hour {
		t.Errorf("the period of the flag: %v", period)
	}
	got = loadText(t, dir, "- version: v1\n  kind: A\n  group: g.example.com\n  "+chart+"\n", Options{LookupEnv: lookup(nil)})
	if len(got.problems) != 1 || !strings.Contains(got.problems[0], "rolewright-helm, which runs charts, is neither in the directory of rolewright nor in PATH") {
		t.Errorf("without the program: %q", got.problems)
	}
}

// Charts of one kind share the name of their finalizer, which says nothing about what the user wrote.
func TestLoad_TwoCharts(t *testing.T) {
	t.Parallel()
	dir := project(t)
	for _, name := range []string{"kettle", "pot"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name, "Chart.yaml"), []byte("name: "+name+"\n"), 0o600))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, ChartProgram), []byte("#!/bin/sh\n"), 0o600))
	must.Do(t, os.Chmod(filepath.Join(dir, ChartProgram), 0o755))
	for _, tt := range []struct {
		fields   string
		problems []string
	}{
		{"selector: {matchLabels: {tier: CHART}}", nil},
		{"manageStatus: true", []string{"duplicate GVK"}},
		{"selector: {matchLabels: {tier: CHART}}\n  finalizer: {role: memcached}", []string{`"finalizer" is for`, `"finalizer" is for`}},
	} {
		var text string
		for _, chart := range []string{"kettle", "pot"} {
			text += "- version: v1\n  kind: A\n  group: g.example.com\n  chart: " + chart + "\n  " + strings.ReplaceAll(tt.fields, "CHART", chart) + "\n"
		}
		got := loadText(t, dir, text, Options{LookupEnv: lookup(map[string]string{"PATH": dir})}).problems
		if !slices.EqualFunc(got, tt.problems, strings.Contains) {
			t.Errorf("%s: %q, want %q", tt.fields, got, tt.problems)
		}
	}
}
