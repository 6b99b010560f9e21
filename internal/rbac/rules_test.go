package rbac

import (
	"testing"

	godiff "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

func TestRules_AreFewAndNoWider(t *testing.T) {
	t.Parallel()
	needs := Needs{}
	needs.Add(Need{Group: "apps", Resource: "deployments", Namespaced: true}, "watch", "get", "list", "get")
	needs.Add(Need{Group: "apps", Resource: "daemonsets", Namespaced: true}, "list", "watch", "get")
	needs.Add(Need{Group: "apps", Resource: "deployments", Subresource: "scale", Namespaced: true}, "patch")
	needs.Add(Need{Resource: "pods", Namespaced: true}, "get", "list", "watch", "own")
	needs.Add(Need{Group: "b", Resource: "deployments", Namespaced: true}, "get", "list", "watch") // never in one rule with those of apps
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "own"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets", "deployments"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"b"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch"}},
	}
	if diff := godiff.Diff(want, needs.Rules()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var role rbacv1.ClusterRole
	must.Do(t, yaml.UnmarshalStrict([]byte(Role{Name: "no"}.YAML(needs, nil)), &role))
	if diff := godiff.Diff(want, role.Rules); diff != "" || role.Name != "no" {
		t.Errorf("written and read (name %q, -want +got)\n%s", role.Name, diff)
	}
	if err := yaml.UnmarshalStrict([]byte(Role{Name: "x"}.YAML(Needs{}, nil)), &role); err != nil || len(role.Rules) > 0 {
		t.Errorf("an empty role: %v, %v", role.Rules, err)
	}
}
