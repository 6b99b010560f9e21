// Package manifests makes a Helm chart and an OLM bundle out of an operator's
// manifests, as kustomize builds them. It knows the layout of operator-sdk's
// projects, and what a chart and a bundle consist of. Names, labels and permissions
// come from the manifests alone, so that all ways of installing are equivalent.
package manifests

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object.
type object map[string]any

// at returns the value at a path of keys. It returns nil if there is none, or if
// a value on the way is not an object.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[key]
	}
	return value
}

// text returns the string at a path; empty if there is none.
func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// part returns the object at a path, and creates it if it does not exist.
func (o object) part(path ...string) map[string]any {
	value := map[string]any(o)
	for _, key := range path {
		next, ok := value[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			value[key] = next
		}
		value = next
	}
	return value
}

func (o object) kind() string { return o.text("kind") }
func (o object) name() string { return o.text("metadata", "name") }

// decode returns the objects of a stream, in order.
func decode(stream []byte) ([]object, error) {
	var objects []object
	for text := range strings.SplitSeq("\n"+string(stream), "\n---\n") {
		o := object{}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if len(o) > 0 {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// naming holds the names that config/default/kustomization.yaml gives all objects.
type naming struct {
	// Operator is the label app.kubernetes.io/name.
	Operator, Namespace, NamePrefix string
}

// deploymentName is the name of the Deployment, without the prefix.
const deploymentName = "controller-manager"

// nameOf reads the names from the Deployment.
func nameOf(objects []object) (naming, error) {
	for _, o := range objects {
		prefix, ok := strings.CutSuffix(o.name(), deploymentName)
		if o.kind() != "Deployment" || !ok || prefix == "" {
			continue
		}
		n := naming{Operator: o.text("metadata", "labels", "app.kubernetes.io/name"), Namespace: o.text("metadata", "namespace"), NamePrefix: prefix}
		if n.Operator == "" || n.Namespace == "" {
			return n, fmt.Errorf("the Deployment %s needs a namespace, and the label app.kubernetes.io/name", o.name())
		}
		return n, nil
	}
	return naming{}, errors.New("there is no Deployment PREFIX-" + deploymentName + "; give what \"kubectl kustomize\" makes of config/default or config/manifests")
}

// operator returns the operator's container in the Deployment: the only one, or the one called manager.
func operator(deployment object) (map[string]any, error) {
	containers, _ := deployment.at("spec", "template", "spec", "containers").([]any)
	for _, c := range containers {
		container, ok := c.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("deployment %s: its container is not an object", deployment.name())
		}
		if len(containers) == 1 || container["name"] == "manager" {
			return container, nil
		}
	}
	return nil, fmt.Errorf("deployment %s has %d containers; one is expected, or one with the name manager", deployment.name(), len(containers))
}

// stringsOf returns the items of a list as strings.
func stringsOf(list any) []string {
	items, _ := list.([]any)
	var out []string
	for _, item := range items {
		out = append(out, fmt.Sprint(item))
	}
	return out
}
