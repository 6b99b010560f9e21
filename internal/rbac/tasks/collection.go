package tasks

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// UseKubernetesCore reports whether a task of a role or playbook names a module of kubernetes.core, by its full or its
// short name, as far as the content can be read.
func UseKubernetesCore(c content.Content, o content.Options) bool {
	found := &kubernetesCore{}
	_ = content.Read(c, o, found) // unreadable content counts as not using it; Scan reports it
	return found.any
}

// kubernetesCore visits content, and looks for modules of that collection.
type kubernetesCore struct{ any bool }

// Task implements [content.Visitor].
func (k *kubernetesCore) Task(t content.Task) bool {
	collection, name := "", t.Module
	if i := strings.LastIndexByte(t.Module, '.'); i >= 0 {
		collection, name = t.Module[:i], t.Module[i+1:]
	}
	short := collection == "" && (name == "k8s" || strings.HasPrefix(name, "k8s_") || name == "helm" || strings.HasPrefix(name, "helm_"))
	k.any = k.any || short || collection == "kubernetes.core" || collection == "community.kubernetes"
	return true
}

// Group implements [content.Visitor].
func (*kubernetesCore) Group(content.Frame, *yaml.Node) {}

// Role implements [content.Visitor].
func (*kubernetesCore) Role(content.Frame) {}

// Gap implements [content.Visitor].
func (*kubernetesCore) Gap(content.Frame, int, string, ...any) {}
