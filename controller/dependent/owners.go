package dependent

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The owner annotations, which name an owner that an owner reference cannot name.
// Their names are fixed, since existing clusters and operator-lib use them.
const (
	ownerAnnotation     = "operator-sdk/primary-resource"
	ownerTypeAnnotation = "operator-sdk/primary-resource-type"
)

// ownership is one owner mark on an object.
type ownership struct {
	kind  *Kind
	owner types.NamespacedName
	// uid is the owner's UID; empty if only annotations name the owner.
	uid types.UID
}

// ownersOf returns the owners of o whose kinds are among kinds, without duplicates.
func ownersOf(o metav1.Object, kinds []*Kind) []ownership {
	var owners []ownership
	for _, k := range kinds {
		for _, ref := range o.GetOwnerReferences() {
			if k.refersTo(ref, o.GetNamespace()) {
				owners = add(owners, ownership{kind: k, owner: k.inScope(o.GetNamespace(), ref.Name), uid: ref.UID})
			}
		}
		if name, ok := k.annotatedOn(o); ok {
			owners = add(owners, ownership{kind: k, owner: name})
		}
	}
	return owners
}

// add appends next unless the owner is there already. References have to be added
// before annotations, since they also have the UID.
func add(owners []ownership, next ownership) []ownership {
	for _, o := range owners {
		if o.kind == next.kind && o.owner == next.owner && (next.uid == "" || o.uid == next.uid) {
			return owners
		}
	}
	return append(owners, next)
}

// refersTo reports whether ref, on an object in namespace, names an object of the
// kind in any version. A reference from a cluster-scoped object to a namespaced
// owner is invalid and does not count.
func (k *Kind) refersTo(ref metav1.OwnerReference, namespace string) bool {
	if ref.Kind != k.spec.GVK.Kind || (k.spec.Namespaced && namespace == "") {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == k.spec.GVK.Group
}

func (k *Kind) inScope(namespace, name string) types.NamespacedName {
	if !k.spec.Namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// annotatedOn reads the owner from the annotations.
func (k *Kind) annotatedOn(o metav1.Object) (types.NamespacedName, bool) {
	annotations := o.GetAnnotations()
	if annotations[ownerTypeAnnotation] != k.spec.GVK.GroupKind().String() || !k.followsAnnotations(o.GetNamespace()) {
		return types.NamespacedName{}, false
	}
	value := annotations[ownerAnnotation]
	namespace, name, qualified := strings.Cut(value, "/")
	if !qualified {
		namespace, name = "", value
	}
	if name == "" || k.spec.Namespaced != (namespace != "") {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// followsAnnotations reports whether owner annotations count on objects in a
// namespace; an empty namespace stands for cluster-scoped objects.
func (k *Kind) followsAnnotations(namespace string) bool {
	return namespace != "" || k.spec.ClusterScoped
}
