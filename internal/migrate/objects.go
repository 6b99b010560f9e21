package migrate

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rolewright/rolewright/internal/content"
)

// object compares an object with what Rolewright would do with it.
func (r *reporter) object(text string, root *yaml.Node) {
	switch child(root, "kind").Value {
	case deploymentKind:
		r.text = text
		r.pod(root, child(root, "spec"), false)
	case "ClusterServiceVersion":
		r.text = text
		install := child(root, "spec", "install", "spec")
		for _, d := range child(install, "deployments").Content {
			r.pod(d, child(d, "spec"), false)
		}
		for _, list := range []string{"clusterPermissions", "permissions"} {
			for _, p := range child(install, list).Content {
				r.permissions(text, child(p, "rules"))
			}
		}
	case "CustomResourceDefinition":
		spec := child(root, "spec")
		k := r.watched(child(spec, "group").Value, child(spec, "names", "kind").Value)
		for _, v := range child(spec, "versions").Content {
			if k != nil {
				r.version(text, k, v)
			}
		}
	case "ClusterRole", "Role":
		name := child(root, "metadata", "name").Value
		if !strings.Contains(name, "editor") && !strings.Contains(name, "admin") && !strings.Contains(name, "viewer") {
			r.permissions(text, child(root, "rules"))
		}
	default:
		r.customResource(root)
	}
}

// pod checks the Pod of a Deployment, which may be only a patch. The Pod is the
// operator's if one of its containers seems to be; with sure, in any case.
func (r *reporter) pod(owner, spec *yaml.Node, sure bool) {
	pod := child(spec, "template", "spec")
	containers := child(pod, "containers").Content
	operator := slices.IndexFunc(containers, r.isOperator)
	if operator < 0 && sure && len(containers) > 0 {
		operator = 0
	}
	if operator < 0 {
		return
	}
	for i, c := range containers {
		switch {
		case i == operator:
			r.container(c)
		case anyValue(child(c, "command"), "ao-logs") || anyValue(child(c, "args"), "ao-logs"):
			r.add(logSidecar, c.Line, child(c, "name").Value)
		}
	}
	whole := child(spec, "selector").Kind != 0
	seconds := child(pod, "terminationGracePeriodSeconds")
	switch n, err := strconv.Atoi(seconds.Value); {
	case err == nil && n < 45:
		r.change(r.add(grace, seconds.Line, "terminationGracePeriodSeconds: "+seconds.Value), DropIn, r.text, replace(r.text, seconds, graceSeconds))
	case seconds.Kind == 0 && whole:
		key := keyOf(pod, "containers")
		r.change(r.add(grace, owner.Line, "no terminationGracePeriodSeconds, which is 30 then"), DropIn, r.text,
			lineBefore(r.text, key, "terminationGracePeriodSeconds: "+graceSeconds))
	}
}

// isOperator tells whether a container seems to be ansible-operator, by its names or by
// settings that only ansible-operator gets.
func (r *reporter) isOperator(c *yaml.Node) bool {
	name := child(c, "name").Value
	if strings.Contains(name+child(c, "image").Value, "rbac-proxy") || anyValue(child(c, "command"), "ao-logs") {
		return false
	}
	for _, env := range child(c, "env").Content {
		if n := child(env, "name").Value; n == "WATCH_NAMESPACE" || n == "OPERATOR_NAME" || strings.HasPrefix(n, "ANSIBLE_") {
			return true
		}
	}
	return name == "manager" || strings.HasSuffix(name, "-manager") || anyValue(child(c, "args"), "--leader-elect") ||
		anyValue(child(c, "args"), "--watches-file") || anyValue(child(c, "command"), "ansible-operator") || anyValue(child(c, "command"), "helm-operator")
}

// anyValue tells whether a string in a list contains part.
func anyValue(list *yaml.Node, part string) bool {
	return slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return strings.Contains(n.Value, part) })
}

// container checks flags, environment and limits.
func (r *reporter) container(c *yaml.Node) {
	bounded := false
	for _, list := range []string{"command", "args"} {
		for _, arg := range child(c, list).Content {
			name, _, _ := strings.Cut(strings.TrimLeft(arg.Value, "-"), "=")
			if strings.HasPrefix(arg.Value, "-") && name != "" {
				r.flag(name, arg.Value, arg.Line)
				bounded = bounded || name == "max-concurrent-reconciles" || name == "max-workers"
			}
		}
	}
	for _, env := range child(c, "env").Content {
		name := child(env, "name").Value
		bounded = bounded || strings.HasPrefix(name, "MAX_CONCURRENT_RECONCILES_") || strings.HasPrefix(name, "WORKER_")
	}
	limits := child(c, "resources", "limits")
	if cpu := child(limits, "cpu"); cpu.Value != "" && !bounded {
		r.add(concurrency, cpu.Line, "cpu: "+cpu.Value)
	}
	size := child(limits, "memory")
	if q, err := resource.ParseQuantity(size.Value); err == nil && q.Cmp(resource.MustParse(leastMemory)) < 0 {
		rule, enough := memory, limitOfMemory
		if r.onlyCharts() {
			rule, enough = chartMemory, leastMemory
		}
		r.change(r.add(rule, size.Line, "memory: "+size.Value), DropIn, r.text, replace(r.text, size, enough))
	}
}

// verbWithout returns the index of a verb in a role's rule; -1 if the rule lacks it, or also has the other verb.
func verbWithout(verbs *yaml.Node, verb, other string) int {
	if slices.ContainsFunc(verbs.Content, func(n *yaml.Node) bool { return n.Value == other || n.Value == "*" }) {
		return -1
	}
	return slices.IndexFunc(verbs.Content, func(n *yaml.Node) bool { return n.Value == verb })
}

// granted is true if other rules of a role together have the verb for all that a rule is about.
func granted(rules, rule *yaml.Node, verb string) bool {
	has := func(list *yaml.Node, value string) bool {
		return slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return n.Value == value || n.Value == "*" })
	}
	for _, group := range child(rule, "apiGroups").Content {
		for _, res := range child(rule, "resources").Content {
			if !slices.ContainsFunc(rules.Content, func(other *yaml.Node) bool {
				return other != rule && has(child(other, "verbs"), verb) && len(child(other, "resourceNames").Content) == 0 &&
					has(child(other, "apiGroups"), group.Value) && has(child(other, "resources"), res.Value)
			}) {
				return false
			}
		}
	}
	return true
}

// permissions checks the rules of a role.
func (r *reporter) permissions(text string, rules *yaml.Node) {
	for _, rule := range rules.Content {
		verbs := child(rule, "verbs")
		if at := verbWithout(verbs, "list", "get"); at >= 0 && !granted(rules, rule, "get") {
			r.change(r.add(noGet, verbs.Content[at].Line, "list without get"), DropIn, text, itemAfter(text, verbs, at, "get"))
		}
		at := verbWithout(verbs, "update", "patch")
		if at < 0 {
			continue
		}
		groups, resources := child(rule, "apiGroups"), child(rule, "resources")
		for _, k := range r.kinds {
			has := func(n *yaml.Node) bool {
				return k.Group != "" && (n.Value == "*" || k.has(strings.TrimSuffix(n.Value, "/status")))
			}
			if i := slices.IndexFunc(resources.Content, has); i >= 0 && slices.ContainsFunc(groups.Content, func(n *yaml.Node) bool { return n.Value == k.Group || n.Value == "*" }) {
				r.change(r.add(noPatch, verbs.Content[at].Line, resources.Content[i].Value+" of "+k.Group), DropIn, text, itemAfter(text, verbs, at, "patch"))
				break
			}
		}
	}
}

// version checks a version of a watched kind's CRD.
func (r *reporter) version(text string, k *kind, v *yaml.Node) {
	whole := child(v, "schema", "openAPIV3Schema")
	schema := child(whole, "properties")
	status := child(schema, "status")
	kept := keeps(whole) || keeps(status) || child(status, "properties", "ansible").Kind != 0
	if schema.Kind != 0 && !kept {
		e := none()
		line := v.Line
		if status.Kind == yaml.MappingNode && len(status.Content) > 0 {
			line, e = status.Line, lineBefore(text, status.Content[0], "x-kubernetes-preserve-unknown-fields: true")
		}
		r.change(r.add(statusSchema, line, k.Kind+": status"), DropIn, text, e)
	}
	r.keys(child(schema, "spec", "properties"))
}

// keeps tells whether a schema keeps undeclared fields.
func keeps(schema *yaml.Node) bool {
	return child(schema, "x-kubernetes-preserve-unknown-fields").Value == "true" || child(schema, "additionalProperties").Kind != 0
}

// customResource checks an object of a watched kind.
func (r *reporter) customResource(root *yaml.Node) {
	group, _, _ := strings.Cut(child(root, "apiVersion").Value, "/")
	k := r.watched(group, child(root, "kind").Value)
	if k == nil || k.Group == "" {
		return
	}
	annotations := child(root, "metadata", "annotations")
	for key, value := range content.Pairs(annotations) {
		name, ok := strings.CutPrefix(key.Value, "ansible.sdk.operatorframework.io/")
		n, err := strconv.Atoi(value.Value)
		if ok && err == nil && (name == "verbosity" && n > 0 || name == "max-runner-artifacts" && (n == 0 || n > 20)) {
			r.add(annotation, key.Line, name+": "+value.Value)
		}
	}
	spec := child(root, "spec")
	r.keys(spec)
	if k.unmarked {
		r.templates(spec, 0)
	}
}

// keys checks the fields of a spec, which become variables.
func (r *reporter) keys(spec *yaml.Node) {
	for key := range content.Pairs(spec) {
		if why := r.Variable(key.Value); why != "" {
			rule := r.rules[reservedName]
			rule.Rolewright = why
			r.addWith(rule, key.Line, key.Value)
		}
	}
}

// maxDepth limits how deep templates are searched for.
const maxDepth = 100

// templates finds strings of an object that Ansible would evaluate.
func (r *reporter) templates(node *yaml.Node, depth int) {
	if node.Kind == yaml.ScalarNode && (strings.Contains(node.Value, "{{") || strings.Contains(node.Value, "{%")) {
		r.add(marking, node.Line, node.Value)
	}
	for _, n := range node.Content {
		if depth < maxDepth {
			r.templates(n, depth+1)
		}
	}
}

// child returns the node at a path of keys, or a node without kind if there is none.
func child(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		found := &yaml.Node{}
		for k, value := range content.Pairs(node) {
			if k.Value == key {
				found = value
			}
		}
		node = found
	}
	return node
}

// keyOf returns the node of a key itself, or a node without kind if there is none.
func keyOf(node *yaml.Node, key string) *yaml.Node {
	for k := range content.Pairs(node) {
		if k.Value == key {
			return k
		}
	}
	return &yaml.Node{}
}

// asserts checks what kuttl and chainsaw assert about objects; in chainsaw, assertions may be inside steps.
func (r *reporter) asserts(text string) {
	for doc, err := range content.Documents(text) {
		if err == nil { // otherwise it is not YAML for others either
			r.asserted(doc, 0)
		}
	}
}

func (r *reporter) asserted(node *yaml.Node, depth int) {
	group, _, _ := strings.Cut(child(node, "apiVersion").Value, "/")
	conditions := child(node, "status", "conditions")
	if k := r.watched(group, child(node, "kind").Value); k != nil && conditions.Kind == yaml.SequenceNode {
		r.add(assertion, conditions.Line, k.Kind+": status.conditions")
	}
	for _, n := range node.Content {
		if depth < maxDepth {
			r.asserted(n, depth+1)
		}
	}
}
