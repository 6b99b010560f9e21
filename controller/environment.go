package controller

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// environment returns the variables that count as inputs: all that a run inherits, except
// those that describe the place where the operator runs and those that only the operator
// reads. Such variables differ between Pods, starts and shells, and a restart must not run
// every object. patterns are those in the watch's [watches.Inputs]; host is the name of the
// machine or Pod.
func environment(environ, patterns []string, host string) []string {
	var kept []string
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if ok && counts(name, value, patterns, host) {
			kept = append(kept, entry)
		}
	}
	slices.Sort(kept)
	return slices.Compact(kept)
}

func counts(name, value string, patterns []string, host string) bool {
	for _, pattern := range slices.Backward(patterns) {
		pattern, not := strings.CutPrefix(pattern, "-")
		if match, _ := path.Match(pattern, name); match { // patterns were checked when they were read
			return !not
		}
	}
	return !ofThePlace(name, value, host) && !ofTheOperator(name)
}

// ofThePlace reports whether a variable describes a Pod, a shell, a terminal or an init system:
// its name is in the lists, or its value contains the name of the machine or Pod. Agents and the
// downward API set the latter under arbitrary names.
func ofThePlace(name, value, host string) bool {
	switch name {
	case "HOSTNAME", "POD_NAME", "POD_IP", "POD_IPS", "POD_UID", "NODE_NAME", "NODE_IP", "HOST_IP", "OPERATOR_CONDITION_NAME",
		"HOME", "USER", "LOGNAME", "USERNAME", "MAIL", "SHELL", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "TMP", "TEMP",
		"TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES", "LS_COLORS", "LESS", "PAGER", "EDITOR", "VISUAL", "PS1", "PROMPT_COMMAND",
		"DISPLAY", "WAYLAND_DISPLAY", "WINDOWID", "WINDOW", "STY", "SESSION_MANAGER", "DESKTOP_SESSION", "KUBECONFIG", "K8S_AUTH_KUBECONFIG",
		"INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "MAINPID", "MANAGERPID",
		"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT":
		return true
	}
	for _, suffix := range []string{"_POD_NAME", "_POD_IP", "_POD_UID", "_NODE_NAME", "_NODE_IP", "_HOST_IP"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	for _, prefix := range []string{
		"KUBERNETES_", "SYSTEMD_", "LISTEN_", "MEMORY_PRESSURE_", "OTEL_", "DD_", "SSH_", "XDG_", "DBUS_", "GPG_", "TERM_",
		"TMUX", "VTE_", "VSCODE_", "KITTY_", "ITERM_", "GNOME_", "KDE_", "KONSOLE_", "WSL_", "SUDO_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	const shortest = 10 // shorter names of hosts may be in a value by chance
	return len(host) >= shortest && strings.Contains(value, host) ||
		serviceLink.MatchString(name) || servicePort.MatchString(name) && strings.Contains(value, "://")
}

// Kubernetes tells each Pod the addresses of the services that its namespace has when the
// Pod starts: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
var (
	serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
	servicePort = regexp.MustCompile(`_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
)

// ofTheOperator reports whether a variable affects only the operator, not what a run
// does.
func ofTheOperator(name string) bool {
	switch name {
	case "WATCH_NAMESPACE", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR", "GORACE":
		return true
	}
	prefixes := []string{"ROLEWRIGHT_", "MAX_CONCURRENT_RECONCILES_", "ANSIBLE_VERBOSITY", "ANSIBLE_DEBUG"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
