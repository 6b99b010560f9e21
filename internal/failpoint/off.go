//go:build !failpoint

package failpoint

// Hit marks a place; see [Points]. It does nothing.
func Hit(string) {}

// Note records what has happened, for tests of histories. Here it does nothing.
func Note(string, map[string]any) {}

// Environ returns the environment of a process that inherits only what this
// package reads. It is empty, and not nil.
func Environ() []string { return []string{} }
