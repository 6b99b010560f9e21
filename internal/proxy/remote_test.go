package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// What comes from other Pods has the token of a run in progress, and is refused without: it has not the operator's own rights.
func TestServeRemote_WantsTheTokenOfARun(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testenv.Config(t))
	handler := p.remote("/none/", http.NotFoundHandler())
	for _, authorization := range []string{"", "Bearer a token", "Basic b3duZXI6"} {
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

// A run in another Pod goes on with the replica that leads next: this one does not answer its writes, which would fail its tasks.
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

// Each request has a connection: HTTP/2 would have hundreds in one, past the limit of connections.
func TestServeRemote_SpeaksNoHTTP2(t *testing.T) {
	t.Parallel()
	p := startProxy(t, script(t, nil, plainly).config())
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.ServeRemote(ctx, listener, p.certificate, "/none/", http.NotFoundHandler()) }()
	for _, protocol := range []string{"http/1.1", "h2"} {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}} //nolint:gosec // what is offered is looked at, and nothing is sent
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
