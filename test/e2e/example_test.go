package e2e

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// memcached is the example's kind. All other kinds of this package have their own groups.
var memcached = schema.GroupVersionKind{Group: "cache.example.com", Version: "v1alpha1", Kind: "Memcached"}

// needKwok fails the test where no one plays the kubelet: a Deployment would never become available.
func needKwok(t *testing.T, s *stage) {
	t.Helper()
	nodes := must.Get(kubernetes.NewForConfigOrDie(s.cfg).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return
			}
		}
	}
	t.Fatal("the control plane has no node, and so no Deployment becomes available: run `make test-e2e`, " +
		"or `bin/tools/controlplane exec --pods-exec -- go test ./test/e2e/`")
}

func TestExampleOperator_MoleculeOrder(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	uninstallAfter(t, "memcacheds.cache.example.com")
	s := newStage(t)
	needKwok(t, s)
	m := newScenario(t, absolute(t), "local", append(slices.Clip(s.env), "TEST_OPERATOR_NAMESPACE="+s.namespace))
	s.dir = absolute(t)
	user := testenv.User(t, s.cfg, shippedRules(t))
	s.env = append(slices.Clip(s.env), "KUBECONFIG="+testenv.Kubeconfig(t, user))
	record := t.TempDir() + "/calls.jsonl"
	k := s.kindOf(memcached)

	var o *operator
	var before object
	m.test(func(step string) {
		switch step {
		case "prepare":
			o = s.start("--record-api-calls=" + record)
		case "converge":
			before = k.awaitReady("memcached-sample")
		case "idempotence":
			after := k.get("memcached-sample")
			if ran := s.runs(after); len(ran) != 1 || after.GetResourceVersion() != before.GetResourceVersion() {
				t.Errorf("%d runs after a second converge, want 1; status %+v", len(ran), after.status)
			}
		}
	})
	m.play("destroy") // as molecule does when it is told to destroy what is gone
	o.stop()
	checkRights(t, user, shippedRules(t))
	checkRecord(t, s, record, shippedRules(t))
}

// shippedRules are what the operator may do where it is installed from config/.
func shippedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	return rulesOf(t, "config/rbac/role.yaml")
}

// rulesOf returns the rules of a role in a file.
func rulesOf(t *testing.T, file string) []rbacv1.PolicyRule {
	t.Helper()
	data := must.Get(os.ReadFile(absolute(t, file)))(t)
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		t.Fatalf("read the rules of %s: %v", file, err)
	}
	return role.Rules
}

// checkRights compares a user's permissions with the user's requests: no request was refused, and every permission was
// needed.
func checkRights(t *testing.T, user *rest.Config, rules []rbacv1.PolicyRule) {
	t.Helper()
	review := must.Get(kubernetes.NewForConfigOrDie(user).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	used := map[string]bool{}
	name := review.Status.UserInfo.Username
	for _, e := range testenv.AuditEvents(t, name, func(e testenv.AuditEvent) bool { return e.User.Username == name }) {
		if e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("refused: %s %s", e.Verb, e.RequestURI)
		}
		used[right(e.Verb, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.ObjectRef.Subresource)] = true
	}
	for r := range rights(rules) {
		if !used[r] && !slices.Contains(idleRights(), r) {
			t.Errorf("granted, and not used: %s", r)
		}
	}
}

// idleRights are permissions for things that do not happen in the scenario.
func idleRights() []string {
	return []string{
		// The scenario changes nothing that is in the ConfigMap.
		"patch configmaps",
		// The caches start with a watch that sends the existing objects. Older API servers do not support that.
		"list memcacheds cache.example.com",
		// No run fails.
		"create events events.k8s.io",
		"patch events events.k8s.io",
	}
}

// checkRecord generates rules from the calls that the operator has recorded, without reading the tasks.
func checkRecord(t *testing.T, s *stage, record string, shipped []rbacv1.PolicyRule) {
	t.Helper()
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record is not its owner's alone: %v, %v", info, err)
	}
	cmd := process(t, binary(t), "generate", "rbac", "--scan=false", "--offline", "--api-calls="+record)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make rules of the record: %v", err)
	}
	var role rbacv1.ClusterRole
	must.Do(t, yaml.UnmarshalStrict(out, &role))
	recorded, all := rights(role.Rules), rights(shipped)
	for r := range all {
		if !recorded[r] && !slices.Contains(idleRights(), r) {
			t.Errorf("granted, and not recorded: %s", r)
		}
	}
	for r := range recorded {
		if !all[r] {
			t.Errorf("recorded, and not granted: %s", r)
		}
	}
}

// rights returns the permissions in rules, one by one.
func rights(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			name, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				all[right(verb, rule.APIGroups[0], name, subresource)] = true
			}
		}
	}
	return all
}

func right(verb, group, resource, subresource string) string {
	return strings.TrimSpace(verb + " " + strings.Trim(resource+"/"+subresource, "/") + " " + group)
}

// uninstallAfter takes kinds out again whose groups have fixed names, and waits until they are gone, so that the test can be
// repeated. A test that has failed leaves objects with finalizers, which no operator removes any more.
func uninstallAfter(t *testing.T, definitions ...string) {
	t.Helper()
	cfg := testenv.Config(t)
	crds := must.Get(apiextensions.NewForConfig(cfg))(t).ApiextensionsV1().CustomResourceDefinitions()
	objects := must.Get(dynamic.NewForConfig(cfg))(t)
	uninstall := func(ctx context.Context, name string) (gone bool) {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err)
		}
		_ = crds.Delete(ctx, name, metav1.DeleteOptions{}) // again and again, until it is gone
		kind := objects.Resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural})
		left, err := kind.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, o := range left.Items {
			_, _ = kind.Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		return false
	}
	ctx := context.WithoutCancel(t.Context()) // clean-up comes after the test's context has ended
	t.Cleanup(func() {
		for _, name := range definitions {
			if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
				return uninstall(ctx, name), nil
			}); err != nil {
				t.Errorf("uninstall %s: %v", name, err)
			}
		}
	})
}
