//go:build tools

// Package lint keeps the program that `make` builds from this module in go.mod.
package lint

import _ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
