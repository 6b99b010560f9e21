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
	// Name is what the names of the operator's objects begin with.
	Name, Namespace string
	// Label and LabelValue are those of its Pods; app.kubernetes.io/name with Name if empty.
	Label, LabelValue string
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

// nameLabel has the name of the operator; projectLabel is what the Pods of projects of
// operator-sdk have instead, all with the same value.
const nameLabel, projectLabel = "app.kubernetes.io/name", "control-plane"

// Select chooses the label by which the Service finds Pods with these labels. The note is for
// people; it may be empty.
func (i *Install) Select(pods map[string]string) (note string) {
	switch value := pods[projectLabel]; {
	case pods[nameLabel] == i.Name:
	case pods[nameLabel] == "" && value != "":
		i.Label, i.LabelValue = projectLabel, value
		return fmt.Sprintf("the Service %s-webhook selects the Pods with the label %s: %s: those of other operators from operator-sdk in the namespace have it, too; "+
			"to have several there, add the label %s: %s to the Pods", i.Name, projectLabel, value, nameLabel, i.Name)
	default:
		return fmt.Sprintf("the Service %s-webhook selects no Pod of the Deployment, which has not the label %s: %s: add it to spec.template.metadata.labels",
			i.Name, nameLabel, i.Name)
	}
	return ""
}

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
	if i.Label == "" {
		i.Label, i.LabelValue = nameLabel, i.Name
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
