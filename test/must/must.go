// Package must says in one line what most tests say: that a step by which they only prepare is to succeed, or the test ends,
// and that what they got is to be what they want.
package must

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// Write writes the texts of files, by their paths in dir, and makes the directories that they are in.
func Write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(dir, path)
		Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// Golden fails the test, which goes on, unless a file has the text got, and shows how they differ. With update the file gets it.
func Golden(t testing.TB, update bool, path, got string) {
	t.Helper()
	if update {
		Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what is made now; if that is meant, write it with -update (-file +now):\n%s", path, diff)
	}
}

// Be fails the test, which goes on, unless got is what is wanted, and shows how they differ.
func Be(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
