package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// Secrets gets the values of the Secrets that a run reads and writes, and the
// tokens that it asks for, before the run has the answer. Its methods are called
// concurrently.
type Secrets interface {
	// Add adds values. ctx ends with the run; Add must return soon then, because
	// the end of the run waits for it.
	Add(ctx context.Context, values ...string)
	// Withhold is called if a Secret passes whose values cannot be read.
	Withhold()
}

// maxSecrets is how many bytes of an answer about Secrets are read before it is
// passed on, and the size of the largest event of a watch.
const maxSecrets = 16 << 20

// tellsSecrets reports whether values of Secrets, or a token, may be in the
// exchange's bodies.
func (x *exchange) tellsSecrets() bool {
	i := x.info
	return x.s.Secrets != nil && i.IsResourceRequest && i.APIGroup == "" &&
		(i.Resource == "secrets" && i.Subresource == "" || i.Resource == "serviceaccounts" && i.Subresource == "token")
}

// secretsIn returns the values in a body.
func (x *exchange) secretsIn(contentType string, body []byte) ([]string, error) {
	if x.info.Subresource == "token" {
		return objectbody.RequestedToken(body)
	}
	return objectbody.SecretValues(mediaType(contentType), body)
}

// mediaType returns a Content-Type without its parameters; an empty one means JSON.
func mediaType(contentType string) string {
	if contentType == "" {
		return runtime.ContentTypeJSON
	}
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// writtenSecrets passes the values in the body of a request to [Secrets]. It fails
// if the run has ended. Values that cannot be read are in the answer, if the API
// server accepts the request and answers with the object; else finish withholds
// the output.
func (x *exchange) writtenSecrets(contentType string, body []byte) error {
	if !x.tellsSecrets() || x.info.Subresource == "token" || strings.HasPrefix(x.info.Verb, "delete") {
		return nil
	}
	var values []string
	values, x.unread = x.secretsIn(contentType, body)
	return x.tell(values)
}

// readSecrets passes the values in the answer to [Secrets]. It fails if the run
// has ended meanwhile: then [Secrets] may lack the values, and the answer must not
// be passed on.
func (x *exchange) readSecrets(resp *http.Response) error {
	if !x.tellsSecrets() {
		return nil
	}
	switch code := resp.StatusCode; {
	case code >= http.StatusMultipleChoices:
		return nil
	case code == http.StatusSwitchingProtocols:
		x.withhold("it watches them over a websocket")
		return nil
	}
	contentType := resp.Header.Get("Content-Type")
	if mediaType(contentType) != runtime.ContentTypeJSON || resp.Header.Get("Content-Encoding") != "" {
		x.withhold("its answer is of type " + contentType)
		return nil
	}
	if x.info.Verb == "watch" {
		resp.Body = &watchedSecrets{ReadCloser: resp.Body, x: x, hold: x.holdAnswer()}
		return nil
	}
	head, err := io.ReadAll(heldReader{io.LimitReader(resp.Body, maxSecrets+1), x.holdAnswer()})
	rest := io.Reader(resp.Body)
	if errors.Is(err, errNoRoom) {
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
		x.withhold(err.Error())
		return nil
	}
	if err != nil {
		rest = failingReader{err}
	}
	resp.Body = readCloser{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	if err != nil {
		x.withhold("its answer breaks off: " + err.Error())
		return nil //nolint:nilerr // the client reads the error there
	}
	if len(head) > maxSecrets {
		x.withhold("its answer is larger than 16 MiB")
		return nil
	}
	values, err := x.secretsIn(contentType, head)
	if err != nil {
		x.withhold(err.Error())
		return nil
	}
	if meta, err := objectbody.Read(head); err == nil && meta.Kind == "Secret" {
		x.unread = nil // a table or the metadata alone would not show what was written
	}
	return x.tell(values)
}

// tell adds values to those of the run, and fails if the run has ended.
func (x *exchange) tell(values []string) error {
	x.s.Secrets.Add(x.s.ctx, values...)
	return context.Cause(x.s.ctx)
}

func (x *exchange) withhold(why string) {
	x.s.Secrets.Withhold()
	x.notice(&x.s.notices.hidden, "Output of the run is hidden: the values of a Secret that it has read are not known", why)
}

type readCloser struct {
	io.Reader
	io.Closer
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// watchedSecrets passes the values of each event, which is a line, to [Secrets]
// before the end of the line is passed on.
type watchedSecrets struct {
	io.ReadCloser
	x     *exchange
	hold  *hold
	frame []byte
	lost  bool
}

// Read implements [io.Reader].
func (w *watchedSecrets) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if w.lost {
		return n, err
	}
	if !w.hold.grow(n) {
		w.lose(errNoRoom.Error())
		return n, err
	}
	w.frame = append(w.frame, b[:n]...)
	for {
		end := bytes.IndexByte(w.frame, '\n')
		if end < 0 {
			break
		}
		values, err := objectbody.SecretValues(runtime.ContentTypeJSON, w.frame[:end])
		if err != nil {
			w.lose(err.Error())
			break
		}
		if err := w.x.tell(values); err != nil {
			return 0, err
		}
		w.frame = slices.Delete(w.frame, 0, end+1)
	}
	if w.hold.shrink(int64(len(w.frame))); len(w.frame) == 0 {
		w.frame = nil // release the memory of a large event
	}
	if len(w.frame) > maxSecrets {
		w.lose("an event is larger than 16 MiB")
	} else if err != nil && len(w.frame) > 0 {
		w.lose("the last event breaks off")
	}
	return n, err
}

func (w *watchedSecrets) lose(why string) {
	w.lost, w.frame = true, nil
	w.hold.shrink(0)
	w.x.withhold(why)
}
