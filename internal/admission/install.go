package admission

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"text/template"

	"github.com/rolewright/rolewright/internal/watches"
)

// Install is what an operator that answers the API server is installed with, beside its
// configurations.
type Install struct {
	// Name is the operator's: the label app.kubernetes.io/name of its Pods, and what the
	// names of its objects begin with.
	Name, Namespace string
	// CertManager has cert-manager make the certificate.
	CertManager bool

	// Configurations and Definitions are the names of those that the operator writes its
	// authority into.
	Configurations, Definitions []string
}

//go:embed install.yaml
var installText string

// Reach is by the Service that is installed.
func (i Install) Reach() Reach { return Reach{Namespace: i.Namespace, Service: i.Name + "-webhook"} }

// YAML are the manifests for the watches.
func (i Install) YAML(watched []watches.Watch, resource Namer) ([]byte, error) {
	for _, w := range watched {
		if !w.Webhooks.NeedServer() {
			continue
		}
		plural, err := resource(w.GVK)
		if err != nil {
			return nil, err
		}
		name := ConfigurationName(w.GVK.GroupKind(), plural)
		if len(w.Webhooks.Conversion) > 0 {
			i.Definitions = append(i.Definitions, name)
		}
		if len(Hooks([]watches.Watch{w})) > 0 && !slices.Contains(i.Configurations, name) {
			i.Configurations = append(i.Configurations, name)
		}
	}
	t, err := template.New("install.yaml").Parse(installText)
	if err != nil {
		return nil, fmt.Errorf("manifests of the server: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, i); err != nil {
		return nil, fmt.Errorf("manifests of the server: %w", err)
	}
	return out.Bytes(), nil
}
