package operatorpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/page"
)

// ask has the API answer in this process as it answers a client with the token.
func (s *server) ask(token string) func(context.Context, string, url.Values) (*http.Response, error) {
	return func(ctx context.Context, path string, query url.Values) (*http.Response, error) {
		ctx, cancel := context.WithCancel(ctx)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.Root+path+"?"+query.Encode(), nil)
		if err != nil {
			cancel()
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp := answer(s.API, req, cancel, s.Log)
		if resp.StatusCode == http.StatusOK {
			return resp, nil
		}
		defer func() { _ = resp.Body.Close() }() // it was read
		var said metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			return nil, fmt.Errorf("answer of the API: %w", err)
		}
		switch resp.StatusCode {
		case http.StatusNotFound:
			return nil, fmt.Errorf("%s: %w", said.Message, page.ErrNotFound)
		case http.StatusForbidden:
			return nil, fmt.Errorf("%w: %s: open %sNAME/ for the namespace NAME", page.ErrForbidden, said.Message, Namespaces)
		}
		return nil, errors.New(said.Message)
	}
}

// answer is that of a handler, which goes on until its body is closed, or has ended.
func answer(h http.Handler, r *http.Request, cancel context.CancelFunc, log logr.Logger) *http.Response {
	body, out := io.Pipe()
	w := &writer{header: http.Header{}, out: out, code: make(chan int, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil { // which the server would do, were it its goroutine
				log.Error(fmt.Errorf("panic: %v", p), "The API has failed", "stack", string(debug.Stack()))
				w.WriteHeader(http.StatusInternalServerError)
				_ = out.CloseWithError(errors.New("the API has failed; see the operator's log"))
			}
		}()
		h.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = out.Close()
	}()
	return &http.Response{StatusCode: <-w.code, Body: &answerBody{body, cancel, ended}}
}

// answerBody ends the handler when it is closed.
type answerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  <-chan struct{}
}

// Close waits for the handler.
func (b *answerBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}

// writer hands on the code of an answer, and its body.
type writer struct {
	header http.Header
	out    *io.PipeWriter
	once   sync.Once
	code   chan int
}

// Header is that of the answer, which is of no use here.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader hands on the first code.
func (w *writer) WriteHeader(code int) { w.once.Do(func() { w.code <- code }) }

// Write waits until b is read.
func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

// Flush does nothing: what is written has been read.
func (w *writer) Flush() {}
