package main

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
	"sigs.k8s.io/yaml"
)

const (
	repository = "../../.."
	tools      = repository + "/bin/tools/"
)

func source(t *testing.T) kustomize {
	t.Helper()
	for _, name := range []string{"kubectl", "helm"} {
		if _, err := os.Stat(tools + name); err != nil {
			t.Fatalf("run `make client-tools`: %v", err)
		}
	}
	return kustomize{kubectl: tools + "kubectl", config: repository + "/config"}
}

func TestChartAndBundle_AreUpToDate(t *testing.T) {
	k := source(t)
	for name, tt := range map[string]struct {
		make  func() (map[string][]byte, error)
		place string
	}{
		"chart":  {func() (map[string][]byte, error) { return chart(k) }, "dist/chart"},
		"bundle": {func() (map[string][]byte, error) { return bundle(k, "") }, "bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := tt.make()
			if err != nil {
				t.Fatal(err)
			}
			again, err := tt.make()
			if err != nil || !reflect.DeepEqual(files, again) {
				t.Errorf("made twice, it differs (%v)", err)
			}
			known := slices.Collect(maps.Keys(files))
			err = filepath.WalkDir(filepath.Join(repository, tt.place), func(path string, entry os.DirEntry, err error) error {
				if err == nil && !entry.IsDir() {
					rel, _ := filepath.Rel(repository, path)
					if !slices.Contains(known, rel) {
						t.Errorf("%s is not made from config/ any more; run `make %s`", rel, name)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for file, want := range files {
				got, err := os.ReadFile(filepath.Join(repository, file))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s differs from what config/ makes; run `make %s` (%v)", file, name, err)
				}
			}
		})
	}
}

// helm renders the chart as its installation would.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(tools+"helm", append([]string{"template", "memcached-operator", repository + "/dist/chart",
		"--namespace=memcached-operator-system", "--kube-version=1.36.0"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rendered are the chart's objects, by kind and name.
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

// With no values the chart is config/default, but for the namespace, which is the release's, the kind, which stays, and the
// label of the release.
func TestChart_IsConfigDefault(t *testing.T) {
	objects, err := source(t).build("default")
	if err != nil {
		t.Fatal(err)
	}
	got := rendered(t)
	for _, want := range objects {
		id := want.kind() + " " + want.text("metadata", "namespace") + "/" + want.name()
		switch want.kind() {
		case "Namespace":
			continue
		case "CustomResourceDefinition":
			want.part("metadata", "annotations")["helm.sh/resource-policy"] = "keep"
		}
		for _, labels := range named(want) {
			labels[instance] = "memcached-operator"
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

// Two operators in one namespace do not mix: nothing selects by the label that all of them have alone.
func TestSelectors_NameTheOperator(t *testing.T) {
	k := source(t)
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
		objects, err := k.build(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			check(o, "app.kubernetes.io/name")
		}
	}
	for _, o := range rendered(t, "--set=networkPolicy.enabled=true,networkPolicy.egress.enabled=true,metrics.serviceMonitor.enabled=true") {
		check(o, "app.kubernetes.io/name", instance)
	}
	if count != 10 { // Deployment, Service, two NetworkPolicies, ServiceMonitor, two times
		t.Errorf("%d selectors, want 10", count)
	}
}

func TestChart_Lints(t *testing.T) {
	source(t)
	out, err := exec.Command(tools+"helm", "lint", "--strict", repository+"/dist/chart").CombinedOutput()
	if err != nil {
		t.Errorf("helm lint --strict: %v\n%s", err, out)
	}
}

func TestChart_TakesValues(t *testing.T) {
	source(t)
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

// decode expects that an object is one of the Prometheus operator's, and has no field that it does not know.
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
	source(t)
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
	objects, err := source(t).build("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
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

// problems are what the validators of opm and operator-sdk say of a bundle.
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
			// A rule names no version, and what is allowed of events.k8s.io is taken for v1beta1.
			if !strings.Contains(e.Error(), "Migrate the API(s) for events: (") {
				found = append(found, e.Error())
			}
		}
	}
	return found
}

func TestBundle_IsValid(t *testing.T) {
	for _, problem := range problems(t, repository+"/bundle") {
		t.Error(problem)
	}
}

// The validation above can fail.
func TestBundle_FaultsAreFound(t *testing.T) {
	for name, change := range map[string][2]string{
		"another version":      {"version: 0.1.0", "version: one"},
		"an unknown kind":      {"name: memcacheds.cache.example.com\n      version: v1alpha1", "name: memcacheds.cache.example.com\n      version: v2"},
		"no display name":      {"displayName: Memcached Operator", "displayName: ''"},
		"a made-up capability": {"capabilities: Basic Install", "capabilities: Everything"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(repository+"/bundle")); err != nil {
				t.Fatal(err)
			}
			file := dir + "/manifests/memcached-operator.clusterserviceversion.yaml"
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), change[0], change[1], 1)
			if changed == string(text) {
				t.Fatalf("there is no %q to change", change[0])
			}
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(problems(t, dir)) == 0 {
				t.Error("no problem was found")
			}
		})
	}
}
