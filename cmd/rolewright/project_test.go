package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run of dev is found without --runner-root, and what is nowhere is said of both places.
func TestReplay_LooksWhereDevHasItsRuns(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	local := filepath.Join(cache, "rolewright", "dev")
	ticket(t, local, "11111111-1111-4111-8111-111111111111", "a", 1)
	if code, _, stderr := invoke("rolewright", "replay", "11111111"); code != 1 || !strings.Contains(stderr, "the end of the run is not known") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr := invoke("rolewright", "replay", "22222222"); code != 2 || !strings.Contains(stderr, local) || !strings.Contains(stderr, "/tmp/ansible-operator/runner") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// What is typed gathers facts as the project's Pod does.
func TestGatherAsDeployed(t *testing.T) {
	scaffolded(t)
	if err := os.Unsetenv(envGathering); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(envGathering) })
	if err := gatherAsDeployed(); err != nil || os.Getenv(envGathering) != "explicit" {
		t.Errorf("%v, %q", err, os.Getenv(envGathering))
	}
	t.Setenv(envGathering, "smart")
	if err := gatherAsDeployed(); err != nil || os.Getenv(envGathering) != "smart" {
		t.Errorf("what is set was changed: %v, %q", err, os.Getenv(envGathering))
	}
}
