package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/test/must"
)

// All characters that end a line in YAML end a comment, too.
func TestRole_TextOfAGapStaysAComment(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		gap := tasks.Gap{Place: tasks.Place{File: "a" + end + "kind: Evil"}, What: "x" + end + "rules: [{verbs: [get]}]"}
		var role rbacv1.ClusterRole
		must.Do(t, yaml.Unmarshal([]byte(Role{Name: "r"}.YAML(Needs{}, []tasks.Gap{gap})), &role))
		must.Be(t, "kind", "ClusterRole", role.Kind)
		must.Be(t, "rules", 0, len(role.Rules))
	}
}
