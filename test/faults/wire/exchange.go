package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// errReset makes the proxy end the connection instead of answering.
var errReset = errors.New("reset by a fault")

// replicaTransport carries the requests of one replica to the API server.
type replicaTransport struct {
	proxy   *Proxy
	replica string
}

// exchange is one request and its answer.
type exchange struct {
	*Proxy
	request *http.Request
	body    []byte
	is      plan.Request
	number  int // in the trace
	action  plan.Action
	wait    []int // rules that wait for an earlier answer
}

// RoundTrip implements [http.RoundTripper].
func (t replicaTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &exchange{Proxy: t.proxy, request: r}
	if r.Body != nil {
		var err error
		if x.body, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		_ = r.Body.Close()
	}
	x.is = x.describe(t.replica, r, x.body)
	x.is.AuditID = uuid.NewString()
	r.Header.Set("Audit-ID", x.is.AuditID) // the API server uses it as the audit ID
	x.number = x.trace.begin(x.is)
	x.action, x.wait = x.rules.take(x.is)
	x.announce(x.is, x.action)
	if resp, err := x.before(); resp != nil || err != nil {
		return resp, err
	}
	resp, err := x.forward()
	if err != nil {
		return nil, err
	}
	return x.after(resp)
}

// announce records what a rule does to r, which is the exchange's own request or an event of it.
func (x *exchange) announce(r plan.Request, a plan.Action) {
	if a.Do == "" {
		return
	}
	x.options.Log.Info("fault", "do", a.Do, "replica", r.Replica, "verb", r.Verb, "resource", r.Resource, "name", r.Name, "event", r.Event)
}

// before does what a rule demands before the API server gets the request. An answer or an error ends the exchange.
func (x *exchange) before() (*http.Response, error) {
	x.trace.amend(x.number, func(r *plan.Request) { r.Fault = x.action.Do })
	switch x.action.Do {
	case plan.CrashBefore:
		if x.crash(x.is.Replica, x.action) {
			return nil, errReset
		}
	case plan.ResetBefore:
		return nil, errReset
	case plan.Block:
		x.hold(x.request.Context(), x.action.For.Duration)
		return nil, errReset
	case plan.Conflict, plan.Throttle, plan.Error, plan.Unavailable, plan.Forbid, plan.Invalid, plan.Gone:
		return refusal(x.request, x.action.Do, x.is), nil
	}
	return nil, nil
}

// forward sends the request to the API server. A request that has to be committed even if the client is gone has a context
// of its own.
func (x *exchange) forward() (*http.Response, error) {
	ctx, cancel := context.WithCancel(x.request.Context())
	switch x.action.Do {
	case plan.CrashAfter, plan.TimeoutAfterCommit, plan.ResetAfter:
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(x.ctx, cancel)
	}
	out := x.request.Clone(ctx)
	out.URL.Path = strings.TrimSuffix(x.server.Path, "/") + x.request.URL.Path
	if x.request.Body != nil {
		out.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	resp, err := x.transport.RoundTrip(out)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	x.trace.amend(x.number, func(r *plan.Request) { r.Code = resp.StatusCode })
	if resp.StatusCode != http.StatusSwitchingProtocols { // then the body is the connection itself
		resp.Body = cancelling{resp.Body, cancel}
	}
	return resp, nil
}

// cancelling ends the request together with its answer.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (c cancelling) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// after does what a rule demands when the API server has answered.
func (x *exchange) after(resp *http.Response) (*http.Response, error) {
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	stream := x.is.Verb == "watch"
	if isJSON && !stream {
		if err := x.read(resp); err != nil {
			return nil, err
		}
	}
	switch x.action.Do {
	case plan.CrashAfter:
		if x.crash(x.is.Replica, x.action) {
			_ = resp.Body.Close()
			return nil, errReset
		}
	case plan.TimeoutAfterCommit:
		_ = resp.Body.Close()
		return refusal(x.request, x.action.Do, x.is), nil
	case plan.ResetAfter:
		_ = resp.Body.Close()
		return nil, errReset
	case plan.Slow:
		resp.Body = &slow{ReadCloser: resp.Body, wait: func() { x.hold(x.request.Context(), x.action.For.Duration) }}
	}
	if stream && isJSON && resp.StatusCode == http.StatusOK {
		resp.Body = newStream(x, resp.Body)
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	return resp, nil
}

// read reads a whole answer, learns from it, and replaces it by an earlier one if a rule wants that.
func (x *exchange) read(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	if resp.StatusCode < http.StatusBadRequest {
		m := meta(body)
		x.trace.amend(x.number, func(r *plan.Request) { learn(r, m) })
	}
	if (x.is.Verb == "get" || x.is.Verb == "list") && x.rules.remembers(x.is) && (resp.StatusCode < 300 || resp.StatusCode == http.StatusNotFound) {
		now := answer{signature: signatureOf(resp.StatusCode, body), code: resp.StatusCode, body: body}
		if earlier, found := x.memory.earlier(keyOf(x.request), now.signature); found && x.stale() {
			resp.StatusCode, resp.Status, body = earlier.code, "", earlier.body
		}
		x.memory.add(keyOf(x.request), now)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length") // net/http sets it
	return nil
}

// stale lets a rule that waits for an earlier answer act, now that there is one.
func (x *exchange) stale() bool {
	a := x.rules.takeStale(x.wait, x.is)
	if a.Do == "" {
		return false
	}
	x.action = a
	x.announce(x.is, a)
	x.trace.amend(x.number, func(r *plan.Request) { r.Fault = a.Do })
	return true
}

// crash sends the signal of a. It reports whether the replica is dead.
func (p *Proxy) crash(replica string, a plan.Action) bool {
	signal := a.Signal
	if signal == "" {
		signal = "KILL"
	}
	// The replica's death ends the request that causes it, but must not end this function.
	p.options.Crash(p.ctx, replica, signal)
	if signal == "STOP" {
		p.hold(p.ctx, a.For.Duration)
		p.options.Crash(p.ctx, replica, "CONT")
	}
	return signal == "KILL"
}

// slow returns the first byte of an answer at once, and the rest after a wait.
type slow struct {
	io.ReadCloser
	started bool
	wait    func()
}

// Read implements [io.Reader].
func (s *slow) Read(b []byte) (int, error) {
	if !s.started && len(b) > 1 {
		n, err := s.ReadCloser.Read(b[:1])
		s.started = n > 0
		return n, err
	}
	if s.wait != nil {
		s.wait()
		s.wait = nil
	}
	return s.ReadCloser.Read(b)
}
