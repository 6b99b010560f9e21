package proxy

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// AnnotationCreated is the note on an object that a run with [Grant.Note] has created.
// Its value names the owner by its UID, and the object itself, so that it is not valid on
// a copy of the object.
const AnnotationCreated = "rolewright.dev/created"

// CreatedBy reports whether an object has the note that a run of the owner has created
// it.
func CreatedBy(o metav1.Object, resource schema.GroupVersionResource, owner types.UID) bool {
	return o.GetAnnotations()[AnnotationCreated] == note(owner, resource, o.GetNamespace(), o.GetName())
}

// Creator returns the UID of the owner in the note on an object; empty if there is no
// note. Only [CreatedBy] checks that the note is about this object.
func Creator(o metav1.Object) types.UID {
	const most = 64 // the API server's UIDs have 36 characters
	uid, _, _ := strings.Cut(o.GetAnnotations()[AnnotationCreated], "/")
	if len(uid) > most {
		return ""
	}
	return types.UID(strings.Clone(uid))
}

// note returns the value of the annotation. It has neither the version nor the group,
// because several can serve the same object.
func note(owner types.UID, resource schema.GroupVersionResource, namespace, name string) string {
	return strings.Join([]string{string(owner), resource.Resource, namespace, name}, "/")
}

// note returns the value of the annotation for the written object with the name.
func (x *exchange) note(name string) string {
	return note(x.s.Owner.UID, x.gvr(), x.namespace(), name)
}

// noteIn returns the mark, with the note if the object with the name gets one. Objects
// whose names the API server generates get none: no later run can know these names.
func (x *exchange) noteIn(mark objectbody.Mark, name string) objectbody.Mark {
	if x.s.Note && x.noted && name != "" {
		mark.Notes = map[string]string{AnnotationCreated: x.note(name)}
	}
	return mark
}

// touch reports an object that the request names. A list with a field selector for one
// name counts as naming it.
func (x *exchange) touch(name string) {
	if x.s.Touched != nil && name != "" {
		x.s.Touched.Touch(x.gvr(), x.namespace(), name)
	}
}

// touchCreated reports the object that a body is to create: the answer may tell the run that
// the object exists already.
func (x *exchange) touchCreated(body []byte) {
	if x.s.Touched == nil || x.info.Verb != "create" || x.info.Subresource != "" {
		return
	}
	meta, err := objectbody.Read(body)
	if err != nil { // the body is in protobuf, or invalid
		x.s.Touched.Untold()
		return
	}
	x.touch(meta.Name)
}
