package main

import (
	"io"
	"testing"
)

// The Lease of a project is that which its manifests deploy.
func TestDeployedLease_IsThatOfTheProject(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := run(t.Context(), []string{"rolewright", "init", "--domain", "example.com", "--name", "web-operator"}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	const want = "web-operator-system/web-operator"
	if got, err := deployedLease(); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
