package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// Requests from other Pods need the token of a run in progress. Without one they are refused, and never get the operator's own
// rights.
func TestServeRemote_WantsTheTokenOfARun(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testenv.Config(t), func(o *Options) { o.Anonymous = func(Owner) Grant { return Grant{} } })
	handler := p.remote("/none/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	for _, authorization := range []string{"", "Bearer a token", "Bearer a.b.c", "Basic b3duZXI6"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		r.Host = "127.0.0.1"
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("with the authorization %q it is answered %d, want %d", authorization, w.Code, http.StatusUnauthorized)
		}
	}
}

// When another replica takes over a run, the requests in progress are still answered here. Later requests go to the handler
// that knows the new place; they are not refused like those of a run that has ended, because that would fail tasks.
func TestServeRemote_OfARunThatIsLeft(t *testing.T) {
	t.Parallel()
	arrived, answers := make(chan struct{}), make(chan struct{})
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/n/configmaps" {
			close(arrived)
			<-answers
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}, plainly)
	p := startProxy(t, api.config())
	const elsewhere = http.StatusTeapot
	server := httptest.NewServer(p.remote("/none/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(elsewhere) })))
	t.Cleanup(server.Close)
	a, client, _ := admit(t, p, Grant{})
	get := func(path string) int {
		code, _, err := send(t.Context(), client, http.MethodGet, server.URL+path, "")
		must.Do(t, err)
		return code
	}
	inProgress, left := make(chan int, 1), make(chan struct{})
	go func() { inProgress <- get("/api/v1/namespaces/n/configmaps") }()
	<-arrived
	go func() {
		defer close(left)
		a.Leave(time.Hour)
	}()
	for get("/api/v1/namespaces/n/secrets") == http.StatusOK {
		// it is about to be left
	}
	must.Be(t, "a later request", elsewhere, get("/api/v1/namespaces/n/secrets"))
	close(answers)
	must.Be(t, "the request in progress", http.StatusOK, <-inProgress)
	<-left
}

// The Pod sees from the end of an exec's connection that it was cut off, so the role does not fail.
func TestServeRemote_CutsAnExecOutOfOrder(t *testing.T) {
	t.Parallel()
	ends := make(chan struct{})
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		if r.URL.Path == pod+"exec" {
			<-ends
		}
	}, plainly)
	t.Cleanup(func() { close(ends) })
	p := startProxy(t, api.config())
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.ServeRemote(ctx, listener, p.certificate, "/none/", http.NotFoundHandler()) }()
	a, _, token := admit(t, p, Grant{})
	for _, subresource := range []string{"attach", "exec"} {
		tap := &tapped{Conn: must.Get((&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String()))(t)}
		conn, r := upgraded(t, func(testing.TB) net.Conn {
			return tls.Client(tap, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) // TLS 1.2 shows how the connection ends
		}, token, http.MethodGet, pod+subresource, "websocket")
		cut := subresource == "exec"
		if cut {
			a.Leave(0)
		}
		_, _ = io.Copy(io.Discard, r)
		must.Be(t, subresource+" ended in order", !cut, tap.endsInOrder())
		_ = conn.Close()
	}
	cancel()
	must.Do(t, <-served)
}

// A run in another Pod goes on with the next leader. A replica that no longer leads leaves the run's writes unanswered,
// because an answer would fail tasks.
func TestServeRemote_LeavesWritesUnansweredWhenItDoesNotLead(t *testing.T) {
	t.Parallel()
	api := script(t, nil, plainly)
	var lost atomic.Bool
	p := startProxy(t, api.config(), func(o *Options) {
		o.MayWrite = func() error {
			if lost.Load() {
				return errFollower
			}
			return nil
		}
	})
	server := httptest.NewServer(p.remote("/none/", http.NotFoundHandler()))
	t.Cleanup(server.Close)
	a, client, _ := admit(t, p, Grant{})
	write := func() (int, error) {
		code, _, err := send(t.Context(), client, http.MethodPost, server.URL+"/api/v1/namespaces/n/configmaps", "{}")
		return code, err
	}
	if code, err := write(); err != nil || code != http.StatusOK {
		t.Errorf("while it leads, a write is answered %d, %v", code, err)
	}
	lost.Store(true)
	if code, err := write(); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("a write is answered %d, %v", code, err)
	}
	if code, _, err := send(t.Context(), client, http.MethodGet, server.URL+"/api/v1/namespaces/n/configmaps", ""); err != nil || code != http.StatusOK {
		t.Errorf("a read is answered %d, %v", code, err)
	}
	a.Refuse("the object is deleted")
	if code, err := write(); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("a write that no replica forwards is answered %d, %v", code, err)
	}
}

// A client without the token of a run cannot keep a connection open. No client can send long headers, which take many times
// their size in memory.
func TestServeRemote_BoundsWhatHasNoToken(t *testing.T) {
	t.Parallel()
	p := startProxy(t, script(t, nil, plainly).config())
	_, _, token := admit(t, p, Grant{})
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- p.ServeRemote(ctx, listener, p.certificate, "/none/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	}()
	client := &http.Client{Transport: trusting(t, p)}
	for name, tt := range map[string]struct {
		token, host, header string
		code                int
		closed              bool
	}{
		"no token":         {"", "", "", http.StatusUnauthorized, true},
		"an unknown token": {"unknown", "", "", http.StatusUnauthorized, true},
		"a foreign Host":   {"unknown", "example.com", "", http.StatusForbidden, true},
		"a run":            {token, "", strings.Repeat("x", 24<<10), http.StatusOK, false},
		"a long header":    {token, "", strings.Repeat("x", 48<<10), http.StatusRequestHeaderFieldsTooLarge, true},
	} {
		r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+listener.Addr().String()+"/api/v1/namespaces/n/configmaps/x", http.NoBody))(t)
		r.Host = tt.host
		r.Header.Set("X-Long", tt.header)
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+tt.token)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.code || resp.Close != tt.closed {
			t.Errorf("%s: %s, the connection is closed: %t", name, resp.Status, resp.Close)
		}
	}
	cancel()
	must.Do(t, <-served)
}

// Each request has its own connection: HTTP/2 would carry hundreds of requests in one and so pass the limit of connections.
func TestServeRemote_SpeaksNoHTTP2(t *testing.T) {
	t.Parallel()
	p := startProxy(t, script(t, nil, plainly).config())
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.ServeRemote(ctx, listener, p.certificate, "/none/", http.NotFoundHandler()) }()
	for _, protocol := range []string{"http/1.1", "h2"} {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}} // the test checks only the offered protocol, and sends nothing
		conn, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
		if (err == nil) != (protocol == "http/1.1") {
			t.Errorf("a client that speaks %s: %v", protocol, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	cancel()
	must.Do(t, <-served)
}
