// Package config has the manifests that are the same for all operators, but for
// the operator's name: what collects its metrics, its alerts and dashboards, its
// network policies, what runs as Jobs need, replicas that share the objects, and the
// chart's sources.
package config

import "embed"

// Name stands in the files for the name of the operator.
const Name = "memcached-operator"

// Dashboards are the names of the dashboards, which are in grafana/NAME.json.
func Dashboards() []string { return []string{"overview", "kind", "process"} }

// Files are those of this directory.
//
//go:embed prometheus/*.yaml grafana/*.json network-policy/*.yaml network-policy-egress/*.yaml jobs/*.yaml shards/*.yaml all:chart
var Files embed.FS
