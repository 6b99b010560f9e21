package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is one of Kubernetes.
type object map[string]any

// at is what is found by going down a path of keys; nil if there is none. It
// panics where something else than an object is on the way.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, key := range path {
		if value == nil {
			return nil
		}
		value = value.(map[string]any)[key]
	}
	return value
}

// text is the string at a path; empty if there is none.
func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// part is the object at a path, which is made if it is not there.
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

// kustomize builds the directories of config/.
type kustomize struct{ kubectl, config string }

// build returns the objects of a directory, in their order.
func (k kustomize) build(dir string) ([]object, error) {
	cmd := exec.Command(k.kubectl, "kustomize", filepath.Join(k.config, dir))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", filepath.Join(k.config, dir), err, strings.TrimSpace(stderr.String()))
	}
	var objects []object
	for text := range strings.SplitSeq(string(out), "\n---\n") {
		o := object{}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func (k kustomize) read(path string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(k.config, path))
	if err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	return data, nil
}

// naming is what config/default/kustomization.yaml gives all objects.
type naming struct {
	Namespace  string `json:"namespace"`
	NamePrefix string `json:"namePrefix"`
}

func (k kustomize) naming() (naming, error) {
	var n naming
	data, err := k.read("default/kustomization.yaml")
	if err != nil {
		return n, err
	}
	if err := yaml.Unmarshal(data, &n); err != nil {
		return n, fmt.Errorf("config/default/kustomization.yaml: %w", err)
	}
	if n.Namespace == "" || n.NamePrefix == "" {
		return n, errors.New("config/default/kustomization.yaml: set namespace and namePrefix")
	}
	return n, nil
}

// operator is the container of the Deployment.
func operator(deployment object) (map[string]any, error) {
	containers, _ := deployment.at("spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		return nil, fmt.Errorf("deployment %s has %d containers; one is expected", deployment.name(), len(containers))
	}
	return containers[0].(map[string]any), nil
}

// strings of a list.
func stringsOf(list any) []string {
	items, _ := list.([]any)
	var out []string
	for _, item := range items {
		out = append(out, fmt.Sprint(item))
	}
	return out
}
