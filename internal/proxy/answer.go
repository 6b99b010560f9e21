package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// recording is a body that is copied while it is passed on.
type recording struct {
	io.ReadCloser
	contentType string
	kept        bytes.Buffer
	overflown   bool
}

// maxAnswer is how much of an answer is kept: enough for the largest object, and
// for the objects that one request deletes unless they are very many.
const maxAnswer = 8 << 20

func (r *recording) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	switch {
	case r.overflown:
	case r.kept.Len()+n > maxAnswer:
		r.overflown, r.kept = true, bytes.Buffer{}
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
		x.p.discovery.Invalidate() // before the client knows that it can ask
	}
	if err := x.readSecrets(resp); err != nil {
		return err
	}
	if x.follows() && resp.StatusCode < http.StatusMultipleChoices && resp.StatusCode >= http.StatusOK {
		x.answer = &recording{ReadCloser: resp.Body, contentType: resp.Header.Get("Content-Type")}
		resp.Body = x.answer
	}
	return nil
}

// follows reports whether the answer must be read: it tells which of the owner's
// objects were written, which were deleted, and the names of new ones.
func (x *exchange) follows() bool {
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

// follow notifies the tracker of the objects that the API server has stored, and
// returns them.
func (x *exchange) follow(ctx context.Context) []Child {
	if x.answer == nil || x.answer.overflown {
		return nil
	}
	encoding, ok := objectbody.EncodingOf(x.answer.contentType)
	if !ok {
		return nil
	}
	objects, err := encoding.Names(x.answer.kept.Bytes())
	if err != nil {
		x.p.log.Error(err, "Answer to a write cannot be read; the change may start another run", "path", x.info.Path)
		return nil
	}
	var children []Child
	for _, meta := range objects {
		if x.created && x.info.Verb != "create" && x.code == http.StatusOK && !x.s.AdoptUnowned {
			x.disown(ctx, meta)
			continue
		}
		c := x.child(meta.Kind, meta.Name)
		c.UID, c.ResourceVersion = meta.UID, meta.ResourceVersion
		children = append(children, c)
		switch {
		case x.s.Tracker == nil:
		case x.info.Verb == "delete", x.info.Verb == "deletecollection":
			x.s.Tracker.Deleted(c)
		case c.ResourceVersion != x.version: // else nothing was changed, and the version is another client's
			x.s.Tracker.Wrote(c)
		}
	}
	return children
}

// disown takes the mark off an object that was not there when the run asked to
// create it, and had another owner a moment later.
func (x *exchange) disown(ctx context.Context, m objectbody.Meta) {
	metadata := map[string]any{"uid": m.UID, "resourceVersion": m.ResourceVersion}
	if mark := x.mark(); mark.Reference != nil {
		metadata["ownerReferences"] = slices.DeleteFunc(slices.Clone(m.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return ref.UID == mark.Reference.UID
		})
	} else {
		metadata["annotations"] = map[string]any{annotationOwner: nil, annotationOwnerType: nil}
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, disownTimeout)
		defer cancel()
		header := http.Header{"Content-Type": {string(types.MergePatchType)}, "Accept": {partialMetadata}}
		_, _, err = x.p.call(ctx, http.MethodPatch, x.info.Path, bytes.NewReader(body), header)
	}
	x.marked = false
	if err != nil {
		x.p.log.Error(err, "Mark of the owner cannot be taken off an object that another client has just created", "path", x.info.Path)
	}
}

// disownTimeout bounds the one request of disown.
const disownTimeout = 10 * time.Second

// buffers is the pool of buffers through which answers are copied. It implements
// [httputil.BufferPool].
type buffers struct{ free sync.Pool }

// bufferSize is io.Copy's own.
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
