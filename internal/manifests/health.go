package manifests

import (
	_ "embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed health.lua
var healthLua string

// HealthLua returns a health check in Lua for Argo CD, for objects that Rolewright runs.
func HealthLua() string { return healthLua }

// ArgoCDHealth returns Argo CD's ConfigMap with that health check for each of the kinds.
// Group and kind are names that Kubernetes allows.
func ArgoCDHealth(kinds []schema.GroupKind) string {
	var b strings.Builder
	b.WriteString(`---
# Health checks for Argo CD, written by rolewright generate health-lua. Add them to what is there:
# kubectl apply --server-side --namespace argocd --filename FILE
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  labels:
    app.kubernetes.io/name: argocd-cm
    app.kubernetes.io/part-of: argocd
data:
`)
	for _, k := range kinds {
		fmt.Fprintf(&b, "  resource.customizations.health.%s_%s: |\n", k.Group, k.Kind)
		for line := range strings.Lines(healthLua) {
			b.WriteString("    " + line)
		}
	}
	return b.String()
}
