package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/runner/remote"
)

// expectedFor is how long a request waits for a run that is expected; see [Proxy.Expect].
const expectedFor = 2 * time.Minute

// Expect has requests with a token wait until the run is admitted that has it: an earlier process
// has begun the run, and this one is about to find it.
func (p *Proxy) Expect(token string) {
	p.sessions.mu.Lock()
	defer p.sessions.mu.Unlock()
	digest := sha256.Sum256([]byte(token))
	if p.sessions.byToken[digest] == nil && p.sessions.expected[digest] == nil {
		p.sessions.expected[digest] = make(chan struct{})
	}
}

// Unexpect ends what Expect has begun: the run will not come.
func (p *Proxy) Unexpect(token string) {
	p.sessions.mu.Lock()
	defer p.sessions.mu.Unlock()
	p.sessions.arrived(sha256.Sum256([]byte(token)))
}

// arrived lets those in that wait for a token. It is called under the lock.
func (t *sessions) arrived(digest [sha256.Size]byte) {
	if waiting := t.expected[digest]; waiting != nil {
		delete(t.expected, digest)
		close(waiting)
	}
}

// await waits for the run of a token, if one is expected; false if it is still expected then.
func (t *sessions) await(ctx context.Context, token string) bool {
	t.mu.Lock()
	waiting := t.expected[sha256.Sum256([]byte(token))]
	t.mu.Unlock()
	if waiting == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, expectedFor)
	defer cancel()
	select {
	case <-waiting:
		return true
	case <-ctx.Done():
		return false
	}
}

// drain is how long requests in progress may take once ServeRemote is to end.
const drain = 5 * time.Second

// remote answers runs in other Pods; see [Proxy.ServeRemote].
func (p *Proxy) remote(root string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, root) {
			handler.ServeHTTP(w, r)
			return
		}
		token, ok := bearer(r.Header)
		if !ok {
			refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the API proxy wants the token of a run in progress").write(w)
			return
		}
		if !p.sessions.await(r.Context(), token) {
			w.Header().Set("Retry-After", "5")
			w.Header().Set(remote.LaterHeader, "true")
			refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the operator has not found this run yet, which an earlier process has begun").write(w)
			return
		}
		p.ServeHTTP(w, r)
	})
}

// ServeRemote serves runs in other Pods until ctx ends: the requests below root by handler, all
// others as the loopback addresses do, but with TLS and with the token of a run only. It closes
// listener. It has to end before the context of [Proxy.Start] does.
func (p *Proxy) ServeRemote(ctx context.Context, listener net.Listener, certificate tls.Certificate, root string, handler http.Handler) error {
	server := &http.Server{
		Handler:           p.remote(root, handler),
		ReadHeaderTimeout: p.headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaderBytes,
		DisableGeneralOptionsHandler: true, ErrorLog: p.errorLog(),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve runs in other Pods: %w", err)
	case <-ctx.Done():
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	_ = server.Shutdown(patient)
	_ = server.Close()
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve runs in other Pods: %w", err)
	}
	return nil
}
