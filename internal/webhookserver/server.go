// Package webhookserver answers the API server: it runs the commands of webhooks and
// converts objects, over HTTPS with a certificate that it can make and renew itself.
package webhookserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/supervise"
)

// Options say what is served, and how.
type Options struct {
	// Watches returns the current watches.
	Watches func() []watches.Watch
	// Host is the address to listen on, empty for all, and Port the port.
	Host string
	Port int
	// CertDir has tls.crt and tls.key, which are read again when they change. It is empty
	// if Certificates makes them.
	CertDir      string
	Certificates *Certificates
	// Dir is the directory in which each call of a command gets a directory. Only the operator
	// has access to it.
	Dir        string
	Supervisor *supervise.Launcher
	// Schemas has the schemas of the versions to which objects are converted.
	Schemas *Schemas
	Metrics *metrics.Recorder
	Log     logr.Logger
}

// Server answers the API server's requests for admission and conversion.
type Server struct {
	Options

	server webhook.Server
	// calls and conversions limit the work at a time: any client that reaches the port may
	// send requests, without a token. A large review takes all places for conversions.
	calls       chan struct{}
	conversions *semaphore.Weighted
	// bodies and questions count the bytes in memory of reviews to convert, and of requests
	// for admission. They have separate limits, so that neither kind uses up all memory.
	bodies, questions atomic.Int64
	// These limit the lines in the log about what any client can cause: requests for webhooks that no
	// watch has, webhooks without an answer, and conversions that fail.
	logged, unanswered, unconverted rate.Sometimes
}

const (
	// maxCalls is how many commands run at a time; others wait as long as the API server does.
	maxCalls = 4
	// maxConversions is how many reviews are answered at a time, and maxReview how many bytes one
	// may have. The API server asks about each object of a list by itself, as it reads them.
	maxConversions = 4
	maxReview      = 16 << 20
	// smallReview is how many bytes a review may have that takes only one of the places.
	smallReview = 256 << 10
	// maxObject is how many bytes an object to convert may have, as many as the API server reads in a
	// request. A decoded object takes up to 50 times the memory of its text.
	maxObject = 3 << 20
	// maxBodies is how many bytes of reviews are in memory at a time, including those that have
	// not arrived completely.
	maxBodies = 4 * maxReview
	// maxQuestions is the same for requests for admission, and maxQuestion how many bytes of one
	// controller-runtime reads.
	maxQuestions = 64 << 20
	maxQuestion  = 7 << 20
)

// New returns a server that is not started.
func New(o Options) *Server {
	if o.Certificates != nil {
		o.Certificates.served = make(chan struct{})
	}
	s := &Server{
		Options: o, calls: make(chan struct{}, maxCalls), conversions: semaphore.NewWeighted(maxConversions),
		logged:      rate.Sometimes{Interval: time.Minute},
		unanswered:  rate.Sometimes{First: 10, Interval: time.Minute},
		unconverted: rate.Sometimes{First: 10, Interval: time.Minute},
	}
	mux := http.NewServeMux()
	mux.HandleFunc(hooks.ConvertPath, s.convert)
	mux.HandleFunc("/", s.answer)
	s.server = webhook.NewServer(webhook.Options{Host: o.Host, Port: o.Port, CertDir: o.CertDir, WebhookMux: mux, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"}
		if o.Certificates != nil {
			c.GetCertificate = o.Certificates.get
		}
	}}})
	return s
}

// Ready checks that the server answers.
func (s *Server) Ready() healthz.Checker { return s.server.StartedChecker() }

// Serve answers requests until ctx ends. It begins when there is a certificate.
func (s *Server) Serve(ctx context.Context) error {
	if s.Certificates != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Certificates.served:
		}
	}
	if err := s.server.Start(ctx); err != nil {
		return fmt.Errorf("serve webhooks: %w; --webhook-port is their port, --webhook-cert-dir has their certificate", err)
	}
	return nil
}

// patience is how long the API server waits for a conversion.
const patience = 30 * time.Second

// errFull is the error of reading a request while too many bytes of others are in memory.
var errFull = errors.New("the operator has no memory for more requests: try again")

// errUnknown is the answer to a request for a webhook that no watch has.
var errUnknown = errors.New("the webhook configuration in the cluster is not that of the operator's watches file: apply the output of rolewright generate webhooks for that file, and delete what is not in it")

// bound limits the time in which a client has to send its request to patience, and the time until
// it has read the answer to twice that. Any client in the cluster may send requests.
func bound(w http.ResponseWriter) {
	connection, now := http.NewResponseController(w), time.Now()
	_ = connection.SetReadDeadline(now.Add(patience)) // without deadlines, as in tests, nothing is slow
	_ = connection.SetWriteDeadline(now.Add(2 * patience))
}

// counted is the body of a request. It counts the bytes that were read, of this request in own and of all in all.
type counted struct {
	io.Reader

	all  *atomic.Int64
	most int64
	own  int64
}

// Read fails if more than most bytes of all requests were read.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.own += int64(n)
	if c.all.Add(int64(n)) > c.most {
		return n, errFull
	}
	return n, err
}

// take returns the whole body, which counts until giveBack. If it is not ok, the client has got an error.
func (c *counted) take(w http.ResponseWriter) (body []byte, ok bool) {
	body, err := io.ReadAll(c)
	switch {
	case errors.Is(err, errFull):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
	}
	return body, err == nil
}

func (c *counted) giveBack() { c.all.Add(-c.own) }

// answer runs the command that belongs to the path.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	bound(w)
	for _, h := range hooks.Hooks(s.Watches()) {
		if h.Path == r.URL.Path {
			s.admit(w, r, h)
			return
		}
	}
	// The API server would not pass on the text of a 404.
	http.Error(w, errUnknown.Error(), http.StatusNotImplemented)
	if r.Method != http.MethodPost {
		return // it is not the API server, and no write waits for the answer
	}
	// Any client can name any path, and send many requests: the path is no label.
	s.Metrics.Webhook(schema.GroupKind{}, "unknown", metrics.WebhookFailed, 0)
	s.logged.Do(func() {
		s.Log.Error(errUnknown, "A webhook has no answer", "path", text.Clip(r.URL.Path, maxSaid))
	})
}

// admit runs the command of the hook.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, h hooks.Hook) {
	sent := &counted{Reader: io.LimitReader(r.Body, maxQuestion), all: &s.questions, most: maxQuestions}
	defer sent.giveBack()
	body, ok := sent.take(w)
	if !ok {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	(&admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		return s.ask(ctx, h, req)
	})}).ServeHTTP(w, r)
}

// enter waits for a place; it returns false if the client has gone.
func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// convert answers a ConversionReview. It fails as a whole if one object cannot be converted.
func (s *Server) convert(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	bound(w)
	sent := &counted{Reader: http.MaxBytesReader(w, r.Body, maxReview), all: &s.bodies, most: maxBodies}
	defer sent.giveBack()
	body, ok := sent.take(w)
	if !ok {
		return
	}
	answer, code := s.reviewed(ctx, body)
	if code != http.StatusOK {
		http.Error(w, string(answer), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(answer); err != nil {
		s.Log.V(1).Info("The answer to a conversion request could not be sent", "reason", err.Error())
	}
}

// reviewed returns the answer to a ConversionReview, or why there is none. It takes one of the
// places for conversions. A slow client cannot hold a place: the request has been read before,
// and the answer is sent afterwards.
func (s *Server) reviewed(ctx context.Context, body []byte) (answer []byte, code int) {
	places := int64(1)
	if len(body) > smallReview {
		places = maxConversions
	}
	if s.conversions.Acquire(ctx, places) != nil {
		return []byte("busy"), http.StatusServiceUnavailable
	}
	defer s.conversions.Release(places)
	var asked review
	if err := utiljson.Unmarshal(body, &asked); err != nil || asked.Request == nil {
		return []byte("no ConversionReview with a request"), http.StatusBadRequest
	}
	answer, err := encode(apiextensionsv1.ConversionReview{TypeMeta: asked.TypeMeta, Response: s.review(ctx, asked.Request)})
	if err != nil {
		return []byte("encode the answer: " + err.Error()), http.StatusInternalServerError
	}
	return answer, http.StatusOK
}

// review is a ConversionReview. Its objects are decoded one by one: a list of small ones takes many
// times the memory of its text.
type review struct {
	metav1.TypeMeta `json:",inline"`

	Request *request `json:"request"`
}

type request struct {
	UID               types.UID       `json:"uid"`
	DesiredAPIVersion string          `json:"desiredAPIVersion"`
	Objects           json.RawMessage `json:"objects"`
}

// encode encodes without escapes for HTML, which have six times the length.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

// review converts the objects of a request, all or none. They are of one kind.
func (s *Server) review(ctx context.Context, asked *request) *apiextensionsv1.ConversionResponse {
	start, result, kind := time.Now(), metrics.WebhookConverted, schema.GroupKind{}
	defer func() { s.Metrics.Webhook(kind, "convert", result, time.Since(start)) }()
	response := &apiextensionsv1.ConversionResponse{UID: asked.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	objects := json.NewDecoder(bytes.NewReader(asked.Objects))
	_, _ = objects.Token() // the bracket of the list
	for objects.More() {
		var raw json.RawMessage
		err := ctx.Err() // the client may have gone
		if err == nil {
			err = objects.Decode(&raw)
		}
		if err == nil {
			kind, raw, err = s.converted(ctx, raw, asked.DesiredAPIVersion)
		}
		if err != nil {
			err = errors.New(text.Clip(err.Error(), maxSaid)) // a client can send names of any length
			s.unconverted.Do(func() { s.Log.Error(err, "An object could not be converted") })
			result = metrics.WebhookFailed
			response.ConvertedObjects, response.Result = nil, metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: raw})
	}
	return response
}

// converted returns an object in another version, and its kind if a watch has a conversion of it. The object is
// decoded as a whole only then.
func (s *Server) converted(ctx context.Context, raw []byte, desired string) (schema.GroupKind, []byte, error) {
	if len(raw) > maxObject {
		return schema.GroupKind{}, nil, fmt.Errorf("an object has %d bytes: at most %d can be converted", len(raw), maxObject)
	}
	var is metav1.TypeMeta
	if err := utiljson.Unmarshal(raw, &is); err != nil {
		return schema.GroupKind{}, nil, fmt.Errorf("read an object: %w", err)
	}
	gk := is.GroupVersionKind().GroupKind()
	group, version, _ := strings.Cut(desired, "/")
	for _, w := range s.Watches() {
		if w.GVK.GroupKind() != gk || len(w.Webhooks.Conversion) == 0 {
			continue
		}
		if group != gk.Group || version == "" {
			return gk, nil, fmt.Errorf("%s cannot become %s", gk, desired)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw); err != nil {
			return gk, nil, fmt.Errorf("read an object: %w", err)
		}
		err := hooks.Convert(o, version, w, func(version, path string, value any) (bool, error) {
			return s.Schemas.fit(ctx, gk.WithVersion(version), path, value)
		})
		if err != nil {
			return gk, nil, err
		}
		became, err := encode(o.Object)
		return gk, became, err
	}
	return schema.GroupKind{}, nil, fmt.Errorf("no watch has a conversion of %s: write webhooks.conversion, or spec.conversion.strategy None into its CustomResourceDefinition", gk)
}
