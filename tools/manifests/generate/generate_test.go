// Package generate tests the charts and bundles that rolewright generate makes from the manifests of this repository and
// of a new project.
package generate

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apimanifests "github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../../.."
	instance   = "app.kubernetes.io/instance"
)

// program returns the path of a program that make has built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, "bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("run `make build client-tools`: %v", err)
	}
	return path
}

// output runs a program in a directory and returns its output.
func output(t *testing.T, dir string, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program(t, name), args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// object is a Kubernetes object.
type object map[string]any

func (o object) at(path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return value
}

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) kind() string { return o.text("kind") }
func (o object) name() string { return o.text("metadata", "name") }

// build returns the objects of a directory of config/.
func build(t *testing.T, dir string) []object {
	t.Helper()
	var objects []object
	for text := range strings.SplitSeq(string(output(t, repository, nil, "tools/kubectl", "kustomize", "config/"+dir)), "\n---\n") {
		o := object{}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// generate makes the chart and the bundle from config/ of the project in dir.
func generate(t *testing.T, dir string) {
	t.Helper()
	for what, of := range map[string]string{"chart": "default", "bundle": "manifests"} {
		stream := output(t, dir, nil, "tools/kubectl", "kustomize", "config/"+of)
		output(t, dir, stream, "rolewright", "generate", what)
	}
}

func TestChartAndBundle_AreUpToDate(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir+"/config", os.DirFS(repository+"/config")); err != nil {
		t.Fatal(err)
	}
	generate(t, dir)
	for _, place := range []string{"dist/chart", "bundle", "bundle.Dockerfile"} {
		if out, err := exec.Command("diff", "-r", filepath.Join(repository, place), filepath.Join(dir, place)).CombinedOutput(); err != nil {
			t.Errorf("%s is not what config/ makes; run `make chart bundle`: %v\n%s", place, err, out)
		}
	}
}

// The chart and the bundle of a new project are valid, and have the project's names.
func TestScaffold_ChartAndBundleAreValid(t *testing.T) {
	dir := t.TempDir()
	output(t, dir, nil, "rolewright", "init", "--domain", "example.com", "--name", "web-operator")
	output(t, dir, nil, "rolewright", "create", "api", "--group", "web", "--version", "v1", "--kind", "Site", "--finalizer")
	generate(t, dir)
	generate(t, dir) // a second call replaces the files
	output(t, dir, nil, "tools/helm", "lint", "--strict", "dist/chart")
	rendered := output(t, dir, nil, "tools/helm", "template", "release", "dist/chart", "--kube-version=1.36.0",
		"--set=metrics.prometheusRule.enabled=true,metrics.serviceMonitor.enabled=true,metrics.dashboard.enabled=true,networkPolicy.enabled=true")
	for _, want := range []string{
		`absent(up{job="release", namespace="default"} == 1)`, "jobLabel: app.kubernetes.io/instance", "name: release-controller-manager-rules", "sites.web.example.com",
	} {
		if !bytes.Contains(rendered, []byte(want)) {
			t.Errorf("the chart has no %s", want)
		}
	}
	if bytes.Contains(rendered, []byte("memcached")) {
		t.Error("the chart names the example operator")
	}
	for _, problem := range problems(t, dir+"/bundle") {
		t.Error(problem)
	}
	for what, want := range map[string]string{
		"alerts": `job="web-operator"`, "dashboard": `"uid": "rolewright"`, "dashboard kind": `"uid": "rolewright-kind"`, "dashboard process": `"uid": "rolewright-process"`,
	} {
		if out := output(t, dir, nil, "rolewright", append([]string{"generate"}, strings.Fields(what)...)...); !bytes.Contains(out, []byte(want)) {
			t.Errorf("generate %s has no %s", what, want)
		}
	}
	if err := os.Remove(dir + "/dist/chart/Chart.yaml"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t, "rolewright"), "generate", "chart")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(output(t, dir, nil, "tools/kubectl", "kustomize", "config/default"))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "it was not made by this command") {
		t.Errorf("a directory of something else: %v\n%s", err, out)
	}
}

// Policies of "generate webhooks" keep their names in a chart, because their bindings refer to them.
func TestChart_TakesPolicies(t *testing.T) {
	dir := t.TempDir()
	output(t, dir, nil, "rolewright", "init", "--domain", "example.com", "--name", "web-operator")
	output(t, dir, nil, "rolewright", "create", "api", "--group", "web", "--version", "v1", "--kind", "Site")
	watches, err := os.ReadFile(dir + "/watches.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// A text that looks like a Helm template must stay as it is.
	watches = bytes.Replace(watches, []byte("  kind: Site\n"), []byte("  kind: Site\n  webhooks: {validate: [{rule: 'object.spec.x != \"{{ .Values }}\"'}]}\n"), 1)
	if err := os.WriteFile(dir+"/watches.yaml", watches, 0o600); err != nil {
		t.Fatal(err)
	}
	stream := slices.Concat(output(t, dir, nil, "tools/kubectl", "kustomize", "config/default"), output(t, dir, nil, "rolewright", "generate", "webhooks", "--offline"))
	output(t, dir, stream, "rolewright", "generate", "chart")
	text := string(output(t, dir, nil, "tools/helm", "template", "release", "dist/chart", "--kube-version=1.36.0"))
	for _, want := range []string{"kind: ValidatingAdmissionPolicy\nmetadata:\n  name: sites.web.example.com", "policyName: sites.web.example.com", `object.spec.x != "{{ .Values }}"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart has no %s", want)
		}
	}
}

// helm renders the chart as an installation would.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program(t, "tools/helm"), append([]string{"template", "memcached-operator", repository + "/dist/chart",
		"--namespace=memcached-operator-system", "--kube-version=1.36.0"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rendered returns the chart's objects, by kind and name.
func rendered(t *testing.T, args ...string) map[string]object {
	t.Helper()
	text, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, text)
	}
	found := map[string]object{}
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		o := object{}
		if err := yaml.UnmarshalStrict([]byte(part), &o); err != nil {
			t.Fatalf("%v:\n%s", err, part)
		}
		if len(o) == 0 {
			continue
		}
		id := o.kind() + " " + o.text("metadata", "namespace") + "/" + o.name()
		if found[id] != nil {
			t.Errorf("%s is there twice", id)
		}
		found[id] = o
	}
	return found
}

// Without values, the chart is config/default, with three differences: the namespace is that of the release, the CRD is
// kept on uninstall, and the objects have the label of the release.
func TestChart_IsConfigDefault(t *testing.T) {
	got := rendered(t)
	for _, want := range build(t, "default") {
		id := want.kind() + " " + want.text("metadata", "namespace") + "/" + want.name()
		switch want.kind() {
		case "Namespace":
			continue
		case "CustomResourceDefinition":
			want.at("metadata").(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"}
		}
		for _, path := range [][]string{
			{"metadata", "labels"}, {"spec", "selector"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"},
		} {
			if labels, ok := want.at(path...).(map[string]any); ok && labels["app.kubernetes.io/name"] != nil {
				labels[instance] = "memcached-operator"
			}
		}
		if !reflect.DeepEqual(map[string]any(want), map[string]any(got[id])) {
			t.Errorf("%s differs:\nconfig/default: %v\nchart: %v", id, want, got[id])
		}
		delete(got, id)
	}
	for id := range got {
		t.Errorf("%s is not in config/default", id)
	}
}

// Two operators can share a namespace, because no selector uses only the label that all operators have.
func TestSelectors_NameTheOperator(t *testing.T) {
	count := 0
	check := func(o object, keys ...string) {
		for _, path := range [][]string{{"spec", "selector"}, {"spec", "selector", "matchLabels"}, {"spec", "podSelector", "matchLabels"}} {
			selector, _ := o.at(path...).(map[string]any)
			if selector["control-plane"] == nil {
				continue
			}
			count++
			for _, key := range keys {
				if selector[key] != "memcached-operator" {
					t.Errorf("%s %s selects by %v, without %s", o.kind(), o.name(), selector, key)
				}
			}
		}
	}
	for _, dir := range []string{"default", "network-policy", "network-policy-egress", "prometheus"} {
		for _, o := range build(t, dir) {
			check(o, "app.kubernetes.io/name")
		}
	}
	for _, o := range rendered(t, "--set=networkPolicy.enabled=true,networkPolicy.egress.enabled=true,metrics.serviceMonitor.enabled=true") {
		check(o, "app.kubernetes.io/name", instance)
	}
	if count != 10 { // Deployment, Service, two NetworkPolicies and ServiceMonitor, twice
		t.Errorf("%d selectors, want 10", count)
	}
}

func TestChart_Lints(t *testing.T) {
	out, err := exec.Command(program(t, "tools/helm"), "lint", "--strict", repository+"/dist/chart").CombinedOutput()
	if err != nil {
		t.Errorf("helm lint --strict: %v\n%s", err, out)
	}
}

func TestChart_TakesValues(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	const text = `
image: {repository: example.com/operator, tag: v1, pullPolicy: Never}
imagePullSecrets: [{name: pull}]
replicas: 3
watchNamespaces: [one, two]
args: [--executor=runner]
env: [{name: A, value: b}]
resources: {limits: {memory: 1Gi}}
work: {sizeLimit: 9Gi, medium: Memory}
terminationGracePeriodSeconds: 600
podAnnotations: {note: "1"}
podLabels: {team: x}
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {podAntiAffinity: {}}
priorityClassName: high
serviceAccount: {name: mine, annotations: {role: "7"}}
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true}
networkPolicy: {enabled: true, egress: {enabled: true, apiServer: [10.0.0.1/32], more: [{ports: [{port: 11211}]}]}}
crds: {keep: false}
`
	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := rendered(t, "--values="+values)
	const prefix, ns = "memcached-operator-", " memcached-operator-system/memcached-operator-"
	for _, id := range []string{
		"RoleBinding one/" + prefix + "manager-rolebinding", "RoleBinding two/" + prefix + "manager-rolebinding",
		"ServiceAccount memcached-operator-system/mine", "NetworkPolicy" + ns + "allow-metrics-traffic", "ConfigMap" + ns + "dashboard",
		"ServiceMonitor" + ns + "controller-manager-metrics-monitor", "PrometheusRule" + ns + "controller-manager-rules",
	} {
		if got[id] == nil {
			t.Errorf("no %s among %v", id, slices.Sorted(maps.Keys(got)))
		}
	}
	if dashboards := got["ConfigMap"+ns+"dashboard"]; dashboards != nil && len(dashboards["data"].(map[string]any)) != 3 {
		t.Errorf("the dashboards are %v", slices.Sorted(maps.Keys(dashboards["data"].(map[string]any))))
	}
	if got["ClusterRoleBinding /"+prefix+"manager-rolebinding"] != nil {
		t.Error("the operator has its permissions in all namespaces")
	}
	for id, o := range got {
		if strings.HasSuffix(o.kind(), "Binding") && object(o["subjects"].([]any)[0].(map[string]any)).name() == "mine" {
			t.Errorf("%s is for another service account", id)
		}
	}
	deployment, err := yaml.Marshal(got["Deployment"+ns+"controller-manager"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image: example.com/operator:v1", "imagePullPolicy: Never", "- name: pull", "replicas: 3", "value: one,two", "- --executor=runner",
		"- name: A", "memory: 1Gi", "sizeLimit: 9Gi", "medium: Memory", "terminationGracePeriodSeconds: 600", `note: "1"`, "team: x", "disk: ssd",
		"operator: Exists", "podAntiAffinity", "priorityClassName: high", "serviceAccountName: mine", "- --leader-election-id=memcached-operator",
	} {
		if !strings.Contains(string(deployment), want) {
			t.Errorf("the Deployment has no %q:\n%s", want, deployment)
		}
	}
	egress, err := yaml.Marshal(got["NetworkPolicy"+ns+"limit-egress"].at("spec", "egress"))
	if want := `- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
- ports:
  - port: 443
    protocol: TCP
  - port: 6443
    protocol: TCP
  to:
  - ipBlock:
      cidr: 10.0.0.1/32
- ports:
  - port: 11211
`; err != nil || string(egress) != want {
		t.Errorf("the operator reaches (%v)\n%s", err, egress)
	}
	decode(t, got["ServiceMonitor"+ns+"controller-manager-metrics-monitor"], &monitoringv1.ServiceMonitor{})
	decode(t, got["PrometheusRule"+ns+"controller-manager-rules"], &monitoringv1.PrometheusRule{})

	less := rendered(t, "--set=metrics.enabled=false,rbac.create=false,rbac.userRoles=false,serviceAccount.create=false,crds.install=false")
	if len(less) != 1 {
		t.Errorf("with nothing but the Deployment there are %v", slices.Sorted(maps.Keys(less)))
	}
	if text, _ := yaml.Marshal(less); !strings.Contains(string(text), "- --metrics-bind-address=0\n") || strings.Contains(string(text), "metrics-secure") {
		t.Errorf("metrics are served:\n%s", text)
	}
}

// With jobs.enabled, the chart has what runs as Jobs need, and the objects refer to each other by their names in the
// chart.
func TestChart_Jobs(t *testing.T) {
	got := rendered(t, "--set=jobs.enabled=true,networkPolicy.enabled=true")
	for _, is := range []string{"Role/jobs-role", "RoleBinding/jobs-rolebinding", "Service/runs", "NetworkPolicy/runs", "NetworkPolicy/allow-runs"} {
		kind, name, _ := strings.Cut(is, "/")
		if got[kind+" memcached-operator-system/memcached-operator-"+name] == nil {
			t.Errorf("there is no %s among %v", is, slices.Sorted(maps.Keys(got)))
		}
	}
	role := build(t, "jobs")[0]
	if role.kind() != "Role" || !reflect.DeepEqual(got["Role memcached-operator-system/memcached-operator-jobs-role"]["rules"], role["rules"]) ||
		got["RoleBinding memcached-operator-system/memcached-operator-jobs-rolebinding"].text("roleRef", "name") != "memcached-operator-jobs-role" {
		t.Error("the operator is not granted what config/jobs grants")
	}
	text, err := yaml.Marshal(got["Deployment memcached-operator-system/memcached-operator-controller-manager"])
	if want := "- --job-url=https://memcached-operator-runs.memcached-operator-system.svc:8444\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the operator is not told %s, %v:\n%s", want, err, text)
	}
}

// decode expects that the type of the Prometheus operator has all fields of an object.
func decode(t *testing.T, o object, into any) {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Errorf("%s %s: %v", o.kind(), o.name(), err)
	}
}

func TestChart_RefusesWhatItDoesNotKnow(t *testing.T) {
	for set, want := range map[string]string{
		"replica=2":                  "'replica' not allowed",
		"replicas=two":               "got string, want integer",
		"image.pullPolicy=Sometimes": "/image/pullPolicy",
		"metrics.servicemonitor=1":   "'servicemonitor' not allowed",
	} {
		if out, err := helm(t, "--set="+set); err == nil || !strings.Contains(out, want) {
			t.Errorf("--set %s: %v, want %q in\n%s", set, err, want, out)
		}
	}
}

func TestConfig_IsKnownToThePrometheusOperator(t *testing.T) {
	for _, o := range build(t, "prometheus") {
		switch o.kind() {
		case "ServiceMonitor":
			decode(t, o, &monitoringv1.ServiceMonitor{})
		case "PrometheusRule":
			decode(t, o, &monitoringv1.PrometheusRule{})
		default:
			t.Errorf("%s %s is none of its kinds", o.kind(), o.name())
		}
	}
}

// problems returns what the validators of opm and operator-sdk report about a bundle.
func problems(t *testing.T, dir string) []string {
	t.Helper()
	b, err := apimanifests.GetBundleFromDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	validators := append(slices.Clone(validation.DefaultBundleValidators),
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.ObjectValidator, validation.GoodPracticesValidator)
	for _, result := range validators.Validate(b.ObjectsToValidate()...) {
		for _, e := range append(result.Errors, result.Warnings...) {
			// A rule names no version, so the validator takes permissions for events.k8s.io as use of v1beta1.
			if !strings.Contains(e.Error(), "Migrate the API(s) for events: (") {
				found = append(found, e.Error())
			}
		}
	}
	return found
}

// The test makes the bundle and the chart of a project that has config/jobs in config/default.
func TestBundle_Jobs(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir+"/config", os.DirFS(repository+"/config")); err != nil {
		t.Fatal(err)
	}
	file := dir + "/config/default/kustomization.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("# - ../jobs"), []byte("- ../jobs"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	generate(t, dir)
	csv, err := os.ReadFile(dir + "/bundle/manifests/memcached-operator.clusterserviceversion.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := object{}
	if err := yaml.Unmarshal(csv, &o); err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(o.at("spec", "install", "spec", "permissions"))
	if err != nil || !strings.Contains(string(rules), "- jobs\n") {
		t.Errorf("OLM does not grant Jobs, %v:\n%s", err, rules)
	}
	if _, err := os.Stat(dir + "/bundle/manifests/memcached-operator-runs.service.yaml"); err != nil {
		t.Error(err)
	}
	for _, problem := range problems(t, dir+"/bundle") {
		t.Error(problem)
	}
	output(t, dir, nil, "tools/helm", "template", "release", "dist/chart", "--kube-version=1.36.0", "--set=jobs.enabled=true")
}

func TestBundle_IsValid(t *testing.T) {
	for _, problem := range problems(t, repository+"/bundle") {
		t.Error(problem)
	}
}
