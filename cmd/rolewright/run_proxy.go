package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/metrics/usermetrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/rbac"
)

// newProxy opens the port of the API proxy. grant is for clients without a
// token, with --proxy-anonymous.
func (o *runOptions) newProxy(
	ctx context.Context, c cluster, l *lease, grant func(proxy.Owner) proxy.Grant,
	recorder *metrics.Recorder, calls *rbac.Recorder, log logr.Logger,
) (*proxy.Proxy, error) {
	options := proxy.Options{Config: c.config, Port: o.proxyPort, Log: log.WithName("proxy"), Metrics: recorder}
	if o.jobURL != "" {
		options.JobNamespace = cmp.Or(o.jobNamespace, podNamespace())
	}
	if l != nil {
		options.MayWrite = l.held
		options.Election.Namespace, options.Election.Name, _ = strings.Cut(l.Describe(), "/")
	}
	if o.proxyAnonymous {
		options.Anonymous = grant
	}
	recorder.ProxyAnonymous(o.proxyAnonymous)
	options.Record = recordCalls(calls, options.Log)
	return proxy.New(ctx, options)
}

// openCallRecord opens the file of --record-api-calls; calls is nil without that flag.
func (o *runOptions) openCallRecord() (calls *rbac.Recorder, end func(), err error) {
	if o.recordAPICalls == "" {
		return nil, func() {}, nil
	}
	if calls, err = rbac.OpenRecorder(o.recordAPICalls); err != nil {
		return nil, nil, fmt.Errorf("--record-api-calls: %w", err)
	}
	return calls, func() { _ = calls.Close() }, nil // each line was written as its call arrived
}

// recordCalls returns a function that passes calls of the proxy on to the record; nil without
// a record. A failure is logged once: a full disk must not fail runs.
func recordCalls(calls *rbac.Recorder, log logr.Logger) func(proxy.Call) {
	if calls == nil {
		return nil
	}
	var logged atomic.Bool
	return func(c proxy.Call) {
		call := rbac.Call{
			Verb: c.Verb, Group: c.Resource.Group, Version: c.Resource.Version, Resource: c.Resource.Resource,
			Subresource: c.Subresource, Namespaced: c.Namespaced, Owned: c.Owned,
		}
		if !c.Owner.Empty() {
			call.Owner = c.Owner.String()
		}
		if err := calls.Record(call); err != nil && !logged.Swap(true) {
			log.Error(err, "An API call is missing from the record (--record-api-calls), and others may be")
		}
	}
}

// serveUserMetrics opens the address to which roles post metrics, and returns
// a function that serves it until its context ends.
func (o *runOptions) serveUserMetrics(ctx context.Context, handler *usermetrics.Handler) (func(context.Context) error, error) {
	if o.userMetricsAddress == "" || o.userMetricsAddress == "0" {
		return func(context.Context) error { return nil }, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", o.userMetricsAddress)
	if err != nil {
		return nil, fmt.Errorf("listen for the metrics of roles: %w; choose another address with --user-metrics-bind-address (0: none)", err)
	}
	return func(ctx context.Context) error {
		if err := handler.Serve(ctx, listener); err != nil {
			return fmt.Errorf("serve the metrics of roles: %w", err)
		}
		return nil
	}, nil
}
