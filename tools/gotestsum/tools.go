//go:build tools

// Package gotestsum keeps the program that `make` builds from this module in go.mod.
package gotestsum

import _ "gotest.tools/gotestsum"
