package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/config"
)

// charter turns objects into templates.
type charter struct {
	naming
	// words are placeholders in objects for what a template does there.
	words []word
}

// word is a placeholder. It is replaced by an action, or the line that it stands on is replaced by lines.
type word struct {
	text, action string
	lines        []string
}

// Chart returns the files of a chart for the objects of the stream, with paths
// relative to the chart. own are chart sources that are written by hand, such as
// Chart.yaml and values.yaml; it may be nil. The chart enables runs as Jobs by default
// if jobs is set, or if the operator's arguments are set up for them.
func Chart(stream []byte, version string, own fs.FS, jobs bool) (map[string][]byte, error) {
	objects, err := decode(stream)
	if err != nil {
		return nil, err
	}
	n, err := nameOf(objects)
	if err != nil {
		return nil, err
	}
	c := &charter{naming: n}
	files, err := sources(n, version, own, jobs || argued(objects), replicasOf(objects))
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"prometheus", "network-policy", "network-policy-egress", "jobs"} {
		more, err := Common(dir, n.Operator)
		if err != nil {
			return nil, err
		}
		added, err := decode(more)
		if err != nil {
			return nil, err
		}
		for _, o := range added { // as config/default would do
			o.part("metadata")["name"] = c.NamePrefix + o.name()
			o.part("metadata")["namespace"] = c.Namespace
		}
		objects = append(objects, added...)
	}
	for _, o := range objects {
		if o.kind() == "Namespace" {
			continue // the release's namespace exists before the chart
		}
		name := strings.TrimPrefix(o.name(), c.NamePrefix)
		if name == "manager-role-jobs" {
			continue // as "rolewright generate rbac" writes it; jobs-role grants the same
		}
		text, err := c.template(o, name)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.kind(), name, err)
		}
		files["templates/"+strings.ToLower(o.kind())+"-"+name+".yaml"] = text
	}
	for _, name := range config.Dashboards() {
		if files["files/dashboards/"+name+".json"], err = config.Files.ReadFile("grafana/" + name + ".json"); err != nil {
			return nil, err
		}
	}
	files["templates/configmap-dashboard.yaml"] = []byte(dashboardTemplate)
	return files, nil
}

// Common returns the manifests in a directory of [config.Files], for the operator with
// this name: for prometheus, network policies and jobs.
func Common(dir, operator string) ([]byte, error) {
	entries, err := config.Files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, e := range entries {
		if e.Name() == "kustomization.yaml" {
			continue
		}
		data, err := config.Files.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, bytes.ReplaceAll(data, []byte(config.Name), []byte(operator)))
	}
	return bytes.Join(all, nil), nil
}

const dashboardTemplate = `{{- if .Values.metrics.dashboard.enabled }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-dashboard
  namespace: {{ .Release.Namespace }}
  {{- with .Values.metrics.dashboard.labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{- range $file, $_ := .Files.Glob "files/dashboards/*.json" }}
  rolewright-{{ base $file }}: {{ $.Files.Get $file | toJson }}
  {{- end }}
{{- end }}
`

// sources returns the chart's files that are not templates of objects: the ones in own, and
// otherwise those of all operators.
func sources(n naming, version string, own fs.FS, jobs bool, replicas string) (map[string][]byte, error) {
	chart, err := fs.Sub(config.Files, "chart")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if err := collect(chart, files); err != nil {
		return nil, err
	}
	if files["Chart.yaml"], err = yaml.Marshal(map[string]any{
		"apiVersion": "v2", "name": strings.TrimSuffix(n.NamePrefix, "-"), "type": "application",
		"description": "The operator " + n.Operator, "version": version, "appVersion": version,
	}); err != nil {
		return nil, err
	}
	if jobs {
		files["values.yaml"] = bytes.Replace(files["values.yaml"], []byte("\njobs:\n  enabled: false\n"), []byte("\njobs:\n  enabled: true\n"), 1)
	}
	files["values.yaml"] = bytes.Replace(files["values.yaml"], []byte("\nreplicas: 1\n"), []byte("\nreplicas: "+replicas+"\n"), 1)
	files["templates/NOTES.txt"] = []byte("The operator is installed in the namespace {{ .Release.Namespace }}.\n")
	if own == nil {
		return files, nil
	}
	return files, collect(own, files)
}

// collect adds the files of a directory.
func collect(dir fs.FS, files map[string][]byte) error {
	return fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(dir, name)
		return err
	})
}

// say returns a placeholder for an action.
func (c *charter) say(action string) string { return c.add(word{action: action}) }

// block returns a placeholder for lines of a template, for use as a key or as an
// item of a list. The lines get the indentation of the placeholder; "nindent +2" in them
// adds 2 to it.
func (c *charter) block(lines ...string) string { return c.add(word{lines: lines}) }

func (c *charter) add(w word) string {
	w.text = fmt.Sprintf("zz\u00ab%d\u00bb", len(c.words)) // no manifest contains these characters; as a key it sorts last
	c.words = append(c.words, w)
	return w.text
}

// template returns the template of an object. name is the name of the object
// without the prefix.
func (c *charter) template(o object, name string) ([]byte, error) {
	if o.kind() != "CustomResourceDefinition" && !isPolicy(o) { // their names belong to kinds
		o.part("metadata")["name"] = c.released(o.name())
	}
	if o.text("metadata", "namespace") == c.Namespace {
		o.part("metadata")["namespace"] = c.say("{{ .Release.Namespace }}")
	}
	if role := o.text("roleRef", "name"); role != "" {
		o.part("roleRef")["name"] = c.released(role)
		subjects, _ := o["subjects"].([]any)
		for _, s := range subjects {
			subject, ok := s.(map[string]any)
			if !ok {
				return nil, errors.New("a subject is not an object")
			}
			subject["name"] = c.say(`{{ include "serviceAccount" . }}`)
			subject["namespace"] = c.say("{{ .Release.Namespace }}")
		}
	}
	c.instances(o)
	condition, err := c.special(o, name)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	text = c.replaceWords(text)
	if o.kind() == "ClusterRoleBinding" && name == "manager-rolebinding" {
		text = perNamespace(text)
	}
	if condition != "" {
		text = fmt.Appendf(nil, "{{- if %s }}\n%s{{- end }}\n", condition, text)
	}
	return text, nil
}

// isPolicy tells whether "rolewright generate webhooks" has written an object.
func isPolicy(o object) bool {
	return strings.HasPrefix(o.kind(), "ValidatingAdmissionPolicy") || strings.HasPrefix(o.kind(), "MutatingAdmissionPolicy")
}

// instance is the label that distinguishes the releases in one namespace.
const instance = "app.kubernetes.io/instance"

// instances adds that label wherever the operator's name is a label.
func (c *charter) instances(o object) {
	for _, labels := range named(o) {
		labels[instance] = c.say("{{ .Release.Name | quote }}")
	}
}

// named returns the labels and selectors of an object that contain the operator's name.
func named(o object) []map[string]any {
	var found []map[string]any
	for _, path := range [][]string{
		{"metadata", "labels"}, {"spec", "selector"}, {"spec", "selector", "matchLabels"}, {"spec", "podSelector", "matchLabels"},
		{"spec", "template", "metadata", "labels"},
	} {
		if labels, ok := o.at(path...).(map[string]any); ok && labels["app.kubernetes.io/name"] != nil {
			found = append(found, labels)
		}
	}
	return found
}

// released returns a name that begins with the name of the release.
func (c *charter) released(name string) string {
	return c.say("{{ .Release.Name }}") + "-" + strings.TrimPrefix(name, c.NamePrefix)
}

// replaceWords replaces the placeholders, and escapes what would be a template by
// accident.
func (c *charter) replaceWords(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("{{"), []byte(`{{ "{{" }}`))
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		key := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "- "), `: ""`)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for _, w := range c.words {
			if key == w.text && w.lines != nil {
				line = w.indented(indent)
			}
			line = strings.ReplaceAll(line, w.text, w.action)
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}

// indented returns the lines of a block with an indentation.
func (w word) indented(indent int) string {
	var out strings.Builder
	for _, line := range w.lines {
		for n := range 9 {
			line = strings.Replace(line, fmt.Sprintf("nindent +%d", n), fmt.Sprintf("nindent %d", indent+n), 1)
		}
		out.WriteString(strings.Repeat(" ", indent) + line + "\n")
	}
	return out.String()
}

// special fills in what values determine, and returns the condition for the whole
// object; empty if there is none.
func (c *charter) special(o object, name string) (condition string, err error) {
	metadata := o.part("metadata")
	switch o.kind() {
	case "CustomResourceDefinition":
		metadata[c.block("{{- if .Values.crds.keep }}", "annotations:", "  helm.sh/resource-policy: keep", "{{- end }}")] = ""
		return ".Values.crds.install", nil
	case "ServiceAccount":
		metadata["name"] = c.say(`{{ include "serviceAccount" . }}`)
		metadata[c.block("{{- with .Values.serviceAccount.annotations }}", "annotations:", "  {{- toYaml . | nindent +2 }}", "{{- end }}")] = ""
		return ".Values.serviceAccount.create", nil
	case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		switch {
		case strings.HasPrefix(name, "metrics-auth-"), strings.HasPrefix(name, "proxy-"), strings.HasPrefix(name, "manager-"), strings.HasPrefix(name, "leader-election-"):
			// metrics-auth-role is for the readers of runs, too; proxy-role is for kube-rbac-proxy.
			return ".Values.rbac.create", nil
		case strings.HasPrefix(name, "metrics-"):
			return "and .Values.rbac.create .Values.metrics.enabled", nil
		case strings.HasPrefix(name, "jobs-"):
			return "and .Values.rbac.create .Values.jobs.enabled", nil
		}
		return ".Values.rbac.userRoles", nil
	case "Service":
		if name == runsService {
			return ".Values.jobs.enabled", nil
		}
		return ".Values.metrics.enabled", nil
	case "ServiceMonitor":
		o.part("spec")["jobLabel"] = instance
		c.more(o.part("metadata", "labels"), "metrics.serviceMonitor.labels")
		return "and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled", nil
	case "PrometheusRule":
		c.more(o.part("metadata", "labels"), "metrics.prometheusRule.labels")
		return "and .Values.metrics.enabled .Values.metrics.prometheusRule.enabled", c.rules(o)
	case "NetworkPolicy":
		switch name {
		case "limit-egress":
			return ".Values.networkPolicy.egress.enabled", c.egress(o)
		case "runs": // for the Pods of runs
			return ".Values.jobs.enabled", nil
		case "allow-runs":
			return "and .Values.networkPolicy.enabled .Values.jobs.enabled", nil
		}
		return ".Values.networkPolicy.enabled", nil
	case "Deployment":
		return "", c.deployment(o)
	case "PodDisruptionBudget": // for replicas that share the objects
		return "", nil
	}
	if isPolicy(o) {
		return ".Values.crds.install", nil // they belong to the kinds, not to a release
	}
	return "", errors.New("charts do not support this kind; remove it from what kustomize builds")
}

// rules makes rules select the series of the release, so that another release of the chart does not hide that this one
// is down.
func (c *charter) rules(o object) error {
	release := fmt.Sprintf("job=%q, namespace=%q", c.say("{{ .Release.Name }}"), c.say("{{ .Release.Namespace }}"))
	groups, _ := o.at("spec", "groups").([]any)
	for _, g := range groups {
		group, ok := g.(map[string]any)
		if !ok {
			return errors.New("a group of rules is not an object")
		}
		rules, _ := group["rules"].([]any)
		for _, r := range rules {
			rule, ok := r.(map[string]any)
			if !ok {
				return errors.New("a rule is not an object")
			}
			rule["expr"] = strings.ReplaceAll(fmt.Sprint(rule["expr"]), fmt.Sprintf("job=%q", c.Operator), release)
		}
	}
	return nil
}

// egress makes the API server's addresses and further rules configurable by values.
func (c *charter) egress(o object) error {
	rules, _ := o.at("spec", "egress").([]any)
	if len(rules) != 2 {
		return errors.New("it has other rules than those for DNS and the API server")
	}
	rule, ok := rules[1].(map[string]any)
	if !ok {
		return errors.New("a rule is not an object")
	}
	rule[c.block("{{- with .Values.networkPolicy.egress.apiServer }}", "to:",
		"{{- range . }}", "- ipBlock:", "    cidr: {{ . }}", "{{- end }}", "{{- end }}")] = ""
	o.part("spec")["egress"] = append(rules, c.items("networkPolicy.egress.more"))
	return nil
}

// perNamespace binds the operator's role in the watched namespaces only, if there
// are any.
func perNamespace(text []byte) []byte {
	one := strings.Replace(string(text), "kind: ClusterRoleBinding", "kind: RoleBinding", 1)
	one = strings.Replace(one, "\nmetadata:\n", "\nmetadata:\n  namespace: {{ . }}\n", 1)
	one = strings.NewReplacer(".Release", "$.Release", "include \"serviceAccount\" .", "include \"serviceAccount\" $").Replace(one)
	return fmt.Appendf(nil, "{{- range .Values.watchNamespaces }}\n---\n%s{{- else }}\n%s{{- end }}\n", one, text)
}
