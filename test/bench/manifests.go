package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// variables is how many variables the workload manifests has.
const variables = 200

// deploymentHead and containerPiece make up templates of Deployments,
// configHead and configPiece templates of ConfigMaps. In a piece, @i stands for its number,
// and @t, @n, @b, @r, @o for five variables: text, number, boolean, a
// reference to text, an object.
const (
	deploymentHead = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: "{{ prefix }}-@k"
  labels: {{ own_labels | to_json }}
spec:
  replicas: 0
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      volumes: [{name: settings, emptyDir: {}}]
      containers:
`
	containerPiece = `      # container @i
      - name: c@i
        image: "example.com/{{ @t }}:{{ @n }}"
        imagePullPolicy: IfNotPresent
{% if @b | bool %}
        command:
        - /usr/bin/run
        - --level={{ @n }}
        - --name={{ @r }}
{% endif %}
        env:
        - name: NAME
          value: "{{ prefix }}"
        - name: SETTING
          value: {{ @r | default('none') | to_json }}
{% for n in range(2) %}
        - name: EXTRA_{{ n }}
          value: "{{ @t | upper }}"
{% endfor %}
        resources: {{ @o | to_json }}
        ports:
        - containerPort: {{ 8000 + @i }}
          name: port-@i
        volumeMounts:
        - mountPath: /etc/settings
          name: settings
          readOnly: true
{% if not @b | bool and @t | length > 3 %}
        securityContext:
          privileged: false
{% endif %}
`
	configHead = `apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ prefix }}-@k"
  labels: {{ own_labels | to_json }}
data:
`
	configPiece = `  part-@i.conf: |
    # part @i of {{ prefix }}
    name = {{ @t }}
    reference = {{ @r }}
    workers = {{ @n | int * 2 }}
{% if @b | bool %}
    mode = strict
    limit = {{ [@n | int, 50] | min }}
{% else %}
    mode = lax
{% endif %}
{% for key, value in @o | dictsort %}
    {{ key }}.memory = {{ value.memory }}
    {{ key }}.cpu = {{ value.cpu }}
{% endfor %}
    [log]
    level = {{ 'debug' if @b | bool else 'info' }}
    file = /var/log/{{ @t | lower | replace('value', 'log') }}
    format = %(asctime)s %(message)s
`
)

// writeManifests writes variables and templates of 300 to 1,000 lines into a role.
func writeManifests(role string) error {
	for _, dir := range []string{"defaults", "templates"} {
		if err := os.MkdirAll(filepath.Join(role, dir), 0o700); err != nil {
			return err
		}
	}
	var text strings.Builder
	for i := range variables / 5 {
		fmt.Fprintf(&text, "text_%[1]d: value-%[1]d\nnumber_%[1]d: %[1]d\ntruth_%[1]d: %[2]t\nreference_%[1]d: '{{ text_%[1]d }}-{{ number_%[1]d }}'\n", i, i%2 == 0)
		fmt.Fprintf(&text, "object_%d: {limits: {memory: %dMi, cpu: 500m}, requests: {memory: 32Mi, cpu: 10m}}\n", i, 64+i)
	}
	if err := os.WriteFile(filepath.Join(role, "defaults", "main.yml"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	for k, factor := range []int{10, 15, 21, 31} {
		for _, kind := range []struct {
			name, head, piece string
			pieces            int
		}{{"deployment", deploymentHead, containerPiece, factor}, {"config", configHead, configPiece, factor * 8 / 5}} {
			name := fmt.Sprintf("%s-%d", kind.name, k+1)
			text := strings.ReplaceAll(kind.head, "@k", name)
			for i := range kind.pieces {
				v := (i + 7*k) % (variables / 5)
				text += strings.NewReplacer("@i", fmt.Sprint(i), "@t", fmt.Sprintf("text_%d", v), "@n", fmt.Sprintf("number_%d", v),
					"@b", fmt.Sprintf("truth_%d", v), "@r", fmt.Sprintf("reference_%d", v), "@o", fmt.Sprintf("object_%d", v)).Replace(kind.piece)
			}
			if err := os.WriteFile(filepath.Join(role, "templates", name+".yaml.j2"), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
