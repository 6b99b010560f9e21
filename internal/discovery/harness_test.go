package discovery

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// script is an API server that answers with a function. It runs in the goroutine of the client, so that tests under
// synctest use the clock of their bubble.
type script struct {
	mu       sync.Mutex
	answer   http.HandlerFunc
	requests []*http.Request
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Clone(r.Context()))
	answer := s.answer
	s.mu.Unlock()
	w := httptest.NewRecorder()
	answer(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// will sets the function that answers later requests.
func (s *script) will(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// asked returns the requests since the last call.
func (s *script) asked() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = nil }()
	return s.requests
}

// wantAsked fails unless there were n requests since the last call of asked.
func (s *script) wantAsked(t *testing.T, n int) {
	t.Helper()
	if got := s.asked(); len(got) != n {
		t.Fatalf("the API server was asked %d times, want %d", len(got), n)
	}
}

// scripted returns an empty cache in front of a script. Under synctest, time passes when all goroutines wait.
func scripted(t *testing.T, answer http.HandlerFunc) (*Cache, *script) {
	t.Helper()
	s := &script{answer: answer}
	return newCache(t, s, "https://cluster.test"), s
}

func newCache(t *testing.T, transport http.RoundTripper, server string) *Cache {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatalf("parse the server's URL: %v", err)
	}
	return New(transport, at, logr.Discard())
}

// says answers with a status, a body and a header in pairs.
func says(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// tagged answers like an API server that sends an ETag.
func tagged(tag, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == tag {
			says(http.StatusNotModified, "", "ETag", tag)(w, r)
			return
		}
		says(http.StatusOK, body, "ETag", tag, "Content-Type", "application/json")(w, r)
	}
}

// ask sends a request to the cache and returns the answer. The header comes in pairs.
func ask(t *testing.T, c *Cache, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if !Handles(r) {
		t.Fatalf("%s is not handled", path)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// want fails unless the answer has that status and body.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || w.Body.String() != body {
		t.Fatalf("the answer is %d %q, want %d %q", w.Code, w.Body, status, body)
	}
}
