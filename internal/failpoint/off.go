//go:build !failpoint

package failpoint

// Hit marks a place; see [Points]. It does nothing.
func Hit(string) {}

// Environ is the environment of a process that inherits none but what this
// package reads. It is empty, and not nil.
func Environ() []string { return []string{} }
