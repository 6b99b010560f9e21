package rbac

import (
	"fmt"
	"regexp"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/text"
)

// Role says how the rules are to be written.
type Role struct {
	Name string
	// Namespaces is empty for one ClusterRole. Otherwise there is a Role in each
	// namespace, and a ClusterRole for cluster-scoped resources.
	Namespaces []string
	// Jobs adds a Role, with its binding, for what runs as Jobs need in the operator's namespace.
	Jobs bool
}

// YAML writes the needs as manifests that kubectl and kustomize accept. The text
// depends only on the arguments.
func (r Role) YAML(needs Needs, gaps []tasks.Gap) string {
	var b strings.Builder
	r.watched(&b, needs, gaps)
	if r.Jobs {
		b.WriteString("---\n# What runs as Jobs need in the operator's namespace; config/jobs has it, too.\n")
		manifest(&b, "Role", r.Name+"-jobs", operatorNamespace, Jobs().Rules())
		fmt.Fprintf(&b, jobsBinding, r.Name+"-jobs", operatorNamespace)
	}
	return b.String()
}

// operatorNamespace is a placeholder, which kustomize replaces by the operator's namespace.
const operatorNamespace = "system"

const jobsBinding = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: %[1]s
  namespace: %[2]s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: %[1]s
subjects:
  - kind: ServiceAccount
    name: controller-manager
    namespace: %[2]s
`

// watched writes what the watches and their content need.
func (r Role) watched(b *strings.Builder, needs Needs, gaps []tasks.Gap) {
	b.WriteString("---\n# Written by rolewright generate rbac.\n")
	if len(gaps) > 0 {
		b.WriteString("# Not known, and possibly missing here:\n")
		for _, g := range SortGaps(gaps) {
			fmt.Fprintf(b, "#   %s\n", text.OneLine(g.Place.String()+": "+g.What)) // a line separator would end the comment
		}
	}
	if len(r.Namespaces) == 0 {
		manifest(b, "ClusterRole", r.Name, "", needs.Rules())
		return
	}
	namespaced, cluster := needs.split()
	for i, namespace := range r.Namespaces {
		if i > 0 {
			b.WriteString("---\n")
		}
		manifest(b, "Role", r.Name, namespace, namespaced.Rules())
	}
	if rules := cluster.Rules(); len(rules) > 0 {
		b.WriteString("---\n# What is in no namespace.\n")
		manifest(b, "ClusterRole", r.Name, "", rules)
	}
}

func manifest(b *strings.Builder, kind, name, namespace string, rules []rbacv1.PolicyRule) {
	fmt.Fprintf(b, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", rbacv1.SchemeGroupVersion, kind, word(name))
	if namespace != "" {
		fmt.Fprintf(b, "  namespace: %s\n", word(namespace))
	}
	if len(rules) == 0 {
		b.WriteString("rules: []\n")
		return
	}
	b.WriteString("rules:\n")
	for _, rule := range rules {
		fmt.Fprintf(b, "  - apiGroups: %s\n    resources: %s\n    verbs: %s\n", words(rule.APIGroups), words(rule.Resources), words(rule.Verbs))
	}
}

// plainWord matches a word that YAML reads as a string without quotes.
var plainWord = regexp.MustCompile(`^[a-z][a-zA-Z0-9./_-]*$`)

func word(text string) string {
	switch text {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return fmt.Sprintf("%q", text)
	}
	if plainWord.MatchString(text) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

func words(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = word(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
