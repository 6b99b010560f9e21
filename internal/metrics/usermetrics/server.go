package usermetrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Clients are on the same machine and send one small request. A client that
// takes longer is no longer alive. readHeaderTimeout is ansible-operator's.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 5 * time.Second
	writeTimeout      = 5 * time.Second
	idleTimeout       = 30 * time.Second
	maxHeaderBytes    = 16 << 10
)

// Serve answers POST /metrics on l until ctx is done. It returns nil when the
// requests in progress have been answered; for slow ones, only the timeouts limit
// that. Any other end of the listener is an error. It closes l.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", h)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	h.opts.Log.Info("Starting to serve metrics listener", "address", l.Addr().String())
	serving := manager.Server{Name: "metrics of roles", Server: server, Listener: l}
	if err := serving.Start(log.IntoContext(ctx, h.opts.Log.V(1))); err != nil {
		return fmt.Errorf("serve user metrics: %w", err)
	}
	return nil
}
