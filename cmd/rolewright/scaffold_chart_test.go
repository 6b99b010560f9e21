package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// withChartProgram puts a program into PATH that has the name of the one that runs charts.
func withChartProgram(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, watches.ChartProgram), []byte("#!/bin/sh\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// shopChart is a chart with a schema, a hook, a CRD and an optional object.
func shopChart() map[string]string {
	return map[string]string{
		"Chart.yaml":           "apiVersion: v2\nname: web-shop\nversion: 0.1.0\ndescription: A shop.\n",
		"values.yaml":          "replicas: 2\n",
		"values.schema.json":   `{"type": "object", "required": ["image", "replicas"], "properties": {"image": {"type": "string"}, "replicas": {"type": "integer"}}}`,
		"templates/web.yaml":   "apiVersion: apps/v1\nkind: Deployment\n---\n{{ if .Values.grants }}\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n{{ end }}\n",
		"templates/hook.yaml":  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-delete}\n",
		"templates/shelf.yaml": "apiVersion: shops.example.org/v1\nkind: Shelf\n",
		"crds/shelves.yaml":    "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: shops.example.org, names: {kind: Shelf, plural: shelves}}\n",
	}
}

func writeChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, shopChart())
	return dir
}

// The project gets what the chart says, and nothing for Ansible. A second call writes nothing.
func TestScaffold_OfAChart(t *testing.T) {
	withChartProgram(t)
	chart := writeChart(t)
	golden := must.Get(filepath.Abs("testdata/scaffold_chart.golden"))(t)
	t.Chdir(t.TempDir())
	for _, command := range []string{
		"init --plugins helm --name shop-operator", "create api --helm-chart " + chart, "create api --helm-chart helm-charts/web-shop",
		"validate", "generate crd --check", "generate manifests --check", "init",
	} {
		code, stdout, stderr := invoke(append([]string{programName}, strings.Fields(command)...)...)
		if code != 0 {
			t.Fatalf("rolewright %s: code %d\n%s%s", command, code, stdout, stderr)
		}
		if strings.HasSuffix(command, "helm-charts/web-shop") && stdout != "" {
			t.Errorf("a second time it writes\n%s", stdout)
		}
	}
	var got strings.Builder
	for _, path := range []string{
		"PROJECT", "watches.yaml", "Dockerfile", ".dockerignore", "README.md", "config/crd/bases/charts.example.com_webshops.yaml",
		"config/samples/charts_v1alpha1_webshop.yaml", "config/rbac/role.yaml", "helm-charts/web-shop/templates/hook.yaml",
	} {
		text := must.Get(os.ReadFile(path))(t)
		got.WriteString("-- " + path + " --\n" + string(text))
	}
	must.Golden(t, *update, golden, got.String())
	for _, path := range []string{"roles", "playbooks", "molecule", "requirements.yml"} {
		if exists(path) {
			t.Errorf("there is %s", path)
		}
	}
}

// The command names files that a newer chart no longer has, because they would stay in the copy and be released.
func TestScaffold_OfANewerChart(t *testing.T) {
	withChartProgram(t)
	chart := writeChart(t)
	t.Chdir(t.TempDir())
	const old = "note: helm-charts/web-shop/templates/hook.yaml is not in "
	for _, command := range []string{"init --plugins helm --name shop-operator", "create api --helm-chart " + chart} {
		if code, _, stderr := invoke(append([]string{programName}, strings.Fields(command)...)...); code != 0 || strings.Contains(stderr, old) {
			t.Fatal(stderr)
		}
	}
	must.Do(t, os.Remove(filepath.Join(chart, "templates/hook.yaml")))
	if code, _, stderr := invoke(programName, "create", "api", "--helm-chart", chart, "--force"); code != 0 || strings.Count(stderr, "note: ") != 1 || !strings.Contains(stderr, old) {
		t.Errorf("code %d\n%s", code, stderr)
	}
}

// A CRD is made from one chart, which generate crd says if watches of the kind have several.
func TestGenerateCRD_OfTwoCharts(t *testing.T) {
	withChartProgram(t)
	t.Chdir(t.TempDir())
	must.Write(t, "helm-charts/a", shopChart())
	must.Write(t, "helm-charts/b", shopChart())
	const watch = "- {group: example.com, version: v1, kind: Shop, chart: helm-charts/a, selector: {matchLabels: {a: b}}}\n"
	for chart, notes := range map[string]int{"helm-charts/a": 0, "helm-charts/b": 1} {
		must.Write(t, ".", map[string]string{
			"PROJECT":      "domain: example.com\nlayout: [helm.sdk.operatorframework.io/v1]\nprojectName: shop\nversion: \"3\"\n",
			"watches.yaml": watch + strings.NewReplacer("helm-charts/a", chart, "a: b", "a: c").Replace(watch),
		})
		code, _, stderr := invoke(programName, "generate", "crd")
		if code != 0 || strings.Count(stderr, "note: Shop: several watches of v1 run different content") != notes {
			t.Errorf("%s: code %d\n%s", chart, code, stderr)
		}
	}
}

// If a project has kinds of roles and kinds of charts, its image gets the charts and the program that runs them.
func TestScaffold_AChartBesideARole(t *testing.T) {
	withChartProgram(t)
	chart := writeChart(t)
	t.Chdir(t.TempDir())
	for _, command := range []string{"init", "create api --group web --version v1 --kind Site"} {
		if code, _, stderr := invoke(append([]string{programName}, strings.Fields(command)...)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	code, _, stderr := invoke(programName, "create", "api", "--group", "web", "--version", "v1", "--kind", "Shop", "--helm-chart", chart)
	if code != 0 {
		t.Errorf("code %d\n%s", code, stderr)
	}
	for path, want := range map[string]string{"Dockerfile": "COPY --from=rolewright/charts /usr/local/bin/rolewright-helm /usr/local/bin/\nCOPY helm-charts helm-charts\n", ".dockerignore": "!helm-charts\n", "watches.yaml": "  chart: helm-charts/web-shop\n"} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	for _, args := range [][]string{{"--helm-chart", "nowhere"}, {"--helm-chart", chart, "--role", "x"}, {"--helm-chart", chart, "--cluster-scoped"}} {
		if code, _, stderr := invoke(append([]string{programName, "create", "api"}, args...)...); code == 0 || stderr == "" {
			t.Errorf("%q: code %d: %s", args, code, stderr)
		}
	}
}
