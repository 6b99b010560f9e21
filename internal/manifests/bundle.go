package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// channel is the channel in which the bundle is offered.
const channel = "candidate"

// bundler fills in the ClusterServiceVersion.
type bundler struct {
	csv, deployment object
	samples         []object
	owned           []object
	// roles are by kind and name. bound lists, by the same key, the kinds of bindings to the operator's service account.
	roles map[string]object
	bound map[string][]string
	// rest are the manifests other than the ClusterServiceVersion.
	rest []object
}

// Bundle returns the files of an OLM bundle for the objects of the stream, with
// paths relative to bundle/, and the Dockerfile of its image. image is the
// operator's image; empty for the image in the Deployment.
func Bundle(stream []byte, version, image string) (files map[string][]byte, dockerfile []byte, err error) {
	objects, err := decode(stream)
	if err != nil {
		return nil, nil, err
	}
	n, err := nameOf(objects)
	if err != nil {
		return nil, nil, err
	}
	b := &bundler{roles: map[string]object{}, bound: map[string][]string{}}
	if err := b.sort(objects); err != nil {
		return nil, nil, err
	}
	name := strings.TrimSuffix(n.NamePrefix, "-")
	if err := b.fill(name, version, image); err != nil {
		return nil, nil, err
	}
	annotations := map[string]string{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         name,
		"operators.operatorframework.io.bundle.channels.v1":        channel,
		"operators.operatorframework.io.bundle.channel.default.v1": channel,
	}
	files = map[string][]byte{}
	if files["metadata/annotations.yaml"], err = yaml.Marshal(map[string]any{"annotations": annotations}); err != nil {
		return nil, nil, fmt.Errorf("encode the annotations: %w", err)
	}
	for _, o := range append(b.rest, b.csv) {
		file := o.name() + "." + strings.ToLower(o.kind()) + ".yaml"
		if o.kind() == b.csv.kind() {
			file = name + ".clusterserviceversion.yaml"
		}
		if files["manifests/"+file], err = yaml.Marshal(o); err != nil {
			return nil, nil, fmt.Errorf("encode %s: %w", file, err)
		}
	}
	return files, bundleImage(annotations), nil
}

// sort puts each object where it belongs.
func (b *bundler) sort(objects []object) error {
	var others, bindings []object
	for _, o := range objects {
		delete(o.part("metadata"), "namespace") // OLM chooses it
		switch o.kind() {
		case "ClusterServiceVersion":
			b.csv = o
		case "Deployment":
			b.deployment = o
		case "Namespace", "ServiceAccount":
			// OLM makes them.
		case "Role", "ClusterRole":
			b.roles[o.kind()+" "+o.name()] = o
		case "RoleBinding", "ClusterRoleBinding":
			bindings = append(bindings, o)
		case "CustomResourceDefinition":
			b.owned = append(b.owned, o)
			b.rest = append(b.rest, o)
		case "Service":
			b.rest = append(b.rest, o)
		default:
			others = append(others, o)
		}
	}
	for _, o := range others {
		if b.owns(o) {
			b.samples = append(b.samples, o)
		} else {
			b.rest = append(b.rest, o)
		}
	}
	if b.csv == nil || b.deployment == nil {
		return errors.New("a ClusterServiceVersion and a Deployment are needed; give what \"kubectl kustomize config/manifests\" makes")
	}
	for _, o := range bindings {
		if !b.isOfOperator(o) {
			b.rest = append(b.rest, o)
			continue
		}
		role := o.text("roleRef", "kind") + " " + o.text("roleRef", "name")
		b.bound[role] = append(b.bound[role], o.kind())
	}
	for _, role := range slices.Sorted(maps.Keys(b.roles)) {
		if b.bound[role] == nil {
			b.rest = append(b.rest, b.roles[role])
		}
	}
	return nil
}

// account returns the name of the operator's service account.
func (b *bundler) account() string {
	return b.deployment.text("spec", "template", "spec", "serviceAccountName")
}

// isOfOperator tells whether a binding is to the operator's service account.
func (b *bundler) isOfOperator(binding object) bool {
	subjects, _ := binding["subjects"].([]any)
	return slices.ContainsFunc(subjects, func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields["kind"] == "ServiceAccount" && fields["name"] == b.account()
	})
}

// owns tells whether an object's kind is one of the operator's.
func (b *bundler) owns(o object) bool {
	group, _, _ := strings.Cut(o.text("apiVersion"), "/")
	return slices.ContainsFunc(b.owned, func(crd object) bool {
		return crd.text("spec", "group") == group && crd.text("spec", "names", "kind") == o.kind()
	})
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
	env = slices.DeleteFunc(env, func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields["name"] == "WATCH_NAMESPACE"
	})
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
	install := b.csv.part("spec", "install", "spec")
	install["deployments"] = []any{map[string]any{
		"name": b.deployment.name(), "label": b.deployment.at("metadata", "labels"), "spec": b.deployment["spec"],
	}}
	install["clusterPermissions"] = b.permissions("ClusterRoleBinding")
	install["permissions"] = b.permissions("RoleBinding")
	return nil
}

// permissions returns the rules of the roles that a kind of binding binds.
func (b *bundler) permissions(binding string) []any {
	var rules []any
	for _, role := range slices.Sorted(maps.Keys(b.roles)) {
		if slices.Contains(b.bound[role], binding) {
			more, _ := b.roles[role]["rules"].([]any)
			rules = append(rules, more...)
		}
	}
	return []any{map[string]any{"serviceAccountName": b.account(), "rules": rules}}
}

// kinds makes the ClusterServiceVersion describe all versions of all kinds. It is an error
// if it describes one that does not exist.
func (b *bundler) kinds() error {
	said := map[string]bool{}
	list, _ := b.csv.at("spec", "customresourcedefinitions", "owned").([]any)
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			o := object(fields)
			said[o.text("name")+"/"+o.text("version")+" "+o.text("kind")] = true
		}
	}
	for _, crd := range b.owned {
		versions, _ := crd.at("spec", "versions").([]any)
		for _, item := range versions {
			fields, _ := item.(map[string]any)
			v, kind := object(fields), crd.text("spec", "names", "kind")
			id := crd.name() + "/" + v.text("name") + " " + kind
			if !said[id] {
				description := v.text("schema", "openAPIV3Schema", "description")
				list = append(list, map[string]any{"name": crd.name(), "version": v.text("name"), "kind": kind, "displayName": kind,
					"description": cmp.Or(description, "An object of the kind "+kind+".")})
			}
			delete(said, id)
		}
	}
	for id := range said {
		return fmt.Errorf("the ClusterServiceVersion describes %s under customresourcedefinitions.owned, and there is no CustomResourceDefinition for it", id)
	}
	b.csv.part("spec", "customresourcedefinitions")["owned"] = list
	return nil
}

// bundleImage returns the Dockerfile of the bundle's image, which only has files and labels.
func bundleImage(annotations map[string]string) []byte {
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
