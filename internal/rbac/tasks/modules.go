package tasks

import (
	"os"
	"path/filepath"
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

// modules returns the requests of those modules of kubernetes.core and
// operator_sdk.util whose requests depend on no arguments but kind and
// api_version. Modules that send none have an empty list.
func modules() map[string][]request {
	pod := request{"v1", "Pod", "", "get"}
	// A command in a container is a GET that becomes a WebSocket. For it, newer
	// API servers require create as well.
	exec := request{"v1", "Pod", "exec", "create get"}
	secrets := []request{{"v1", "Secret", "", "get list create update delete"}}
	return map[string][]request{
		"k8s_exec":       {pod, exec},
		"k8s_cp":         {pod, exec},
		"k8s_log":        {{"v1", "Pod", "log", "get"}, {"v1", "Pod", "", "get list"}},
		"k8s_drain":      {{"v1", "Node", "", "get patch"}, {"v1", "Pod", "", "get list"}, {"v1", "Pod", "eviction", "create"}},
		"k8s_taint":      {{"v1", "Node", "", "get patch"}},
		"k8s_json_patch": {{verbs: "get patch"}},
		"k8s_rollback": {
			{verbs: "get list patch"}, {"apps/v1", "ReplicaSet", "", "list"}, {"apps/v1", "ControllerRevision", "", "list"},
		},
		"k8s_status": {{verbs: "get"}, {subresource: "status", verbs: "patch"}},
		"k8s_event":  {{"v1", "Event", "", "get create patch"}},
		"helm":       secrets,
		"helm_info":  {{"v1", "Secret", "", "get list"}},

		"k8s_cluster_info": {}, "requeue_after": {}, "osdk_metric": {},
		"helm_registry_auth": {}, "kubeconfig": {}, "helm_template": {}, "helm_pull": {}, "helm_repository": {}, "helm_plugin": {}, "helm_plugin_info": {},
	}
}

// operatorModules returns the requests that the operator sends for the modules of
// rolewright.operator. Requests for the object of the run are permitted anyway.
func operatorModules() map[string][]request {
	return map[string][]request{
		"status": {}, "requeue_after": {}, "metric": {}, "trigger_info": {},
		"event":    {{"events.k8s.io/v1", "Event", "", "create"}},
		"wait_for": {{verbs: "get"}},
	}
}

// args are the arguments of a task.
type args struct {
	s    *scanner
	f    content.Frame
	node *yaml.Node
	line int
}

// module reads a task of a module.
func (s *scanner) module(name string, a args) {
	if s.local(name, a.f) {
		s.Gap(a.f, a.line, "the requests of library/%s.py", name)
		return
	}
	short := name
	for _, prefix := range []string{"ansible.builtin.", "ansible.legacy."} {
		short = strings.TrimPrefix(short, prefix)
	}
	ofKubernetes := false
	for _, prefix := range []string{"kubernetes.core.", "community.kubernetes.", "community.okd.", "redhat.openshift.", "operator_sdk.util."} {
		if rest, ok := strings.CutPrefix(short, prefix); ok {
			short, ofKubernetes = rest, true
		}
	}
	requests, known := modules()[short]
	if own, ok := strings.CutPrefix(name, "rolewright.operator."); ok {
		if requests, known = operatorModules()[own]; known && len(requests) == 0 {
			return
		}
	}
	switch {
	case known || slices.Contains([]string{"k8s", "k8s_info", "k8s_facts", "k8s_scale", "k8s_service"}, short):
		a.kubernetes(name, short, requests)
	case slices.Contains([]string{"raw", "script"}, short):
		s.Gap(a.f, a.line, "the commands of %s", short)
	case slices.Contains([]string{"command", "shell", "expect", "uri", "get_url"}, short):
		a.commands(short)
	case ofKubernetes || strings.Contains(short, ".") && !quiet.MatchString(short):
		s.Gap(a.f, a.line, "the requests of the module %s", name)
	}
}

// quiet matches collections whose modules send no requests to the API server.
var quiet = regexp.MustCompile(`^(ansible\.(posix|utils)|community\.(general|crypto))\.`)

// local reports whether a module is part of the role or playbook.
func (s *scanner) local(name string, f content.Frame) bool {
	for _, dir := range []string{filepath.Dir(f.File), f.RoleDir} {
		if _, err := os.Stat(filepath.Join(dir, "library", name+".py")); err == nil && dir != "" {
			return true
		}
	}
	return false
}

// client matches programs and addresses through which commands reach the API server.
var client = regexp.MustCompile(`\b(kubectl|oc|helm|istioctl|velero|argocd|flux|cmctl|kustomize|skopeo)\b|(?i:KUBECONFIG|KUBERNETES)|serviceaccount/token`)

// commands reports a task whose text names a client of the API server, or whose
// arguments are an expression.
func (a args) commands(module string) {
	_, literalURL := content.Literal(a.get("url"))
	if a.node == nil || a.has("url") && !literalURL {
		a.s.Gap(a.f, a.line, "the arguments of %s are an expression", module)
		return
	}
	var found []string
	scalars(a.node, func(n *yaml.Node) { found = append(found, client.FindString(n.Value)) })
	if i := slices.IndexFunc(found, func(s string) bool { return s != "" }); i >= 0 {
		a.s.Gap(a.f, a.line, "a %s that uses %s", module, found[i])
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
	switch short {
	case "k8s":
		a.k8s(a.objects())
	case "k8s_service":
		a.k8s([]object{{place: Place{a.f.File, a.line}, apiVersion: "v1", kind: "Service", named: true}})
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
	case "k8s_log":
		if a.has("kind") { // else a Pod
			a.use(a.named(), "", "get", false)
		}
	case "k8s_drain":
		if o := (args{node: a.get("delete_options")}); o.on("disable_eviction") || o.node != nil && o.node.Kind == yaml.ScalarNode {
			requests = append(requests, request{"v1", "Pod", "", "delete"})
		}
	}
	for _, r := range requests {
		objects := []object{{place: Place{a.f.File, a.line}, apiVersion: r.apiVersion, kind: r.kind}}
		if r.kind == "" {
			objects = a.named()
		}
		a.use(objects, r.subresource, r.verbs, false)
	}
	switch {
	case short == "k8s_status" && a.on("force"):
		a.use(a.named(), "status", "update", false)
	case short == "helm":
		a.s.Gap(a.f, a.line, "the objects of the Helm chart %s", content.Text(a.get("chart_ref", "chart_reference")))
	}
}

// k8s records the requests of the module k8s for some objects.
func (a args) k8s(objects []object) {
	unnamed := a.mayLack("name")
	for _, o := range objects {
		one := []object{o}
		if a.may("state", "absent") {
			verbs := "delete get"
			if unnamed && !o.named {
				verbs = "delete list" // lists, and deletes one after the other
			}
			a.use(one, "", verbs, false)
		}
		if a.may("state", "patched") {
			a.use(one, "", "get patch", false)
		}
		if a.has("state") && !a.may("state", "present") {
			continue
		}
		verbs := "get create patch"
		if a.on("force") && !a.on("apply") {
			verbs = "get create update"
		}
		a.use(one, "", verbs, true)
	}
}

// use records requests for objects.
func (a args) use(objects []object, subresource, verbs string, makes bool) {
	for _, o := range objects {
		a.s.report.Uses = append(a.s.report.Uses, Use{
			Place: o.place, APIVersion: o.apiVersion, Kind: o.kind, Subresource: subresource, Verbs: strings.Fields(verbs), Makes: makes,
		})
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

// mayLack reports whether an argument may be missing or empty at run time.
func (a args) mayLack(name string) bool {
	n := a.get(name)
	return n == nil || n.Kind == yaml.ScalarNode && (n.Value == "" || strings.Contains(n.Value, "omit") || strings.Contains(n.Value, "default("))
}

// named returns the object whose kind the arguments kind and api_version name.
func (a args) named() []object {
	return a.objectOf(a.get("kind"), a.get("api_version", "api", "version"), object{place: Place{a.f.File, a.line}})
}

// objectOf sets the kind and version of an object if they are literal. Otherwise it
// reports a gap.
func (a args) objectOf(kind, apiVersion *yaml.Node, o object) []object {
	at := content.Frame{File: o.place.File}
	var ok bool
	if o.kind, ok = content.Literal(kind); !ok {
		a.s.Gap(at, o.place.Line, "the kind is not literal: %s", content.Text(kind))
		return nil
	}
	o.apiVersion = "v1"
	if apiVersion != nil {
		if o.apiVersion, ok = content.Literal(apiVersion); !ok {
			a.s.Gap(at, o.place.Line, "the API version of %s is not literal: %s", o.kind, content.Text(apiVersion))
			return nil
		}
	}
	return []object{o}
}

// arguments returns the arguments of a module and of the keyword args as one mapping; nil
// if they are not literal.
func arguments(value, extra *yaml.Node) *yaml.Node {
	merged := &yaml.Node{Kind: yaml.MappingNode}
	for _, from := range []*yaml.Node{value, extra} {
		switch {
		case from == nil || from.Tag == "!!null":
		case from.Kind == yaml.MappingNode:
			content.Each(from, func(key, value *yaml.Node) { merged.Content = append(merged.Content, key, value) })
		default:
			words, ok := content.Literal(from)
			if !ok || strings.Contains(words, "=") {
				return nil // key=value is not read
			}
			merged.Content = append(merged.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "_raw_params"}, from)
		}
	}
	return merged
}

// scalars calls do for each scalar that is written in n. It does not follow
// aliases.
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
