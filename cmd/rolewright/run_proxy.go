package main

import (
	"context"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/metrics/usermetrics"
	"github.com/rolewright/rolewright/internal/proxy"
)

// newProxy opens the port of the API proxy. grant says what a client without a
// token is granted, where such clients are let in.
func (o *runOptions) newProxy(ctx context.Context, c cluster, l *lease, grant func(proxy.Owner) proxy.Grant, recorder *metrics.Recorder, log logr.Logger) (*proxy.Proxy, error) {
	options := proxy.Options{Config: c.config, Port: o.proxyPort, Log: log.WithName("proxy"), Metrics: recorder}
	if l != nil {
		options.MayWrite = l.held
	}
	if o.proxyAnonymous {
		options.Anonymous = grant
	}
	recorder.ProxyAnonymous(o.proxyAnonymous)
	return proxy.New(ctx, options)
}

// newUserMetrics opens the address to which roles post metrics, and returns
// what serves it until its context ends.
func (o *runOptions) newUserMetrics(ctx context.Context, log logr.Logger) (func(context.Context) error, error) {
	if o.userMetricsAddress == "" || o.userMetricsAddress == "0" {
		return func(context.Context) error { return nil }, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", o.userMetricsAddress)
	if err != nil {
		return nil, fmt.Errorf("listen for the metrics of roles: %w; choose another address with --user-metrics-bind-address (0: none)", err)
	}
	log = log.WithName("metrics")
	handler := usermetrics.New(usermetrics.Options{Registerer: ctrlmetrics.Registry, Log: log})
	return func(ctx context.Context) error {
		defer handler.Close()
		if err := handler.Serve(ctx, listener); err != nil {
			return fmt.Errorf("serve the metrics of roles: %w", err)
		}
		return nil
	}, nil
}
