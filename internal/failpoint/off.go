//go:build !failpoint

package failpoint

// Hit marks a place; see [Points]. It does nothing.
func Hit(string) {}

// Note keeps what has happened, for tests of histories. It does nothing.
func Note(string, map[string]any) {}

// Environ is the environment of a process that inherits none but what this
// package reads. It is empty, and not nil.
func Environ() []string { return []string{} }
