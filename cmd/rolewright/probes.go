package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/rolewright/rolewright/controller"

	"github.com/rolewright/rolewright/controller/assembly"
)

// probes answers the kubelet as long as the process lives: also between two
// managers, when an operator that has left its Lease to another client is on standby
// again.
type probes struct {
	listener net.Listener // nil if nothing is served
	runner   *assembly.RunnerCheck
	set      atomic.Pointer[controller.Set]
	// webhooks checks that the API server gets answers; nil if the operator serves no webhooks.
	webhooks healthz.Checker
}

// newProbes starts to listen.
func (o *runOptions) newProbes(ctx context.Context, check *assembly.RunnerCheck) (*probes, error) {
	p := &probes{runner: check}
	if o.healthBindAddress == "" || o.healthBindAddress == "0" {
		return p, nil
	}
	var lc net.ListenConfig
	var err error
	if p.listener, err = lc.Listen(ctx, "tcp", o.healthBindAddress); err != nil {
		return nil, fmt.Errorf("prepare the operator: listen for health probes: %w; choose another address with --health-probe-bind-address (0: none)", err)
	}
	return p, nil
}

// serve answers until ctx ends.
func (p *probes) serve(ctx context.Context) error {
	if p.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	ready := map[string]healthz.Checker{"readyz": healthz.Ping, "ansible-runner": p.runner.Check, "caches": p.served, "webhooks": healthz.Ping}
	if p.webhooks != nil {
		// The API server asks only Pods that are ready. Reading a kind may need their conversions, and a kind that
		// cannot be read must not block writes to the others.
		delete(ready, "caches")
		ready["webhooks"] = p.webhooks
	}
	for path, checks := range map[string]map[string]healthz.Checker{
		// The liveness checks stay trivial: a restart of the process cures neither
		// a missing ansible-runner nor an unreachable API server.
		"/healthz": {"healthz": healthz.Ping, "ping": healthz.Ping},
		"/readyz":  ready,
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	server := &http.Server{Handler: mux, MaxHeaderBytes: 1 << 16, IdleTimeout: 90 * time.Second, ReadHeaderTimeout: 30 * time.Second}
	if err := serveUntil(ctx, server, p.listener); err != nil {
		return fmt.Errorf("serve health probes: %w", err)
	}
	return nil
}

// serveUntil serves until ctx ends, which cuts off requests in progress, or until one of the listeners fails.
func serveUntil(ctx context.Context, server *http.Server, listeners ...net.Listener) error {
	serving, ctx := errgroup.WithContext(ctx)
	serving.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	for _, l := range listeners {
		serving.Go(func() error { return server.Serve(l) })
	}
	if err := serving.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// errNoSet is the error until the first manager has started.
var errNoSet = errors.New("the operator has not started yet")

func (p *probes) served(*http.Request) error {
	set := p.set.Load()
	if set == nil {
		return errNoSet
	}
	return set.Ready()
}
