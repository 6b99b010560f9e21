package proxy

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// AnnotationCreated is the note on an object that a run has created for which
// [Grant.Note] is set. Its value names the owner by its UID, and the object itself: on
// a copy of the object it says nothing.
const AnnotationCreated = "rolewright.dev/created"

// CreatedBy reports whether an object bears the note that a run of the owner has created
// it.
func CreatedBy(o metav1.Object, resource schema.GroupVersionResource, owner types.UID) bool {
	return o.GetAnnotations()[AnnotationCreated] == note(owner, resource, o.GetNamespace(), o.GetName())
}

// Creator is the UID of the owner that the note on an object names; empty if there is
// none. That the note is about this object only [CreatedBy] knows.
func Creator(o metav1.Object) types.UID {
	const most = 64 // the API server's UIDs have 36 characters
	uid, _, _ := strings.Cut(o.GetAnnotations()[AnnotationCreated], "/")
	if len(uid) > most {
		return ""
	}
	return types.UID(strings.Clone(uid))
}

// note is the value of the annotation. Versions, and groups that serve the same object,
// do not matter.
func note(owner types.UID, resource schema.GroupVersionResource, namespace, name string) string {
	return strings.Join([]string{string(owner), resource.Resource, namespace, name}, "/")
}

// note is the value of the annotation on the written object of that name.
func (x *exchange) note(name string) string {
	return note(x.s.Owner.UID, x.gvr(), x.namespace(), name)
}

// noteIn is the mark with the note, where the object of that name gets one. Objects whose
// names the API server generates get none: no later run can name them.
func (x *exchange) noteIn(mark objectbody.Mark, name string) objectbody.Mark {
	if x.s.Note && x.noted && name != "" {
		mark.Notes = map[string]string{AnnotationCreated: x.note(name)}
	}
	return mark
}

// touch tells of an object that the request names. A list with a field selector for one
// name has that name.
func (x *exchange) touch(name string) {
	if x.s.Touched != nil && name != "" {
		x.s.Touched.Touch(x.gvr(), x.namespace(), name)
	}
}

// touchCreated tells of the object that a body is to create: that it was there already is
// an answer, too.
func (x *exchange) touchCreated(body []byte) {
	if x.s.Touched == nil || x.info.Verb != "create" || x.info.Subresource != "" {
		return
	}
	meta, err := objectbody.Read(body)
	if err != nil { // which is in protobuf, or of no use
		x.s.Touched.Untold()
		return
	}
	x.touch(meta.Name)
}
