// Package config has the manifests that differ between operators only in the operator's
// name: the ServiceMonitor, alerts and dashboards, the network policies, the objects that
// runs as Jobs need, the component for replicas that share the objects, and the chart's
// sources.
package config

import "embed"

// Name is the placeholder in these files for the operator's name.
const Name = "memcached-operator"

// Dashboards returns the names of the dashboards, which are in grafana/NAME.json.
func Dashboards() []string { return []string{"overview", "kind", "process"} }

// Files has the manifests of this directory.
//
//go:embed prometheus/*.yaml grafana/*.json network-policy/*.yaml network-policy-egress/*.yaml jobs/*.yaml shards/*.yaml all:chart
var Files embed.FS
