package tasks

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/rolewright/rolewright/internal/chartdir"
	"github.com/rolewright/rolewright/test/must"
)

// OfChart finds the kinds of all branches, hooks and CRDs. What cannot be known from the text is a gap.
func TestOfChart(t *testing.T) {
	t.Parallel()
	const verbs = " create,delete,get,list,patch,update,watch +"
	dir := written(t, map[string]string{
		"Chart.yaml":                        "name: shop\n# rolewright:rbac batch jobs list\n",
		"templates/NOTES.txt":               "kind: Note\n",
		"templates/_helpers.tpl":            "{{- define \"name\" -}}{{ .Release.Name }}{{- end }}\n{{/* lookup \"v1\" \"No\" */}}\n{{ if (lookup \"v1\" \"Secret\" .x .y) }}{{ end }}\n{{ lookup .a \"Pod\" }}\n",
		"templates/tests/test.yaml":         "apiVersion: v1\nkind: Pod\n",
		"templates/service.yaml":            "{{- if .Values.on }}\n{{- /*\nkind: No\n*/}}\napiVersion: v1\nkind: \"Service\" # one\nspec:\n  kind: Inner\n{{- end }}\n---\n{{ if .x }}apiVersion: apps/v1\n{{ else }}\napiVersion: extensions/v1beta1\n{{ end }}\nkind: Deployment\n",
		"templates/hook.yaml":               "apiVersion: {{ include \"job\" . }}\nkind: Job\n",
		"templates/any.yaml":                "apiVersion: apps/v1\nkind: {{ .Values.workload.kind | quote }}\n---\napiVersion: apps/v1\nkind: {{ ternary .x .y }}\n",
		"templates/extra.yaml":              "{{- range .Values.extra }}\n---\n{{ tpl (toYaml .) $ }}\n{{- end }}\n",
		"templates/said.yaml":               "# rolewright:rbac core pods get\n{{ tpl .Values.x . }}\n",
		"charts/db/templates/sub/set.yaml":  "apiVersion: apps/v1\nkind: StatefulSet\n",
		"crds/cup.yaml":                     "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  names:\n    kind: Cup\n",
		"files/not-a-template/manifest.yml": "kind: No\n",
	})
	c := must.Get(chartdir.Read(dir))(t)
	got := lines(dir, must.Get(OfChart(c, filepath.ToSlash(dir), false))(t))
	want := []string{
		"charts/db/templates/sub/set.yaml:2 apps/v1 StatefulSet" + verbs,
		"crds/cup.yaml:2 apiextensions.k8s.io/v1 CustomResourceDefinition" + verbs,
		"templates/_helpers.tpl:3 v1 Secret get,list",
		"templates/hook.yaml:2 v1 Job" + verbs,
		"templates/service.yaml:6 v1 Service" + verbs,
		"templates/service.yaml:15 apps/v1 Deployment" + verbs,
		"templates/service.yaml:15 extensions/v1beta1 Deployment" + verbs,
		"Chart.yaml = \"batch\" jobs list",
		"templates/said.yaml = \"\" pods get",
		"? templates/_helpers.tpl:4 the kind that lookup reads is not literal",
		"? templates/any.yaml:2 the kind is not literal: {{ .Values.workload.kind | quote }}",
		"? templates/any.yaml:5 the kind is not literal: {{ ternary .x .y }}",
		"? templates/extra.yaml:3 this document has no literal kind",
	}
	must.Be(t, "what was got", want, got)

	got = lines(dir, must.Get(OfChart(c, filepath.ToSlash(dir), true))(t))
	must.Be(t, "what was got with tests", slices.Insert(want, 7, "templates/tests/test.yaml:2 v1 Pod"+verbs), got)
}
