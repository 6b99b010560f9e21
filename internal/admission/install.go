package admission

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"text/template"

	"github.com/rolewright/rolewright/internal/watches"
)

// Install describes the manifests, other than configurations, with which an operator that answers
// the API server is installed.
type Install struct {
	// Name begins the names of the operator's objects.
	Name, Namespace string
	// Label and LabelValue are the label of its Pods; app.kubernetes.io/name with Name if empty.
	Label, LabelValue string
	// CertManager makes cert-manager issue the certificate.
	CertManager bool

	// Configurations and Definitions are the names of the webhook configurations and
	// CustomResourceDefinitions into which the operator writes its authority.
	Configurations, Definitions []string
}

//go:embed install.yaml
var installText string

// Reach returns the Service that is installed.
func (i Install) Reach() Reach { return Reach{Namespace: i.Namespace, Service: i.Name + "-webhook"} }

// nameLabel is the label with the name of the operator; projectLabel is the label that the Pods
// of operator-sdk projects have instead, all with the same value.
const nameLabel, projectLabel = "app.kubernetes.io/name", "control-plane"

// Select chooses the label by which the Service selects Pods with the labels in pods. The note
// is for people; it may be empty.
func (i *Install) Select(pods map[string]string) (note string) {
	switch value := pods[projectLabel]; {
	case pods[nameLabel] == i.Name:
	case pods[nameLabel] == "" && value != "":
		i.Label, i.LabelValue = projectLabel, value
		return fmt.Sprintf("the Service %s-webhook selects the Pods with the label %s: %s: those of other operators from operator-sdk in the namespace have it, too; "+
			"to have several there, add the label %s: %s to the Pods", i.Name, projectLabel, value, nameLabel, i.Name)
	default:
		return fmt.Sprintf("the Service %s-webhook selects no Pod of the Deployment, which does not have the label %s: %s: add it to spec.template.metadata.labels",
			i.Name, nameLabel, i.Name)
	}
	return ""
}

// YAML returns the manifests for the watches.
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
