package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drain is how long requests in progress may still take when ServeRemote has to end.
const drain = 5 * time.Second

// Limits for clients in other Pods. Pods without a token can connect, too; what they send before they are refused can
// take some forty times its size in memory, as names of header lines. A Pod of a run gives an attempt up in half of
// remoteHeaderTimeout.
const (
	remoteHeaderTimeout = 10 * time.Second
	remoteHeaderBytes   = 32 << 10
	remoteIdleTimeout   = 30 * time.Second
)

// remote answers runs in other Pods; see [Proxy.ServeRemote].
func (p *Proxy) remote(root string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r.Header)
		below := strings.HasPrefix(r.URL.Path, root)
		if !below && p.sessions.find(token) == nil {
			w.Header().Set("Connection", "close") // else a client without access would keep a connection, whose number is limited
		}
		if below || !ok { // do not wait forever for a body that was announced and does not come
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.bodyTimeout))
		}
		if below {
			handler.ServeHTTP(w, r)
			return
		}
		if !ok {
			refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the API proxy wants the token of a run in progress").write(w)
			return
		}
		p.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), remoteKey{}, handler)))
	})
}

// remoteKey is the key, in the context of a request of a run in another Pod, of the handler that answers requests with
// unknown tokens.
type remoteKey struct{}

func isRemote(r *http.Request) bool { return r.Context().Value(remoteKey{}) != nil }

// ServeRemote serves runs in other Pods until ctx ends. handler serves the requests below root, and those with an unknown
// token. All others are served as on the loopback addresses, but only with TLS and the token of a run. ServeRemote closes
// listener. It has to end before the context of [Proxy.Start] does.
func (p *Proxy) ServeRemote(ctx context.Context, listener net.Listener, certificate tls.Certificate, root string, handler http.Handler) error {
	server := p.server(p.remote(root, handler), certificate)
	server.ReadHeaderTimeout, server.MaxHeaderBytes = min(p.headerTimeout, remoteHeaderTimeout), remoteHeaderBytes
	server.IdleTimeout = remoteIdleTimeout
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
