package main

import (
	"io"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// deployedLease returns the Lease of the operator that the project's manifests deploy.
func TestDeployedLease_IsThatOfTheProject(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, run(t.Context(), []string{"rolewright", "init", "--domain", "example.com", "--name", "web-operator"}, io.Discard, io.Discard))
	const want = "web-operator-system/web-operator"
	if got, err := deployedLease(); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
