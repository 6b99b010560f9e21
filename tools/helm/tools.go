//go:build tools

// Package helm keeps the program that `make` builds from this module in go.mod.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
