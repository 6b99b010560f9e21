package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// channel is where the bundle is offered.
const channel = "candidate"

// bundler fills in the ClusterServiceVersion.
type bundler struct {
	csv, deployment object
	samples         []object
	owned           []object
	// roles and bound are by name: the rules, and the names of those that are bound
	// to the operator's service account, with the kind of the binding.
	roles map[string]object
	bound map[string]string
	// rest are the manifests beside the ClusterServiceVersion.
	rest []object
}

// bundle returns the files of the OLM bundle: those of bundle/, and the
// Dockerfile of its image. image is the operator's; empty for that of config/.
func bundle(k kustomize, image string) (map[string][]byte, error) {
	n, err := k.naming()
	if err != nil {
		return nil, err
	}
	version, err := k.version()
	if err != nil {
		return nil, err
	}
	objects, err := k.build("manifests")
	if err != nil {
		return nil, err
	}
	b := &bundler{roles: map[string]object{}, bound: map[string]string{}}
	if err := b.sort(objects); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(n.NamePrefix, "-")
	if err := b.fill(name, version, image); err != nil {
		return nil, err
	}
	annotations := map[string]string{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         name,
		"operators.operatorframework.io.bundle.channels.v1":        channel,
		"operators.operatorframework.io.bundle.channel.default.v1": channel,
	}
	files := map[string][]byte{"bundle.Dockerfile": dockerfile(annotations)}
	if files["bundle/metadata/annotations.yaml"], err = yaml.Marshal(map[string]any{"annotations": annotations}); err != nil {
		return nil, fmt.Errorf("encode the annotations: %w", err)
	}
	for _, o := range append(b.rest, b.csv) {
		file := o.name() + "." + strings.ToLower(o.kind()) + ".yaml"
		if o.kind() == b.csv.kind() {
			file = name + ".clusterserviceversion.yaml"
		}
		if files["bundle/manifests/"+file], err = yaml.Marshal(o); err != nil {
			return nil, fmt.Errorf("encode %s: %w", file, err)
		}
	}
	return files, nil
}

// version is the chart's, so that there is one.
func (k kustomize) version() (string, error) {
	data, err := k.read("chart/Chart.yaml")
	if err != nil {
		return "", err
	}
	var chart struct {
		Version string `json:"version"`
	}
	if err := yaml.Unmarshal(data, &chart); err != nil || chart.Version == "" {
		return "", errors.Join(errors.New("config/chart/Chart.yaml: set version"), err)
	}
	return chart.Version, nil
}

// sort tells what becomes of each object.
func (b *bundler) sort(objects []object) error {
	for _, o := range objects {
		delete(o.part("metadata"), "namespace") // OLM decides it
		switch o.kind() {
		case "ClusterServiceVersion":
			b.csv = o
		case "Deployment":
			b.deployment = o
		case "Namespace", "ServiceAccount":
			// OLM makes them.
		case "Role", "ClusterRole":
			b.roles[o.name()] = o
		case "RoleBinding", "ClusterRoleBinding":
			b.bound[o.text("roleRef", "name")] = o.kind()
		case "CustomResourceDefinition":
			b.owned = append(b.owned, o)
			b.rest = append(b.rest, o)
		case "Service":
			b.rest = append(b.rest, o)
		default:
			b.samples = append(b.samples, o)
		}
	}
	for _, name := range sortedKeys(b.roles) {
		if b.bound[name] == "" {
			b.rest = append(b.rest, b.roles[name])
		}
	}
	if b.csv == nil || b.deployment == nil {
		return errors.New("config/manifests needs a ClusterServiceVersion and a Deployment")
	}
	return nil
}

func sortedKeys(m map[string]object) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// fill completes the ClusterServiceVersion.
func (b *bundler) fill(name, version, image string) error {
	container, err := operator(b.deployment)
	if err != nil {
		return err
	}
	if image != "" {
		container["image"] = image
	}
	env, _ := container["env"].([]any)
	// The namespaces of the OperatorGroup; empty for all.
	container["env"] = append(env, map[string]any{"name": "WATCH_NAMESPACE", "valueFrom": map[string]any{
		"fieldRef": map[string]any{"fieldPath": "metadata.annotations['olm.targetNamespaces']"},
	}})
	examples, err := json.MarshalIndent(b.samples, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the examples: %w", err)
	}
	b.csv.part("metadata")["name"] = name + ".v" + version
	about := b.csv.part("metadata", "annotations")
	about["alm-examples"] = string(examples)
	about["containerImage"] = container["image"]
	spec := b.csv.part("spec")
	spec["version"] = version
	if err := b.kinds(); err != nil {
		return err
	}
	account := b.deployment.text("spec", "template", "spec", "serviceAccountName")
	install := b.csv.part("spec", "install", "spec")
	install["deployments"] = []any{map[string]any{
		"name": b.deployment.name(), "label": b.deployment.at("metadata", "labels"), "spec": b.deployment["spec"],
	}}
	install["clusterPermissions"] = b.permissions(account, "ClusterRoleBinding")
	install["permissions"] = b.permissions(account, "RoleBinding")
	return nil
}

// permissions are the rules of the roles that have a binding of a kind.
func (b *bundler) permissions(account, binding string) []any {
	var rules []any
	for _, name := range sortedKeys(b.roles) {
		if b.bound[name] == binding {
			rules = append(rules, b.roles[name]["rules"].([]any)...)
		}
	}
	return []any{map[string]any{"serviceAccountName": account, "rules": rules}}
}

// kinds checks that the ClusterServiceVersion describes all versions of all kinds,
// and none that does not exist.
func (b *bundler) kinds() error {
	said := map[string]bool{}
	list, _ := b.csv.at("spec", "customresourcedefinitions", "owned").([]any)
	for _, item := range list {
		o := object(item.(map[string]any))
		said[o.text("name")+"/"+o.text("version")+" "+o.text("kind")] = true
	}
	for _, crd := range b.owned {
		for _, v := range crd.at("spec", "versions").([]any) {
			id := crd.name() + "/" + object(v.(map[string]any)).text("name") + " " + crd.text("spec", "names", "kind")
			if !said[id] {
				return fmt.Errorf("config/manifests/bases: describe %s under customresourcedefinitions.owned", id)
			}
			delete(said, id)
		}
	}
	for id := range said {
		return fmt.Errorf("config/manifests/bases: customresourcedefinitions.owned has %s, and there is no CustomResourceDefinition for it", id)
	}
	return nil
}

// dockerfile is that of the bundle's image, which has files and labels only.
func dockerfile(annotations map[string]string) []byte {
	var out bytes.Buffer
	out.WriteString("# Written by make bundle.\nFROM scratch\n\n")
	var labels []string
	for name, value := range annotations {
		labels = append(labels, "LABEL "+name+"="+value+"\n")
	}
	slices.Sort(labels)
	out.WriteString(strings.Join(labels, ""))
	out.WriteString("\nCOPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\n")
	return out.Bytes()
}
