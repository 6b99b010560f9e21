package usermetrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Clients are on the same machine and send one small request: a client that
// takes longer has stopped. readHeaderTimeout is ansible-operator's.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 5 * time.Second
	writeTimeout      = 5 * time.Second
	idleTimeout       = 30 * time.Second
	maxHeaderBytes    = 16 << 10
)

// Serve answers POST /metrics on l until ctx is done, and returns nil when the
// requests in progress have been answered; slow ones delay that by some seconds,
// never longer. Any other end of the listener is an error. It closes l.
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
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	// No deadline: the time that each request has is one. What it returns is
	// the listener's, and who serves has that.
	_ = server.Shutdown(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("serve user metrics: %w", err)
	}
	_ = <-served // http.ErrServerClosed, which says what is known
	return nil
}
