package tasks

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// request is a request that a module sends. Without a kind, it is for the kind
// that the arguments name.
type request struct {
	apiVersion, kind, subresource string
	verbs                         string
}

// modules returns the requests of those modules whose requests depend on no arguments but kind and api_version; of those of
// rolewright.operator, what the operator sends: requests for the object of the run are permitted anyway. Modules that
// send none have an empty list.
func modules() map[string][]request {
	pod := request{"v1", "Pod", "", "get"}
	// A command in a container is a GET that becomes a WebSocket. For it, newer API servers require create as well.
	exec := request{"v1", "Pod", "exec", "create get"}
	return map[string][]request{
		"k8s_exec":       {pod, exec},
		"k8s_cp":         {pod, exec},
		"k8s_log":        {{verbs: "get"}, {"v1", "Pod", "log", "get"}, {"v1", "Pod", "", "get list"}},
		"k8s_drain":      {{"v1", "Node", "", "get patch"}, {"v1", "Pod", "", "get list"}, {"v1", "Pod", "eviction", "create"}},
		"k8s_taint":      {{"v1", "Node", "", "get patch"}},
		"k8s_json_patch": {{verbs: "get patch"}},
		"k8s_rollback":   {{verbs: "get list patch"}, {"apps/v1", "ReplicaSet", "", "list"}, {"apps/v1", "ControllerRevision", "", "list"}},
		"k8s_status":     {{verbs: "get"}, {subresource: "status", verbs: "patch"}},
		"k8s_event":      {{"v1", "Event", "", "get create patch"}},
		"helm":           {{"v1", "Secret", "", "get list create update delete"}},
		"helm_info":      {{"v1", "Secret", "", "get list"}},

		"k8s_cluster_info": {}, "requeue_after": {}, "osdk_metric": {},
		"helm_registry_auth": {}, "kubeconfig": {}, "helm_template": {}, "helm_pull": {}, "helm_repository": {}, "helm_plugin": {}, "helm_plugin_info": {},

		"rolewright.operator.event":    {{"events.k8s.io/v1", "Event", "", "create"}},
		"rolewright.operator.wait_for": {{verbs: "get"}},
		"rolewright.operator.status":   {}, "rolewright.operator.requeue_after": {},
		"rolewright.operator.metric": {}, "rolewright.operator.trigger_info": {},
	}
}

// args are the arguments of a task.
type args struct {
	s    *scanner
	f    content.Frame
	node *yaml.Node
	line int
}

// These match modules of kubernetes.core, and collections whose modules send requests to the API server, or none.
var (
	ofKubernetesCore = regexp.MustCompile(`^((kubernetes\.core|community\.kubernetes)\..+|(k8s|helm)(_\w+)?)$`)
	ofKubernetes     = regexp.MustCompile(`^(kubernetes\.core|community\.(kubernetes|okd)|redhat\.openshift|operator_sdk\.util)\.`)
	quiet            = regexp.MustCompile(`^(ansible\.(posix|utils)|community\.(general|crypto))\.`)
)

// module reads a task of a module.
func (s *scanner) module(name string, a args) {
	short := ofKubernetes.ReplaceAllString(name, "")
	requests, known := modules()[short]
	switch {
	case content.FindFile(name+".py", a.f.Searched("library")...) != "":
		s.Gap(a.f, a.line, "the requests of library/%s.py", name)
	case known && len(requests) == 0:
	case known || slices.Contains([]string{"k8s", "k8s_info", "k8s_facts", "k8s_scale", "k8s_service"}, short):
		a.kubernetes(name, short, requests)
	case slices.Contains([]string{"raw", "script"}, name):
		s.Gap(a.f, a.line, "the commands of %s", name)
	case slices.Contains([]string{"command", "shell", "expect", "uri", "get_url"}, name):
		a.commands(name)
	case strings.Contains(name, ".") && !quiet.MatchString(name):
		s.Gap(a.f, a.line, "the requests of the module %s", name)
	}
}

// client matches programs and addresses through which commands reach the API server.
var client = regexp.MustCompile(`\b(kubectl|oc|helm|istioctl|velero|argocd|flux|cmctl|kustomize|skopeo)\b|(?i:KUBECONFIG|KUBERNETES)|serviceaccount/token`)

// commands reports a task whose text names a client of the API server, or whose arguments are an expression.
func (a args) commands(module string) {
	if a.node == nil || a.may("url") {
		a.s.Gap(a.f, a.line, "the arguments of %s are an expression", module)
		return
	}
	var texts []string
	scalars(a.node, func(n *yaml.Node) { texts = append(texts, n.Value) })
	if found := client.FindString(strings.Join(texts, "\n")); found != "" {
		a.s.Gap(a.f, a.line, "a %s that uses %s", module, found)
	}
}

// kubernetes reads a task of a module that talks to the API server.
func (a args) kubernetes(name, short string, requests []request) {
	if a.node == nil {
		a.s.Gap(a.f, a.line, "the arguments of %s are an expression", name)
		return
	}
	for _, key := range []string{"kubeconfig", "host", "api_key"} {
		if a.has(key) && !a.mayLack(key) {
			a.s.Gap(a.f, a.line, "%s names with %s the cluster that it uses; nothing is granted for it", name, key)
			return
		}
	}
	here := Place{a.f.File, a.line}
	switch short {
	case "k8s":
		a.k8s(a.objects())
	case "k8s_service":
		a.k8s([]Use{{Place: here, APIVersion: "v1", Kind: "Service"}})
	case "k8s_info", "k8s_facts":
		verbs := "get"
		if a.mayLack("name") {
			verbs = "list"
			if a.has("name") || a.on("wait") {
				verbs = "list get" // wait reads each object that was found
			}
		}
		a.use(a.named(), "", verbs, false)
	case "k8s_scale":
		a.use(a.objects(), "", "get list patch", false)
		a.use(a.objects(), "scale", "patch", false)
	case "k8s_drain":
		if o := (args{node: a.get("delete_options")}); o.on("disable_eviction") || o.node != nil && o.node.Kind == yaml.ScalarNode {
			requests = append(requests, request{"v1", "Pod", "", "delete"})
		}
	case "k8s_status":
		if a.on("force") {
			requests = append(requests, request{subresource: "status", verbs: "update"})
		}
	case "helm":
		a.s.Gap(a.f, a.line, "the objects of the Helm chart %s", content.Text(a.get("chart_ref", "chart_reference")))
	}
	for _, r := range requests {
		if r.kind != "" {
			a.use([]Use{{Place: here, APIVersion: r.apiVersion, Kind: r.kind}}, r.subresource, r.verbs, false)
		} else if a.has("kind") || short != "k8s_log" { // without a kind, k8s_log reads a Pod
			a.use(a.named(), r.subresource, r.verbs, false)
		}
	}
}

// k8s records the requests of the module k8s for some objects.
func (a args) k8s(objects []Use) {
	if a.may("state", "absent") {
		verbs := "delete get"
		if a.mayLack("name") && !a.has("resource_definition", "definition", "inline", "template", "src") || a.has("label_selectors", "delete_all") {
			verbs = "delete get list" // lists, and then gets and deletes one after the other
		}
		a.use(objects, "", verbs, false)
	}
	if a.may("state", "patched") {
		a.use(objects, "", "get patch", false)
	}
	if a.has("state") && !a.may("state", "present") {
		return
	}
	verbs := "get create"
	if a.off("force") || a.on("apply") {
		verbs += " patch"
	}
	if a.on("force") && a.off("apply") {
		verbs += " update"
	}
	a.use(objects, "", verbs, true)
}

// use records requests for objects.
func (a args) use(objects []Use, subresource, verbs string, makes bool) {
	for _, u := range objects {
		u.Subresource, u.Verbs, u.Makes = subresource, strings.Fields(verbs), makes
		a.s.report.Uses = append(a.s.report.Uses, u)
	}
}

// get returns an argument by one of its names; nil if it is not given.
func (a args) get(names ...string) *yaml.Node {
	for _, name := range names {
		if n := content.Get(a.node, name); n != nil && n.Tag != "!!null" {
			return n
		}
	}
	return nil
}

func (a args) has(names ...string) bool { return a.get(names...) != nil }

// may reports whether an argument is one of these words, or an expression.
func (a args) may(name string, words ...string) bool {
	value, ok := content.Literal(a.get(name))
	return a.has(name) && (!ok || slices.Contains(words, strings.ToLower(value)))
}

// on reports whether a switch may be on.
func (a args) on(name string) bool { return a.may(name, "true", "yes", "on", "1", "y", "t") }

// off reports whether a switch may be off.
func (a args) off(name string) bool {
	return !a.has(name) || a.may(name, "false", "no", "off", "0", "n", "f")
}

// mayLack reports whether an argument may be missing or empty at run time.
func (a args) mayLack(name string) bool {
	n := a.get(name)
	return n == nil || n.Kind == yaml.ScalarNode && (n.Value == "" || strings.Contains(n.Value, "omit") || strings.Contains(n.Value, "default("))
}

// named returns the object whose kind the arguments kind and api_version name.
func (a args) named() []Use {
	return a.object(a.get("kind"), a.get("api_version", "api", "version"), Place{a.f.File, a.line})
}

// object returns the object of a kind and version if they are literal. Otherwise it reports a gap.
func (a args) object(kind, apiVersion *yaml.Node, at Place) []Use {
	u := Use{Place: at, APIVersion: "v1"}
	var ok bool
	if u.Kind, ok = content.Literal(kind); !ok || u.Kind == "" {
		a.s.Gap(content.Frame{File: at.File}, at.Line, "the kind is not literal: %s", content.Text(kind))
		return nil
	}
	if apiVersion != nil {
		if u.APIVersion, ok = content.Literal(apiVersion); !ok {
			a.s.Gap(content.Frame{File: at.File}, at.Line, "the API version of %s is not literal: %s", u.Kind, content.Text(apiVersion))
			return nil
		}
	}
	return []Use{u}
}

// arguments returns a mapping with the arguments of a module and of the keyword args, and the text of a command; nil if
// they are not literal.
func arguments(value, extra *yaml.Node) *yaml.Node {
	merged := &yaml.Node{Kind: yaml.MappingNode}
	for _, from := range []*yaml.Node{value, extra} {
		if from == nil || from.Tag == "!!null" {
			continue
		}
		if text, ok := content.Literal(from); from.Kind != yaml.MappingNode && (!ok || strings.Contains(text, "=")) {
			return nil // key=value is not read
		}
		merged.Content = append(merged.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!merge", Value: "<<"}, from)
	}
	return merged
}

// scalars calls do for each scalar that is written in n. It does not follow aliases.
func scalars(n *yaml.Node, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		do(n)
	}
	for _, child := range n.Content {
		scalars(child, do)
	}
}
