package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// deployment turns the parts that differ from cluster to cluster into values.
func (c *charter) deployment(o object) error {
	container, err := operator(o)
	if err != nil {
		return err
	}
	if len(named(o)) < 3 {
		return errors.New("its labels, its selector and the labels of its Pods need app.kubernetes.io/name, by which Services and policies find the Pods of a release")
	}
	pod := o.part("spec", "template", "spec")
	o.part("spec")["replicas"] = c.say("{{ .Values.replicas }}")
	c.more(o.part("spec", "template", "metadata", "annotations"), "podAnnotations")
	c.more(o.part("spec", "template", "metadata", "labels"), "podLabels")
	pod["serviceAccountName"] = c.say(`{{ include "serviceAccount" . }}`)
	pod["terminationGracePeriodSeconds"] = c.say("{{ .Values.terminationGracePeriodSeconds }}")
	for _, name := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "affinity"} {
		pod[c.block("{{- with .Values."+name+" }}", name+":", "  {{- toYaml . | nindent +2 }}", "{{- end }}")] = ""
	}
	pod[c.block("{{- with .Values.priorityClassName }}", "priorityClassName: {{ . }}", "{{- end }}")] = ""

	container["image"] = c.say(`{{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}`)
	container[c.block("{{- with .Values.image.pullPolicy }}", "imagePullPolicy: {{ . }}", "{{- end }}")] = ""
	delete(container, "resources")
	container[c.block("resources:", "  {{- toYaml .Values.resources | nindent +2 }}")] = ""
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes { // projects of operator-sdk have none
		volume, _ := v.(map[string]any)
		work, ok := volume["emptyDir"].(map[string]any)
		if !ok || len(volumes) > 1 && volume["name"] != "work" {
			continue
		}
		work["sizeLimit"] = c.say("{{ .Values.work.sizeLimit }}")
		work[c.block("{{- with .Values.work.medium }}", "medium: {{ . }}", "{{- end }}")] = ""
		break
	}
	if err := c.arguments(container); err != nil {
		return err
	}
	return c.environment(container)
}

// watchNamespace is the variable with the namespaces that are watched.
const watchNamespace = "WATCH_NAMESPACE"

// environment lets a value set the namespaces; without the value, the variable stays as it was.
// It also adds the variables of another value.
func (c *charter) environment(container map[string]any) error {
	env, _ := container["env"].([]any)
	isWatched := func(v any) bool {
		variable, _ := v.(map[string]any)
		return variable["name"] == watchNamespace
	}
	lines := []string{"{{- with .Values.watchNamespaces }}", "- name: " + watchNamespace, `  value: {{ join "," . | quote }}`}
	if i := slices.IndexFunc(env, isWatched); i >= 0 {
		own, err := yaml.Marshal(env[i : i+1])
		if err != nil {
			return err
		}
		lines = slices.Concat(lines, []string{"{{- else }}"}, strings.Split(strings.TrimSpace(string(own)), "\n"))
	}
	env = slices.DeleteFunc(slices.Clone(env), isWatched)
	container["env"] = append(env, c.block(append(lines, "{{- end }}")...), c.items("env"))
	return nil
}

// more adds the entries of a value to a mapping.
func (c *charter) more(entries map[string]any, value string) {
	entries[c.block("{{- with .Values."+value+" }}", "{{- toYaml . | nindent +0 }}", "{{- end }}")] = ""
}

// items returns an item that stands for the items of a value.
func (c *charter) items(value string) string {
	return c.block("{{- with .Values."+value+" }}", "{{- toYaml . | nindent +0 }}", "{{- end }}")
}

// runsService is the Service by which Pods of runs find the operator, without the prefix.
const runsService = "runs"

// argued tells whether the operator's arguments are set up for runs as Jobs.
func argued(objects []object) bool {
	return slices.ContainsFunc(objects, func(o object) bool {
		container, err := operator(o)
		return err == nil && slices.ContainsFunc(stringsOf(container["args"]), func(arg string) bool {
			return arg == "--executor=job" || strings.HasPrefix(arg, "--job-url=")
		})
	})
}

// replicasOf returns how many replicas the operator has.
func replicasOf(objects []object) string {
	for _, o := range objects {
		if replicas := o.at("spec", "replicas"); replicas != nil {
			if _, err := operator(o); err == nil {
				return fmt.Sprint(replicas)
			}
		}
	}
	return "1"
}

// arguments makes the arguments about metrics depend on a value, names the Lease after the
// release, says where Pods of runs find the operator, and adds the arguments of a value.
func (c *charter) arguments(container map[string]any) error {
	args := stringsOf(container["args"])
	metrics := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "--metrics-") })
	if len(metrics) == 0 {
		return errors.New("it has no arguments about metrics, such as --metrics-bind-address=:8443")
	}
	lines := []string{"{{- if .Values.metrics.enabled }}"}
	for _, arg := range metrics {
		lines = append(lines, "- "+arg)
	}
	out := []any{c.block(append(lines, "{{- else }}", "- --metrics-bind-address=0", "{{- end }}")...)}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case slices.Contains(metrics, arg), name == "--job-url": // below
			continue
		case name == "--leader-election-id" && value+"-" == c.NamePrefix:
			arg = name + "=" + c.say("{{ .Release.Name }}")
		}
		out = append(out, arg)
	}
	container["args"] = append(out,
		c.block("{{- if .Values.jobs.enabled }}", "- --job-url=https://{{ .Release.Name }}-"+runsService+".{{ .Release.Namespace }}.svc:8444", "{{- end }}"), c.items("args"))
	return nil
}
