package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/trace"
)

// leastGrace is what a stop takes even when no run may go on: the processes
// of the runs are ended and their results recorded. With a timeout of 0,
// controller-runtime would allow no time at all for that.
const leastGrace = 10 * time.Second

// noLimit is longer than any operator runs, and short enough to be added to a
// time.
const noLimit = 100 * 365 * 24 * time.Hour

// grace is how long the manager waits for its parts to stop.
func (o *runOptions) grace() time.Duration {
	if o.gracefulShutdown < 0 {
		return noLimit
	}
	return max(o.gracefulShutdown, leastGrace)
}

// managerOptions translates o for controller-runtime.
func (o *runOptions) managerOptions(log logr.Logger) ctrl.Options {
	grace, retry := o.grace(), leaderRetryPeriod
	return ctrl.Options{
		Logger:                  log,
		Cache:                   cache.Options{DefaultNamespaces: o.cacheNamespaces()},
		Metrics:                 o.metricsServerOptions(),
		HealthProbeBindAddress:  "0", // see probes
		GracefulShutdownTimeout: &grace,

		LeaderElection:          o.leaderElect,
		LeaderElectionID:        o.leaderID,
		LeaderElectionNamespace: o.leaderNamespace,
		LeaseDuration:           &o.leaderLeaseDuration,
		RenewDeadline:           &o.leaderRenewDeadline,
		RetryPeriod:             &retry,
		// Safe because the writers end with the manager, and the manager ends with
		// the last run. With shards, other replicas hold the same Lease.
		LeaderElectionReleaseOnCancel: o.shards == 0,
	}
}

// cacheNamespaces returns nil for all namespaces.
func (o *runOptions) cacheNamespaces() map[string]cache.Config {
	if len(o.namespaces) == 0 {
		return nil
	}
	configs := make(map[string]cache.Config, len(o.namespaces))
	for _, name := range o.namespaces {
		configs[name] = cache.Config{}
	}
	return configs
}

func (o *runOptions) metricsServerOptions() metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.metricsBindAddress, SecureServing: o.metricsSecure}
	if o.metricsRequireRBAC {
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if trace.Wanted(os.Getenv) {
		// Exemplars exist in OpenMetrics only. It writes some names and labels differently from
		// the older format, so it is not offered without need.
		options.HandlerOpts = append(options.HandlerOpts, func(h *promhttp.HandlerOpts) { h.EnableOpenMetrics = true })
	}
	if !o.enableHTTP2 {
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return options
}

// newManager returns a manager that serves metrics. It takes part in the election
// for the lease, unless the lease is held already.
func (o *runOptions) newManager(c cluster, lease *lease, log logr.Logger) (ctrl.Manager, error) {
	options, config := o.managerOptions(log), c.config
	if lease != nil {
		config = assembly.Fence(config, lease.held)
	}
	if o.held == nil && lease != nil {
		options.LeaderElectionResourceLockInterface = lease
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("prepare the operator: %w", err)
	}
	return mgr, nil
}
