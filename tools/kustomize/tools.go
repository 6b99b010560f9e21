//go:build tools

// Package kustomize keeps the program that `make` builds from this module in go.mod.
package kustomize

import _ "sigs.k8s.io/kustomize/kustomize/v5"
