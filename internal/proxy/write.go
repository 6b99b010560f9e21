package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// maxBody is the API server's own limit for the body of a request.
const maxBody = 3 << 20

// bodyTimeout is how long a client may take to send a body of that size, to wait for room for it, and
// between two reads of an answer that takes room.
const bodyTimeout = 30 * time.Second

// The owner annotations, which mark an owner that cannot be an owner reference; they
// are ansible-operator's.
const (
	annotationOwner     = "operator-sdk/primary-resource"
	annotationOwnerType = "operator-sdk/primary-resource-type"
)

// An object with this annotation has no owner.
const (
	annotationOwned = "rolewright.dev/owner"
	ownedByNobody   = "none"
)

// An object with this annotation outlives its Helm release, and so its owner: garbage
// collection must not delete it.
const (
	annotationPolicy = "helm.sh/resource-policy"
	policyKeep       = "keep"
)

// Outlives reports whether the annotations of an object say that it stays when its owner is deleted.
func Outlives(annotations map[string]string) bool {
	return strings.EqualFold(strings.TrimSpace(annotations[annotationPolicy]), policyKeep)
}

// prepare makes a write ready to be sent: among other things it puts the owner's
// mark on the object if necessary.
func (x *exchange) prepare(w http.ResponseWriter, r *http.Request) error {
	if err := x.checkable(r); err != nil {
		return err
	}
	if isConnection(x.info, "exec", "attach", "portforward", "proxy") || !x.info.IsResourceRequest || x.uploads(r) {
		return x.fence()
	}
	body, err := x.heldBody(w, r)
	if err != nil {
		return err
	}
	if err := x.keepName(r.Header.Get("Content-Type"), body); err != nil {
		return err
	}
	if err := x.writtenSecrets(r.Header.Get("Content-Type"), body); err != nil {
		return err
	}
	if strings.HasPrefix(x.info.Verb, "delete") && len(body) > 0 {
		x.dryRun = deletesNothing(body) // with a body, the API server ignores the query
	}
	x.dryRun = x.dryRun || x.evicts() && evictsNothing(body)
	if x.s.CheckMode {
		if body, err = x.checked(r, body); err != nil {
			return err
		}
	}
	x.touchCreated(body)
	if x.s.Inject && x.ownable(r) {
		if body, err = x.own(r, body); err != nil {
			return err
		}
	}
	x.readStored(r.Context())
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.GetBody = func() (io.ReadCloser, error) { // for another attempt, if the API server has not processed the request
		return io.NopCloser(bytes.NewReader(body)), x.fence()
	}
	if len(body) == 0 {
		r.Body = http.NoBody
	}
	return x.fence() // last, because the steps above take time
}

// uploads reports whether the body is a stream, or larger than any object, and the subresource may accept that, such as
// the source of an OpenShift build (instantiatebinary). It is passed on as it arrives.
func (x *exchange) uploads(r *http.Request) bool {
	return !slices.Contains([]string{"", "status", "scale"}, x.info.Subresource) && (r.ContentLength < 0 || r.ContentLength > maxBody) && !x.s.CheckMode && !x.evicts() && !x.tellsSecrets()
}

// readStored reads the stored object before a write, unless that was done already: without its version, a write that changes
// nothing would count as a change, and the answer to an eviction does not say which Pod it has deleted. Of the other writes
// of subresources, only a scale costs the request: roles that write statuses would make twice as many.
func (x *exchange) readStored(ctx context.Context) {
	changes := x.info.Verb == "update" || x.info.Verb == "patch" || x.evicts()
	part := (x.evicts() || x.info.Subresource == "scale") && x.s.Tracker != nil && !x.dryRun
	if x.looked || !changes || !part && !x.wanted() {
		return
	}
	x.looked = true
	if stored, err := x.p.stored(ctx, x.whole()); err == nil && stored != nil {
		x.version, x.uid = stored.ResourceVersion, stored.UID
	}
}

// whole returns the request for the object itself, even if the exchange is about a subresource.
func (x *exchange) whole() *request.RequestInfo {
	info := *x.info
	if info.Subresource != "" {
		info.Path = strings.TrimSuffix(strings.TrimSuffix(info.Path, "/"), "/"+info.Subresource)
	}
	return &info
}

// heldBody reads the body of a write, as soon as there is room for it.
func (x *exchange) heldBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // the size is not known, or too large and the body is read only up to this
	}
	h := x.holdRequest()
	if err := x.await(r.Context(), h, size); err != nil {
		// A client that is still sending would find the connection closed, and not the answer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(x.p.bodyTimeout))
		_, _ = io.CopyN(io.Discard, r.Body, maxBody)
		return nil, err
	}
	body, err := readBody(w, r, maxBody, x.p.bodyTimeout, "Request entity too large: limit is "+strconv.Itoa(maxBody))
	h.shrink(int64(len(body)))
	return body, err
}

// await waits for room for size bytes. After bodyTimeout, it returns a refusal.
func (x *exchange) await(ctx context.Context, h *hold, size int64) error {
	patience, cancel := context.WithTimeout(ctx, x.p.bodyTimeout)
	defer cancel()
	err := h.wait(patience, size)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"the request waits too long: "+err.Error()+", 16 MiB for a run, and 64 MiB for all; try again")
	}
	return nil
}

// readBody reads the whole body; tooLarge is the answer to a body with more bytes than limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration, tooLarge string) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, tooLarge)
	} else if err != nil {
		return nil, refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "read the request's body: "+err.Error())
	}
	_ = control.SetReadDeadline(time.Time{}) // after an error the deadline stays: net/http reads on before it answers
	return body, nil
}

// deletesNothing reports whether a body of DeleteOptions asks for a dry run. A body that
// cannot be read counts as a dry run: at worst, another run follows the deletion.
func deletesNothing(body []byte) bool {
	options, err := deleteOptions(body)
	return err != nil || len(options.DryRun) > 0
}

// evicts reports whether a request is an eviction, which deletes a Pod if its disruption budgets allow that.
func (x *exchange) evicts() bool {
	return x.info.APIGroup == "" && x.info.Resource == "pods" && x.info.Subresource == "eviction" && x.info.Verb == "create"
}

// evictsNothing reports whether the body of an eviction asks for a dry run, or cannot be read.
func evictsNothing(body []byte) bool {
	var eviction policyv1.Eviction
	err := unpack(body, &eviction)
	return err != nil || eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0
}

// ownable reports whether the request writes an object that can have an owner:
// reviews and the like are never stored, and do not accept metadata.
func (x *exchange) ownable(r *http.Request) bool {
	if x.info.Subresource != "" || !slices.Contains([]string{"create", "update", "patch"}, x.info.Verb) {
		return false
	}
	res, err := x.p.discovery.Lookup(r.Context(), x.gvr())
	if err != nil {
		// A failed lookup does not keep a run from creating objects, and an
		// unknown kind may be new.
		x.absent = errors.Is(err, discovery.ErrNotFound)
		return x.info.APIGroup != "authentication.k8s.io" && x.info.APIGroup != "authorization.k8s.io"
	}
	return !slices.ContainsFunc([]string{"get", "list", "watch"}, func(verb string) bool { return !slices.Contains(res.Verbs, verb) })
}

// own puts the owner's mark into body if the written object must have it. That is
// possible only for an object in JSON; after every other write, a separate request
// adds the mark. An invalid body is forwarded unchanged: the API server reports best
// what is wrong with it.
func (x *exchange) own(r *http.Request, body []byte) ([]byte, error) {
	contentType := mediaType(r.Header.Get("Content-Type"))
	apply := contentType == string(types.ApplyYAMLPatchType) || contentType == string(types.ApplyCBORPatchType)
	// The body of an apply is YAML, but clients send JSON in it, too.
	isObject := contentType == runtime.ContentTypeJSON || contentType == string(types.ApplyYAMLPatchType)
	var meta objectbody.Meta
	if isObject {
		meta, _ = objectbody.Read(body) // with an error it is empty
	}
	if x.info.Verb == "create" {
		x.asked = meta.Name
	}
	if meta.Annotations[annotationOwned] == ownedByNobody {
		return body, nil
	}
	replaces := x.info.Verb != "patch" || apply
	x.outlives = Outlives(meta.Annotations)
	due, err := x.due(r.Context(), replaces, apply)
	if err != nil && replaces && !errors.Is(err, errUnreadable) {
		// The client can try again later; now, the write could remove the mark.
		return nil, refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the owner of the object cannot be looked up: "+err.Error())
	}
	if err != nil {
		x.notice(&x.s.notices.unlooked, "Object is written without looking up its owner", err.Error())
		return body, nil
	}
	if x.marked && x.s.Tracker != nil && !x.dryRun {
		x.expect(x.child(meta.Kind, meta.Name))
	}
	if !due {
		return body, nil
	}
	x.p.log.V(1).Info("Injecting owner reference", "job", x.s.RunID, "path", x.info.Path)
	if isObject && !x.keptByStored {
		if with, err := objectbody.Add(body, x.noteIn(x.mark(), cmp.Or(x.info.Name, meta.Name))); err == nil {
			return with, nil
		}
	}
	if x.dryRun {
		return body, nil
	}
	x.markAfter, x.markHold = true, x.hold(x.s.marks, x.p.marks)
	return body, x.await(r.Context(), x.markHold, maxBody)
}

// expect tells the tracker what is written. If the API server does not have the kind, that waits until
// it has accepted the write: a run can name any number of such kinds, and the tracker watches each.
func (x *exchange) expect(c Child) {
	if x.absent {
		x.expected = &c
		return
	}
	x.s.Tracker.Expect(c)
}

// expectAbsent tells the tracker what expect has put off, once the write was accepted or may have been.
func (x *exchange) expectAbsent() {
	if x.expected != nil {
		x.s.Tracker.Expect(*x.expected)
	}
}

// due decides whether the mark must be added to the written object. It sets the
// fields of x that describe the object after the write.
//
// A write with replaces has a whole object in its body or, if it is an apply, all
// fields of its manager. It creates a missing object. It removes the mark from an
// existing object, unless the body has the mark, too. An apply keeps the annotations
// of other managers.
func (x *exchange) due(ctx context.Context, replaces, apply bool) (bool, error) {
	if x.info.Verb == "create" {
		x.marked, x.created, x.noted = true, true, true
		return true, nil
	}
	x.looked = true
	stored, err := x.p.stored(ctx, x.info)
	if err != nil {
		return false, err
	}
	if stored == nil {
		x.marked, x.created, x.noted = replaces, replaces, replaces // other patches create nothing
		return replaces, nil
	}
	x.keptByStored = apply && !x.outlives && Outlives(stored.Annotations)
	x.version, x.noted = stored.ResourceVersion, x.s.Note && stored.Annotations[AnnotationCreated] == x.note(x.info.Name)
	switch {
	case x.ours(*stored):
		x.marked = true
		return replaces, nil
	case x.inherited(*stored), x.s.AdoptUnowned && unowned(*stored):
		x.marked = true
		return true, nil
	}
	return false, nil
}

// ours reports whether an object has the owner's mark, as a reference or as annotations: an object that is to outlive its
// owner from now on may still have the reference.
func (x *exchange) ours(m objectbody.Meta) bool {
	return objectbody.Mark{Reference: &metav1.OwnerReference{UID: x.s.Owner.UID}}.In(m) || AnnotatedBy(m.Annotations, x.s.Owner)
}

// inherited reports whether an object belongs to an earlier object with the
// owner's name, which is gone: only one object has a name at a time. No other
// object owns it any more, and garbage collection may not have deleted it yet.
func (x *exchange) inherited(m objectbody.Meta) bool {
	mark := x.mark().Reference
	return mark != nil && slices.ContainsFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		return group == x.s.Owner.GVK.Group && ref.Kind == mark.Kind && ref.Name == mark.Name && ref.UID != mark.UID
	})
}

// unowned reports whether an object has no owner, and may be adopted.
func unowned(m objectbody.Meta) bool {
	_, annotated := m.Annotations[annotationOwner]
	return len(m.OwnerReferences) == 0 && !annotated && m.Annotations[annotationOwned] != ownedByNobody
}

// mark returns the owner mark for the written object. An owner reference is legal
// within a namespace and to a cluster-scoped owner; with any other reference,
// garbage collection would delete the object.
func (x *exchange) mark() objectbody.Mark {
	owner := x.s.Owner
	if (owner.Namespace == "" || owner.Namespace == x.namespace()) && !x.outlives {
		return objectbody.Mark{Reference: &metav1.OwnerReference{
			APIVersion: owner.GVK.GroupVersion().String(), Kind: owner.GVK.Kind, Name: owner.Name, UID: owner.UID,
		}}
	}
	return objectbody.Mark{Annotations: annotations(owner)}
}

// annotations returns the owner annotations for an owner.
func annotations(owner Owner) map[string]string {
	name := owner.Name
	if owner.Namespace != "" {
		name = owner.Namespace + "/" + name
	}
	return map[string]string{annotationOwner: name, annotationOwnerType: owner.GVK.GroupKind().String()}
}

// AnnotatedBy reports whether the annotations of an object name owner as its owner.
func AnnotatedBy(found map[string]string, owner Owner) bool {
	return objectbody.Mark{Annotations: annotations(owner)}.In(objectbody.Meta{Annotations: found})
}

// namespace returns the namespace of the written object, from the URL.
func (x *exchange) namespace() string { return namespaceOf(x.info) }

// namespaceOf returns the namespace of the object that a request is about. A Namespace
// object is in no namespace, although its URL looks as if it were in itself.
func namespaceOf(info *request.RequestInfo) string {
	if info.APIGroup == "" && info.Resource == "namespaces" {
		return ""
	}
	return info.Namespace
}

func (x *exchange) child(kind, name string) Child {
	if kind == "" || kind == "PartialObjectMetadata" || x.info.Subresource != "" {
		kind = x.kind // the kind of the subresource does not matter
	}
	return Child{Resource: x.gvr(), Kind: kind, Subresource: x.info.Subresource, Namespace: x.namespace(), Name: cmp.Or(name, x.info.Name)}
}
