// Package manifests tests what is installed from config/ against a real API server, with its admission.
//
// The tests use kustomize and Kubernetes: the API server must accept every object and know every field, Pods must fit the
// restricted Pod Security level, and references must find their objects. How the operator works in a cluster is not tested
// here.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

const repository = "../.."

func TestMain(m *testing.M) { testenv.Main(m) }

// tool returns the path of a client that `make client-tools` builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, "bin/tools", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		parts.Missing(t, fmt.Errorf("run `make client-tools`: %w", err))
	}
	return path
}

// build returns the output of kustomize for a directory of config/.
func build(t *testing.T, dir string) string {
	t.Helper()
	// Like in a molecule project, config/testing takes a patch from config/default.
	cmd := exec.Command(tool(t, "kubectl"), "kustomize", "--load-restrictor=LoadRestrictionsNone", filepath.Join(repository, "config", dir))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build config/%s: %v\n%s", dir, err, stderr(err))
	}
	return string(out)
}

func stderr(err error) []byte {
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return exit.Stderr
	}
	return nil
}

// parse reads the objects of a text.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for part := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(part), &o.Object); err != nil {
			t.Fatalf("%v:\n%s", err, part)
		}
		objects = append(objects, o)
	}
	return objects
}

// find returns the objects of a kind.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if o.GetKind() != kind {
			continue
		}
		var typed T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true); err != nil {
			t.Fatalf("%s %s: %v", kind, o.GetName(), err)
		}
		found = append(found, typed)
	}
	return found
}

// one returns the only object of a kind.
func one[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) T {
	t.Helper()
	found := find[T](t, objects, kind)
	if len(found) != 1 {
		t.Fatalf("there are %d of %s, want 1", len(found), kind)
	}
	return found[0]
}

func TestConfig_EveryDirectoryBuilds(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob(repository + "/config/*/kustomization.yaml")
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%d directories: %v", len(dirs), err)
	}
	for _, dir := range dirs {
		if dir = filepath.Base(filepath.Dir(dir)); dir == "shards" {
			continue // a component: see TestConfig_ReplicasShareTheObjects
		}
		if len(parse(t, build(t, dir))) == 0 {
			t.Errorf("config/%s has no objects", dir)
		}
	}
}

// The API server accepts each object from a server-side apply by an administrator. It knows all fields, gives no warnings,
// and admits a Pod of the Deployment to a namespace with the restricted Pod Security level.
func TestConfig_IsAccepted(t *testing.T) {
	t.Parallel()
	for dir, namespace := range map[string]string{"default": "memcached-operator-system", "testing": "osdk-test"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			cfg := testenv.Config(t)
			client := kubernetes.NewForConfigOrDie(cfg)
			text := build(t, dir)
			if dir == "default" {
				for _, policy := range []string{"network-policy", "network-policy-egress", "jobs"} {
					text += "\n---\n" + strings.ReplaceAll(build(t, policy), ": system", ": "+namespace)
				}
			}
			space := one[corev1.Namespace](t, parse(t, text), "Namespace")
			if level := space.Labels["pod-security.kubernetes.io/enforce"]; space.Name != namespace || level != "restricted" {
				t.Errorf("namespace %s has Pod security %q, want %s and restricted", space.Name, level, namespace)
			}
			// Only this namespace, and the service account in it, are really created.
			mine := testenv.Namespace(t, cfg)
			objects := parse(t, strings.ReplaceAll(text, namespace, mine))
			must.Get(client.CoreV1().Namespaces().Patch(t.Context(), mine, "application/merge-patch+json",
				[]byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`), metav1.PatchOptions{}))(t)
			account := one[corev1.ServiceAccount](t, objects, "ServiceAccount")
			must.Get(client.CoreV1().ServiceAccounts(mine).Create(t.Context(), &account, metav1.CreateOptions{}))(t)
			apply := exec.Command(tool(t, "kubectl"), "--kubeconfig="+testenv.Kubeconfig(t, cfg),
				"apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "-f", "-")
			apply.Stdin = strings.NewReader(strings.ReplaceAll(text, namespace, mine))
			out, err := apply.CombinedOutput()
			// The test of the example operator may delete its kind at the same time.
			warnings := bytes.Count(out, []byte("Warning")) - bytes.Count(out, []byte("which is currently being deleted"))
			if n := bytes.Count(out, []byte("serverside-applied")); err != nil || n != len(objects) || warnings != 0 {
				t.Errorf("%d of %d objects were accepted: %v\n%s", n, len(objects), err, out)
			}
			deployment := one[appsv1.Deployment](t, objects, "Deployment")
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "of-the-template", Labels: deployment.Spec.Template.Labels}, Spec: deployment.Spec.Template.Spec}
			admit := func(pod corev1.Pod) error {
				_, err := client.CoreV1().Pods(mine).Create(t.Context(), &pod, metav1.CreateOptions{
					DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
				})
				return err
			}
			if err := admit(pod); err != nil {
				t.Errorf("a Pod of the Deployment is refused: %v", err)
			}
			loose := *pod.DeepCopy()
			loose.Spec.SecurityContext.RunAsNonRoot = nil
			if err := admit(loose); !apierrors.IsForbidden(err) {
				t.Errorf("the test shows nothing: a Pod that may run as root gets %v", err)
			}
		})
	}
}

// All references to other objects find these objects.
func TestConfig_NamesWhatExists(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"default", "testing"} {
		t.Run(dir, func(t *testing.T) {
			objects := parse(t, build(t, dir))
			exists := map[string]bool{}
			for _, o := range objects {
				id := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
				if exists[id] {
					t.Errorf("%s is there twice", id)
				}
				exists[id] = true
			}
			deployment := one[appsv1.Deployment](t, objects, "Deployment")
			bindings := find[rbacv1.RoleBinding](t, objects, "RoleBinding")
			for _, b := range find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
				bindings = append(bindings, rbacv1.RoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects})
			}
			needed := []string{fmt.Sprintf("ServiceAccount %s/%s", deployment.Namespace, deployment.Spec.Template.Spec.ServiceAccountName)}
			for _, b := range bindings {
				scope := b.Namespace
				if b.RoleRef.Kind == "ClusterRole" {
					scope = ""
				}
				needed = append(needed, fmt.Sprintf("%s %s/%s", b.RoleRef.Kind, scope, b.RoleRef.Name))
				for _, s := range b.Subjects {
					needed = append(needed, fmt.Sprintf("%s %s/%s", s.Kind, s.Namespace, s.Name))
				}
			}
			for _, id := range needed {
				if !exists[id] {
					t.Errorf("%s is named, and there is only %q", id, slices.Sorted(maps.Keys(exists)))
				}
			}
			checkPorts(t, deployment, find[corev1.Service](t, objects, "Service"))
		})
	}
}

// checkPorts expects that the Services select the Pods, and that their ports exist there.
func checkPorts(t *testing.T, deployment appsv1.Deployment, services []corev1.Service) {
	t.Helper()
	pod := deployment.Spec.Template
	ports := map[string]int32{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, s := range services {
		if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("service %s selects %v, and Pods have %v", s.Name, s.Spec.Selector, pod.Labels)
		}
		for _, p := range s.Spec.Ports {
			if ports[p.TargetPort.StrVal] == 0 {
				t.Errorf("service %s leads to port %q, and Pods have %v", s.Name, p.TargetPort.StrVal, ports)
			}
		}
	}
	container := pod.Spec.Containers[0]
	args := strings.Join(container.Args, " ")
	for name, port := range ports {
		flag := "-bind-address=:%d"
		if name == "rolewright-api" {
			flag = "--api-port=%d"
		}
		if !strings.Contains(args, fmt.Sprintf(flag, port)) {
			t.Errorf("port %s is %d, and the operator is started with %s", name, port, args)
		}
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if port := probe.HTTPGet.Port.StrVal; ports[port] == 0 {
			t.Errorf("a probe asks port %q, and there are %v", port, ports)
		}
	}
}

// The ServiceMonitor and the NetworkPolicy for metrics find the Service and the Pods.
func TestConfig_MetricsAreFound(t *testing.T) {
	t.Parallel()
	objects := parse(t, build(t, "default"))
	service := one[corev1.Service](t, objects, "Service")
	pod := labels.Set(one[appsv1.Deployment](t, objects, "Deployment").Spec.Template.Labels)

	type serviceMonitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			JobLabel  string `json:"jobLabel"`
			Endpoints []struct {
				Path            string         `json:"path"`
				Port            string         `json:"port"`
				Scheme          string         `json:"scheme"`
				BearerTokenFile string         `json:"bearerTokenFile"`
				TLSConfig       map[string]any `json:"tlsConfig"`
			} `json:"endpoints"`
			Selector metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
	}
	monitor := one[serviceMonitor](t, parse(t, build(t, "prometheus")), "ServiceMonitor").Spec
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Selector)
	if err != nil || !selector.Matches(labels.Set(service.Labels)) {
		t.Errorf("the ServiceMonitor selects %v, and the Service has %v (%v)", selector, service.Labels, err)
	}
	if monitor.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("the ServiceMonitor wants port %s, and the Service has %s", monitor.Endpoints[0].Port, service.Spec.Ports[0].Name)
	}
	job := service.Labels[monitor.JobLabel]
	rules := build(t, "prometheus")
	if named := regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(rules, -1); len(named) == 0 || named[0][1] != job {
		t.Errorf("the rules are about %v, and the series have job %q", named, job)
	}

	policy := one[networkingv1.NetworkPolicy](t, parse(t, build(t, "network-policy")), "NetworkPolicy")
	if !labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(pod) {
		t.Errorf("the NetworkPolicy selects %v, and Pods have %v", policy.Spec.PodSelector, pod)
	}
}

// The Deployment fits the program: its flags, the places of its files, and the time that it needs to stop.
func TestConfig_FitsTheProgram(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "rolewright")
	compile := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/rolewright")
	compile.Dir = repository
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deployment := one[appsv1.Deployment](t, parse(t, build(t, "default")), "Deployment")
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	help, err := exec.Command(binary, append(append([]string{"run"}, container.Args...), "--help")...).Output()
	if err != nil {
		t.Fatalf("the arguments %q are refused: %s", container.Args, stderr(err))
	}
	defaultOf := func(flag string) string {
		found := regexp.MustCompile(`--` + flag + ` [^(]*\(default\s+"?([^")]*)"?\)`).FindSubmatch(help)
		if found == nil {
			t.Fatalf("--%s has no default in the help:\n%s", flag, help)
		}
		return string(found[1])
	}
	shutdown, err := time.ParseDuration(defaultOf("graceful-shutdown-timeout"))
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; err != nil || grace < shutdown+10*time.Second {
		t.Errorf("the kubelet waits for %s, and the operator takes %s (%v)", grace, shutdown, err)
	}

	if security := container.SecurityContext; security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		t.Error("the root file system can be written to")
	}
	if len(container.VolumeMounts) != 1 || len(pod.Volumes) != 1 || pod.Volumes[0].EmptyDir == nil {
		data, _ := json.Marshal(pod.Volumes)
		t.Fatalf("there is not one volume that is an emptyDir: %s", data)
	}
	root := container.VolumeMounts[0].MountPath + "/"
	places := []string{defaultOf("runner-root"), "/tmp/"} // the second is the default of TMPDIR
	for _, e := range container.Env {
		if strings.HasSuffix(e.Name, "_TEMP") || strings.HasSuffix(e.Name, "_TMP") || e.Name == "TMPDIR" {
			places = append(places, e.Value)
		}
	}
	for _, place := range places {
		if !strings.HasPrefix(place, root) {
			t.Errorf("%s is not on the volume at %s", place, root)
		}
	}
}

// The test builds config/default with the component config/shards. It is not parallel, because it makes a directory in
// config/.
func TestConfig_ReplicasShareTheObjects(t *testing.T) {
	dir := must.Get(os.MkdirTemp(filepath.Join(repository, "config"), "with-shards-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text := "resources: [../default]\ncomponents: [../shards]\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	objects := parse(t, build(t, filepath.Base(dir)))
	var verbs []string
	for _, role := range find[rbacv1.Role](t, objects, "Role") {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "leases") {
				verbs = append(verbs, rule.Verbs...)
			}
		}
	}
	if slices.Sort(verbs); !slices.Equal(verbs, []string{"create", "delete", "get", "list", "update"}) {
		t.Errorf("verbs on leases: %v", verbs)
	}
	deployment := one[appsv1.Deployment](t, objects, "Deployment").Spec
	if args := deployment.Template.Spec.Containers[0].Args; *deployment.Replicas < 2 || !slices.Contains(args, "--shards=auto") || !slices.Contains(args, "--leader-elect") {
		t.Errorf("%d replicas with %v", *deployment.Replicas, args)
	}
	budget, spread := one[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget").Spec, deployment.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 {
		t.Fatalf("%d constraints spread the replicas, want 1", len(spread))
	}
	for what, selector := range map[string]*metav1.LabelSelector{"budget": budget.Selector, "constraint": spread[0].LabelSelector} {
		if !maps.Equal(selector.MatchLabels, deployment.Selector.MatchLabels) {
			t.Errorf("the %s is for Pods with %v, not those of the Deployment", what, selector.MatchLabels)
		}
	}
}
