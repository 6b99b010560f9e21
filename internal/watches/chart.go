package watches

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	sprig "github.com/go-task/slim-sprig/v3"
	"gopkg.in/yaml.v3"
)

// Chart is a Helm chart that is released for each object.
type Chart struct {
	// Dir is the chart's directory; absolute.
	Dir string
	// OverrideValues are values by their paths, as helm --set-string takes them.
	OverrideValues map[string]string `json:",omitempty"`
	// Values have less precedence than the object's spec, ValuesOverride more.
	Values, ValuesOverride map[string]any `json:",omitempty"`
	// DryRunOption is "client" if templates may not look into the cluster.
	DryRunOption string `json:",omitempty"`
	// Wait makes runs wait until the objects that they have made are ready.
	Wait bool `json:",omitempty"`
	// CRDs says what happens to the definitions in crds/.
	CRDs CRDs
	// MaxHistory is how many revisions are kept; 0 keeps all.
	MaxHistory int
	// TakeOwnership lets the first revision take over objects that belong to no release, or to another one.
	TakeOwnership bool `json:",omitempty"`
	// ExposeManifest makes the status show the values of Secrets.
	ExposeManifest bool `json:",omitempty"`
	// Test makes runs call the tests of the chart once the objects that they have made are ready.
	Test bool `json:",omitempty"`
}

// CRDs says what happens to the definitions in crds/ of a chart.
type CRDs string

// The values of CRDs.
const (
	// CRDsCreate: missing definitions are created with the first revision.
	CRDsCreate CRDs = "create"
	// CRDsApply: all definitions are applied in the chart's version, in each run.
	CRDsApply CRDs = "apply"
	// CRDsSkip: no definition is created.
	CRDsSkip CRDs = "skip"
)

// ChartProgram is the program that runs charts.
const ChartProgram = "rolewright-helm"

// The finalizers of objects with charts: helm-operator's, and the one that helm-operator used before.
const (
	ChartFinalizer       = "helm.sdk.operatorframework.io/uninstall-release"
	formerChartFinalizer = "uninstall-helm-release"
)

// Defaults of watches with a chart that differ from those of roles.
const (
	defaultChartPeriod  = time.Minute
	defaultChartTimeout = 5 * time.Minute
	// Each failed upgrade changes the workloads twice: there and back.
	defaultChartRetryMax = 15 * time.Minute
	defaultMaxHistory    = 10
	// chartGrace is the time for Helm to record what was interrupted.
	chartGrace = 20 * time.Second
)

// chartFields are the keys for charts.
func chartFields() []field[entry] {
	return []field[entry]{
		{Field{"chart", typeString, "", false,
			"The directory of a Helm chart that is released for each object: an absolute path, or a path relative to the working directory. " +
				"The spec of the object contains the values."},
			textField(func(e *entry) *string { return &e.chart.Dir })},
		{Field{"overrideValues", typeMap, "", false,
			"Values of the chart that override all others, by path as in helm --set-string. $NAME is replaced by the operator's environment " +
				"variable, and each value is a Go template."},
			setOverrideValues},
		{Field{"values", typeMap, "", false,
			"Values of the chart that apply if the spec does not set them, of any YAML type. They override values.yaml of the chart."},
			variables(func(e *entry) *map[string]any { return &e.chart.Values })},
		{Field{"valuesOverride", typeMap, "", false, "Values of the chart that override the spec and valuesFrom, of any YAML type."},
			variables(func(e *entry) *map[string]any { return &e.chart.ValuesOverride })},
		{Field{"valuesFrom", typeList, "[]", false,
			"Secrets and ConfigMaps, written as in varsFrom, whose keys are paths of values, such as database.password. They override the " +
				"spec. When one of them changes, the object runs."},
			setValuesFrom},
		{Field{"dryRunOption", typeString, "server", false,
			"With client, a chart is rendered without access to the cluster (lookup finds nothing) when it is compared with its release. " +
				"Installations and upgrades always have access."},
			textField(func(e *entry) *string { return &e.chart.DryRunOption })},
		{Field{"wait", typeBool, "false", false,
			"If true, a run waits until the objects of the release are ready, and fails if they do not become ready. If false, later runs " +
				"check whether they are ready."},
			boolean(func(e *entry) *bool { return &e.chart.Wait })},
		{Field{"crds", typeString, "create", false,
			"What happens to the definitions in crds/ of the chart. With create, missing ones are created before the first installation; with " +
				"apply, each run applies all of them; with skip, none is created."},
			word("value of crds", func(e *entry) *CRDs { return &e.chart.CRDs }, CRDsCreate, CRDsApply, CRDsSkip)},
		{Field{"maxHistory", typeInt, "10", false, "How many revisions of a release are kept; 0 keeps all."},
			count(func(e *entry) *int { return &e.chart.MaxHistory })},
		{Field{"takeOwnership", typeBool, "false", false,
			"If true, a release takes over existing objects that belong to no release, or to another one. If false, a run that finds such an object fails."},
			boolean(func(e *entry) *bool { return &e.chart.TakeOwnership })},
		{Field{"exposeManifest", typeBool, "false", false,
			"If true, status.deployedRelease.manifest contains the values of Secrets. If false, they are hidden."},
			boolean(func(e *entry) *bool { return &e.chart.ExposeManifest })},
		{Field{"test", typeBool, "false", false,
			"If true, the tests of the chart (helm test) run for each revision once its objects are ready. If a test fails, the run fails and is repeated."},
			boolean(func(e *entry) *bool { return &e.chart.Test })},
	}
}

// setOverrideValues reads and expands values as helm-operator does: the environment, then a
// template.
func setOverrideValues(c *decoding, e *entry, a at) {
	if a.node.Kind != yaml.MappingNode {
		c.mismatch(a, typeMap)
		return
	}
	e.chart.OverrideValues = map[string]string{}
	for _, p := range pairs(a) {
		text, ok := c.string(p.value)
		if !ok {
			continue
		}
		value, err := expandValue(os.Expand(text, c.env))
		if err != nil {
			c.error(p.value, "failed to expand override values: invalid template string: "+err.Error(), `for literal braces, write {{ "{{" }}`)
			continue
		}
		e.chart.OverrideValues[p.key] = value
	}
}

func expandValue(text string) (string, error) {
	t, err := template.New("value").Funcs(sprig.TxtFuncMap()).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := t.Execute(&out, nil); err != nil {
		return "", err
	}
	return out.String(), nil
}

// setValuesFrom reads the sources of further values.
func setValuesFrom(c *decoding, e *entry, a at) {
	fields := varsFromFields()
	for i := range fields {
		if fields[i].Key == "prefix" {
			fields[i].Description = "The text in front of each key in the path of its value, such as database. with the dot."
			fields[i].set = textField(func(v *VarsFrom) *string { return &v.Prefix })
		}
	}
	c.readVarsFrom(e, a, fields)
}

// chartOf turns a chart into what runs for the objects: the built-in command.
func (c *decoding) chartOf(e *entry) {
	given := func(key string) bool { _, is := e.keys[key]; return is }
	w := &e.watch
	c.executorOfCommand(e)
	if !given("timeout") {
		w.Timeout = defaultChartTimeout
	}
	if !given("idleTimeout") {
		w.IdleTimeout = 0 // Helm gives no sign of life while it waits for a hook
	}
	if w.Retry.Max == 0 {
		w.Retry.Max = max(defaultChartRetryMax, w.Retry.Initial)
	}
	if !given("reconcilePeriod") && !given("schedule") {
		period := defaultChartPeriod
		if c.opts.Defaults.ReconcilePeriod != nil {
			period = *c.opts.Defaults.ReconcilePeriod
		}
		w.ReconcilePeriod = &period
	}
	a, chart := e.keys["chart"], e.chart
	chart.Dir = absolute(c.opts.Dir, chart.Dir)
	if !c.checkChart(a, chart.Dir) {
		return
	}
	if option := e.keys["dryRunOption"]; !slices.Contains([]string{"", "client", "server", "none", "false"}, chart.DryRunOption) {
		c.warn(option, fmt.Sprintf("%q is not a valid dryRunOption; client is used", excerpt(chart.DryRunOption)), "write client, or remove it")
		chart.DryRunOption = "client"
	}
	program := ChartProgramIn(c.env("PATH"))
	if program == "" {
		c.error(a, "the program "+ChartProgram+", which runs charts, is neither in the directory of rolewright nor in PATH",
			`use the image charts, which has both, or run "make build" in a checkout of Rolewright and add its bin/ to PATH`)
		return
	}
	dir := c.directory()
	w.Content = Content{Command: c.checkCommand(a, &Command{
		Path: program, Dir: dir, Chart: &chart, RequireResult: true, Stop: Stop{Grace: chartGrace},
	})}
	w.Finalizer = &Finalizer{
		Name: ChartFinalizer, Former: formerChartFinalizer, Content: w.Content,
		Timeout: w.Timeout, IdleTimeout: w.IdleTimeout, OnFailure: OnFailureRetry,
	}
}

// checkChart tells whether a directory contains a chart.
func (c *decoding) checkChart(a at, dir string) bool {
	invalid := "invalid chart directory " + dir + ": "
	const hint = "name the directory that has Chart.yaml; unpack an archive first (tar xzf)"
	if info, err := os.Stat(dir); err != nil {
		c.error(a, invalid+cause(err).Error(), hint)
		return false
	} else if !info.IsDir() {
		c.error(a, invalid+"it is not a directory", hint)
		return false
	}
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		c.error(a, invalid+"Chart.yaml: "+cause(err).Error(), hint)
		return false
	}
	var chart struct {
		Name string `yaml:"name"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil || chart.Name == "" {
		c.error(a, invalid+"Chart.yaml has no name", "correct Chart.yaml (helm lint)")
		return false
	}
	return true
}

// ChartProgramIn returns the path of the program that runs charts: the one beside this program, or else the first in a list
// of directories in the format of PATH; empty if there is none.
func ChartProgramIn(path string) string {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), ChartProgram)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside
		}
	}
	return inPath(path, ChartProgram)
}
