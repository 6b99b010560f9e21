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

// drain is how long requests in progress may take once ServeRemote is to end.
const drain = 5 * time.Second

// Other Pods can connect that have no token: what they send before they are refused takes some forty times its size in memory, as names
// of header lines. A Pod of a run gives each up in half of the time.
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
			w.Header().Set("Connection", "close") // or it would take one of those that there may be
		}
		if below || !ok { // a body that was announced and does not come is not waited for without end
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

// remoteKey is that of the handler that refuses tokens which are not known, in the context of a request of a run in another Pod.
type remoteKey struct{}

func isRemote(r *http.Request) bool { return r.Context().Value(remoteKey{}) != nil }

// ServeRemote serves runs in other Pods until ctx ends: the requests below root by handler, all
// others as the loopback addresses do, but with TLS and with the token of a run only: those with another token by handler, too. It closes
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
