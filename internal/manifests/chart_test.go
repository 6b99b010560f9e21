package manifests

import (
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// Projects of operator-sdk have a proxy for metrics beside the operator and no volume, and may say which namespace to
// watch.
func TestChart_OfAProjectOfOperatorSDK(t *testing.T) {
	t.Parallel()
	const stream = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop-controller-manager, namespace: shop, labels: {app.kubernetes.io/name: shop}}, spec: {
  selector: {matchLabels: {app.kubernetes.io/name: shop}}, template: {metadata: {labels: {app.kubernetes.io/name: shop}}, spec: {
  containers: [{name: kube-rbac-proxy, image: proxy}, {name: manager, image: shop, args: [--metrics-bind-address=127.0.0.1:8080], env: [
    {name: WATCH_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: OTHER, value: a}]}],
  volumes: [{name: cert, secret: {secretName: cert}}, {name: work, emptyDir: {}}]}}}}
`
	files := must.Get(Chart([]byte(stream), "0.1.0", nil, false))(t)
	text := string(files["templates/deployment-controller-manager.yaml"])
	for _, want := range []string{"- image: proxy\n", "- name: cert\n        secret:\n          secretName: cert\n", "sizeLimit: {{ .Values.work.sizeLimit }}", `
        - name: OTHER
          value: a
        {{- with .Values.watchNamespaces }}
        - name: WATCH_NAMESPACE
          value: {{ join "," . | quote }}
        {{- else }}
        - name: WATCH_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        {{- end }}
`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	several := strings.Replace(stream, "spec: {\n", "spec: {replicas: 3,\n", 1)
	if files = must.Get(Chart([]byte(several), "0.1.0", nil, false))(t); !strings.Contains(string(files["values.yaml"]), "\nreplicas: 3\n") {
		t.Error("the chart has not as many replicas as the Deployment")
	}
	const budget = "---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: shop-controller-manager}, spec: {selector: {matchLabels: {app.kubernetes.io/name: shop}}}}\n"
	files = must.Get(Chart([]byte(stream+budget), "0.1.0", nil, false))(t)
	if text := string(files["templates/poddisruptionbudget-controller-manager.yaml"]); !strings.Contains(text, "app.kubernetes.io/instance: {{ .Release.Name ") {
		t.Errorf("the budget is not for the Pods of the release:\n%s", text)
	}
	if _, err := Chart([]byte(strings.Replace(stream, "selector: {matchLabels: {app.kubernetes.io/name: shop}}", "selector: {matchLabels: {control-plane: x}}", 1)), "0.1.0", nil, false); err == nil || !strings.Contains(err.Error(), "its selector") {
		t.Error(err)
	}
	if _, err := Chart([]byte(strings.Replace(stream, "name: manager", "name: other", 1)), "0.1.0", nil, false); err == nil || !strings.Contains(err.Error(), "or one with the name manager") {
		t.Error(err)
	}
}
