package tasks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// kubernetesModule is the short name of a module that talks to the API server
// and is known here.
func kubernetesModule(name string) (short string, ok bool) {
	short = name
	for _, prefix := range []string{"kubernetes.core.", "community.kubernetes.", "community.okd.", "redhat.openshift.", "operator_sdk.util."} {
		if rest, is := strings.CutPrefix(name, prefix); is {
			short = rest
		}
	}
	_, ok = modules()[short]
	if strings.Contains(short, ".") {
		return name, false
	}
	return short, ok
}

// modules are what is known of modules: what kubernetes.core and
// operator_sdk.util send for their arguments.
func modules() map[string]func(args) {
	return map[string]func(args){
		"k8s":            args.k8s,
		"k8s_info":       args.k8sInfo,
		"k8s_facts":      args.k8sInfo,
		"k8s_scale":      args.k8sScale,
		"k8s_exec":       args.k8sExec,
		"k8s_log":        args.k8sLog,
		"k8s_drain":      args.k8sDrain,
		"k8s_cp":         args.k8sCp,
		"k8s_json_patch": func(a args) { a.useKind("", []string{"get", "patch"}, false) },
		"k8s_rollback":   args.k8sRollback,
		"k8s_service":    args.k8sService,
		"k8s_taint":      func(a args) { a.add("v1", "Node", "", "get", "patch") },
		"k8s_status":     args.k8sStatus,
		"k8s_event":      args.k8sEvent,

		"k8s_cluster_info": func(args) {}, // discovery, which everybody may read
		"requeue_after":    func(args) {},
		"osdk_metric":      func(args) {},

		"helm":             func(a args) { a.helm("get", "list", "create", "update", "delete") },
		"helm_info":        func(a args) { a.add("v1", "Secret", "", "get", "list") },
		"helm_template":    func(args) {},
		"helm_pull":        func(args) {},
		"helm_repository":  func(args) {},
		"helm_plugin":      func(args) {},
		"helm_plugin_info": func(args) {},
	}
}

// module reads a task of a module.
func (s *scanner) module(name, short string, a args) {
	if s.local(name, a.f) {
		s.gap(a.f, a.line, "it is not known what library/%s.py asks of the API server", name)
		return
	}
	if canonical, ok := kubernetesModule(name); ok {
		if a.node == nil {
			s.gap(a.f, a.line, "the arguments of %s are an expression", name)
			return
		}
		for _, key := range []string{"kubeconfig", "host", "api_key"} {
			if a.has(key) && !a.mayLack(key) {
				s.gap(a.f, a.line, "%s says with %s which cluster it asks; nothing is granted for it", name, key)
				return
			}
		}
		modules()[canonical](a)
		return
	}
	switch {
	case slices.Contains([]string{"command", "shell", "raw", "script", "expect"}, short):
		a.commands(short)
	case short == "uri" || short == "get_url":
		if url := a.text("url"); url == "" || strings.Contains(url, "kubernetes") || strings.Contains(url, "KUBERNETES") {
			s.gap(a.f, a.line, "%s may ask the API server: %s", short, text(a.get("url")))
		}
	case quiet(name, short):
	default:
		s.gap(a.f, a.line, "it is not known what the module %s asks of the API server", name)
	}
}

// local reports whether a module comes with the role or playbook.
func (s *scanner) local(name string, f frame) bool {
	dirs := []string{filepath.Join(filepath.Dir(f.file), "library")}
	if f.roleDir != "" {
		dirs = append(dirs, filepath.Join(f.roleDir, "library"))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name+".py")
		if _, err := os.Stat(path); err == nil && !strings.Contains(name, ".") {
			return true
		}
	}
	return false
}

// client matches programs that talk to the API server by themselves.
var client = regexp.MustCompile(`\b(kubectl|oc|helm|istioctl|velero|argocd|flux|cmctl|kustomize|skopeo)\b|KUBECONFIG|KUBERNETES_SERVICE|kubernetes\.default|serviceaccount/token`)

// commands looks at commands, of which only their text is known.
func (a args) commands(module string) {
	if module == "script" || module == "raw" {
		a.s.gap(a.f, a.line, "it is not known what %s runs", module)
		return
	}
	said := false
	scalars(a.node, func(n *yaml.Node) {
		if found := client.FindString(n.Value); found != "" && !said {
			said = true
			a.s.gap(a.f, a.line, "a command that uses %s", found)
		}
	})
	if a.node == nil && !said {
		a.s.gap(a.f, a.line, "the command is an expression")
	}
}

// quiet reports whether a module never talks to the API server.
func quiet(name, short string) bool {
	for _, prefix := range []string{"ansible.posix.", "ansible.utils.", "community.general.", "community.crypto."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(builtin(), short)
}

// builtin are the modules of ansible-core.
func builtin() []string {
	return []string{
		"add_host", "apt", "apt_key", "apt_repository", "assemble", "assert", "async_status", "async_wrapper", "blockinfile", "command",
		"copy", "cron", "deb822_repository", "debconf", "debug", "dnf", "dnf5", "dpkg_selections", "expect", "fail", "fetch", "file",
		"find", "gather_facts", "get_url", "getent", "git", "group", "group_by", "hostname", "import_playbook", "import_role",
		"import_tasks", "include", "include_role", "include_tasks", "include_vars", "iptables", "known_hosts", "lineinfile", "meta",
		"mount_facts", "package", "package_facts", "pause", "ping", "pip", "raw", "reboot", "replace", "rpm_key", "script", "service",
		"service_facts", "set_fact", "set_stats", "setup", "shell", "slurp", "stat", "subversion", "systemd", "systemd_service",
		"sysvinit", "tempfile", "template", "unarchive", "uri", "user", "validate_argument_spec", "wait_for", "wait_for_connection",
		"yum", "yum_repository",
	}
}
