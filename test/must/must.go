// Package must ends a test where a step fails that it only prepares by: one line for what a test does not ask about.
package must

import "testing"

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get hands on what a call returns, and ends the test if that is an error: file := must.Get(os.Open(name))(t).
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}
