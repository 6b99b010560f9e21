//go:build tools

// Package kwok keeps the program that `make` builds from this module in go.mod.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
