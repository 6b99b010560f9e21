// Package config has the manifests that are the same for all operators, but for
// the operator's name: what collects its metrics, its alerts and dashboard, its
// network policies, and the chart's sources.
package config

import "embed"

// Name stands in the files for the name of the operator.
const Name = "memcached-operator"

// Files are those of this directory.
//
//go:embed prometheus/*.yaml grafana/dashboard.json network-policy/*.yaml network-policy-egress/*.yaml all:chart
var Files embed.FS
