package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
	"github.com/rolewright/rolewright/internal/text"
)

// recording is a body that is copied while it is passed on.
type recording struct {
	io.ReadCloser
	kept      bytes.Buffer
	most      int // how many bytes are kept at most
	hold      *hold
	overflown bool
}

// maxAnswer is how many bytes of an answer are kept: enough for the largest object,
// and for the objects that one request deletes unless they are very many.
const maxAnswer = 8 << 20

func (r *recording) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	switch {
	case r.overflown:
	case r.kept.Len()+n > r.most, !r.hold.grow(n):
		r.overflown, r.kept = true, bytes.Buffer{}
		r.hold.shrink(0)
	default:
		r.kept.Write(b[:n])
	}
	return n, err
}

// observe is called with the API server's answer before it goes back.
func (x *exchange) observe(resp *http.Response) error {
	x.code = resp.StatusCode
	if x.code == http.StatusSwitchingProtocols {
		x.tunnel = resp.Body
	}
	if x.write && isDefinition(x.info) {
		x.p.discovery.Invalidate() // before the client learns that it can use the kind
	}
	if err := x.readSecrets(resp); err != nil {
		return err
	}
	if x.code < http.StatusBadRequest || x.code >= http.StatusInternalServerError {
		x.expectAbsent()
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if x.write && !x.dryRun && x.ofSelf() {
		x.s.Self.Wrote()
	}
	if x.markAfter {
		if err := errors.Join(x.addMark(resp), x.readSecrets(resp)); err != nil {
			return err
		}
	}
	if x.follows() {
		x.answer = &recording{ReadCloser: resp.Body, most: maxAnswer, hold: x.holdAnswer()}
		resp.Body = x.answer
	} else if x.finds(resp) {
		x.answer = &recording{ReadCloser: resp.Body, most: maxFound, hold: x.holdAnswer()}
		resp.Body = x.answer
	}
	return nil
}

// follows reports whether the answer must be read, to find out which of the owner's
// objects were written or deleted, and the names of new ones.
func (x *exchange) follows() bool {
	if x.wanted() || x.changesSelf() {
		return true
	}
	switch x.info.Verb {
	case "create":
		return x.marked && !x.dryRun
	case "update", "patch":
		return (x.marked || x.s.Tracker != nil && x.info.Subresource != "") && !x.dryRun
	case "delete", "deletecollection":
		return x.s.Tracker != nil && !x.dryRun && x.info.Subresource == ""
	}
	return false
}

// maxFound is how many bytes of the answer to a read are kept: enough for any object.
const maxFound = maxBody

// finds reports whether the answer to a read may contain objects of the owner.
func (x *exchange) finds(resp *http.Response) bool {
	return (x.info.Verb == "get" || x.info.Verb == "list") && x.info.IsResourceRequest && x.info.Subresource == "" &&
		x.s.Inject && x.s.Tracker != nil && resp.Header.Get("Content-Encoding") == "" &&
		mediaType(resp.Header.Get("Content-Type")) == runtime.ContentTypeJSON
}

// found notifies the tracker of the owner's objects in the answer to a read.
func (x *exchange) found() {
	if x.answer == nil || x.answer.overflown {
		return
	}
	objects, err := objectbody.Names(x.answer.kept.Bytes())
	if err != nil {
		return // the client has broken off, or will see the error
	}
	owner := x.s.Owner
	for _, meta := range objects {
		referred := slices.ContainsFunc(meta.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID })
		if referred || AnnotatedBy(meta.Annotations, owner) {
			c := x.child(meta.Kind, meta.Name)
			c.Namespace = meta.Namespace
			x.s.Tracker.Found(c)
		}
	}
}

// wanted reports whether Writes of the grant asks for the stored object.
func (x *exchange) wanted() bool {
	return x.s.Writes != nil && !x.dryRun && x.info.Subresource == "" && slices.Contains([]string{"create", "update", "patch"}, x.info.Verb) &&
		x.s.Writes.Wants(x.gvr(), x.namespace(), x.info.Name)
}

// changesSelf reports whether the exchange changes the owner itself, apart from its status.
func (x *exchange) changesSelf() bool {
	return x.write && !x.dryRun && x.info.Subresource == "" && slices.Contains([]string{"update", "patch"}, x.info.Verb) && x.ofSelf()
}

// follow notifies the tracker of the objects that the API server has stored, and
// returns them.
func (x *exchange) follow(ctx context.Context) []Child {
	if x.answer == nil || x.answer.overflown {
		return nil
	}
	objects, err := objectbody.Names(x.answer.kept.Bytes())
	if err != nil {
		x.notice(&x.s.notices.unread, "Answer to a write cannot be read; the change may start another run", err.Error())
		return nil
	}
	var children []Child
	for _, meta := range objects {
		if x.existed(meta.UID) {
			x.disown(ctx, meta)
			if !x.s.AdoptUnowned {
				continue
			}
		}
		c := x.child(meta.Kind, meta.Name)
		c.UID, c.ResourceVersion, c.Generation = meta.UID, meta.ResourceVersion, meta.Generation
		children = append(children, c)
		if x.changesSelf() {
			x.s.Self.Stored(meta.Generation)
		}
		if x.wanted() && c.ResourceVersion != x.version {
			x.s.Writes.Stored(c)
		}
		switch {
		case x.s.Tracker == nil:
		case x.info.Verb == "delete", x.info.Verb == "deletecollection":
			x.s.Tracker.Deleted(c)
		case !x.marked && x.info.Subresource == "": // the object belongs to another owner, or to none
		case c.ResourceVersion != x.version: // else nothing was changed, and another client made the version
			x.s.Tracker.Wrote(c)
		}
	}
	return children
}

// addMark puts the mark on the object that has just been written without it. The
// answer to the client is the object with the mark. The patch is a part of the
// write: it is sent even if the run, or the leadership, has ended since.
func (x *exchange) addMark(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	defer func() { x.markHold.shrink(int64(len(body))) }()
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	_ = resp.Body.Close() // it was read to its end
	resp.Body = io.NopCloser(bytes.NewReader(body))
	written, err := objectbody.Names(body)
	if err == nil && (len(written) != 1 || written[0].UID == "") {
		err = errors.New("the answer does not name it")
	}
	if err != nil {
		return x.unmarkable(err)
	}
	m := written[0]
	x.outlives = Outlives(m.Annotations)
	existed := x.existed(m.UID)
	if existed {
		x.noted = false
	}
	if existed && !x.s.AdoptUnowned || m.Annotations[annotationOwned] == ownedByNobody {
		x.marked, x.created = false, false
		return nil
	}
	if x.ours(m) {
		return nil
	}
	if x.s.Tracker != nil {
		c := x.child(m.Kind, m.Name)
		x.s.Tracker.Expect(c)
		c.UID, c.ResourceVersion, c.Generation = m.UID, m.ResourceVersion, m.Generation
		x.s.Tracker.Wrote(c)
		if x.wanted() {
			x.s.Writes.Stored(c)
		}
	}
	// The client may be gone already: its object exists all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(resp.Request.Context()), patchTimeout)
	defer cancel()
	sent := resp.Request.Header
	body, err = x.patchMark(ctx, m, http.Header{"Accept": sent["Accept"], "User-Agent": sent["User-Agent"]})
	if err != nil {
		return x.unmarkable(err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// patchMark adds the mark to an object, and returns the API server's answer. It
// looks at the object again if another client has changed it meanwhile.
func (x *exchange) patchMark(ctx context.Context, m objectbody.Meta, header http.Header) ([]byte, error) {
	const tries = 5
	for n := 1; ; n++ {
		metadata := x.noteIn(x.mark(), m.Name).Metadata(m)
		metadata["uid"], metadata["resourceVersion"] = m.UID, m.ResourceVersion
		body, err := x.patchMetadata(ctx, m.Name, metadata, header)
		if !errors.Is(err, errConflict) || n == tries {
			return body, err
		}
		info := *x.info
		info.Path = x.pathOf(m.Name)
		stored, err := x.p.stored(ctx, &info)
		if err != nil {
			return nil, err
		}
		if stored == nil || stored.UID != m.UID {
			return nil, errors.New("it is gone")
		}
		m = *stored
		x.outlives = Outlives(m.Annotations)
	}
}

// errConflict is in the chain of patchMetadata's errors if the object has changed.
var errConflict = errors.New("another client has changed the object")

// pathOf returns the path of the object with the name that the exchange has written.
func (x *exchange) pathOf(name string) string {
	path := strings.TrimSuffix(x.info.Path, "/")
	if x.info.Verb == "create" {
		path += "/" + name
	}
	return path
}

// unmarkable is the answer for an object that was written but could not be marked.
func (x *exchange) unmarkable(err error) error {
	return refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, fmt.Sprintf(
		"the object was written, but not marked as owned by %s %q: %v; send the object as application/json, and let the operator patch %s",
		x.s.Owner.GVK.Kind, x.s.Owner.Name, err, x.info.Resource))
}

// existed reports whether the written object existed before the write although it did not when the proxy looked: another
// client has created it in between, not another request of the run.
func (x *exchange) existed(uid types.UID) bool {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.created && x.code == http.StatusCreated {
		x.s.made[uid] = struct{}{}
	}
	_, made := x.s.made[uid]
	return x.created && x.info.Verb != "create" && x.code == http.StatusOK && !made
}

// disown removes the note from an object that another client has created just before the
// run's write (see existed), and also the mark, unless such objects are adopted. If this
// operator no longer leads, the leader may have created the object for the same owner:
// then note and mark stay.
func (x *exchange) disown(ctx context.Context, m objectbody.Meta) {
	if x.p.opts.MayWrite != nil && x.p.opts.MayWrite() != nil {
		return
	}
	annotations := map[string]any{AnnotationCreated: nil}
	metadata := map[string]any{"annotations": annotations, "uid": m.UID, "resourceVersion": m.ResourceVersion}
	_, noted := m.Annotations[AnnotationCreated]
	mark := x.mark()
	switch {
	case x.s.AdoptUnowned && !noted:
		return
	case x.s.AdoptUnowned:
	case mark.Reference != nil:
		metadata["ownerReferences"] = slices.DeleteFunc(slices.Clone(m.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return ref.UID == mark.Reference.UID
		})
	default:
		annotations[annotationOwner], annotations[annotationOwnerType] = nil, nil
	}
	x.marked = x.s.AdoptUnowned
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	if _, err := x.patchMetadata(ctx, m.Name, metadata, http.Header{"Accept": {partialMetadata}}); err != nil {
		x.notice(&x.s.notices.kept, "Owner mark cannot be removed from an object that another client has just created", err.Error())
	}
}

// patchMetadata changes the object that the exchange has written, and returns the
// API server's answer.
func (x *exchange) patchMetadata(ctx context.Context, name string, metadata map[string]any, header http.Header) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode the mark: %w", err)
	}
	header.Set("Content-Type", string(types.MergePatchType))
	code, answer, err := x.p.call(ctx, http.MethodPatch, x.pathOf(name), patch, header)
	if err != nil {
		return nil, err
	}
	if code == http.StatusConflict {
		return nil, errConflict
	}
	if code != http.StatusOK {
		var status metav1.Status
		_ = json.Unmarshal(answer, &status) // without a message, the code has to suffice
		return nil, fmt.Errorf("the API server answers %d to the patch of its metadata: %s", code, text.Cut(status.Message, 300))
	}
	return answer, nil
}

// patchTimeout limits each change of a mark after a write.
const patchTimeout = 10 * time.Second

// buffers is the pool of buffers through which answers are copied. It implements
// [httputil.BufferPool].
type buffers struct{ free sync.Pool }

// bufferSize is the size that io.Copy uses.
const bufferSize = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if buf, ok := b.free.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, bufferSize)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buf []byte) { b.free.Put(&buf) }
