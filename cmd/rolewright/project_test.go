package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// replay finds a run of dev without --runner-root. If a run is in neither place, the error names both.
func TestReplay_LooksWhereDevHasItsRuns(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	local := filepath.Join(cache, "rolewright", "dev")
	ticket(t, local, "11111111-1111-4111-8111-111111111111", "a", 1)
	found, err := filepath.Glob(filepath.Join(local, ".runs/*/11111111-1111-4111-8111-111111111111"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	// The run used a copy of the content, which no longer exists.
	events := filepath.Join(found[0], "artifacts/11111111-1111-4111-8111-111111111111/job_events")
	must.Do(t, os.MkdirAll(events, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(events, "1-22222222-2222-4222-8222-222222222222.json"), []byte(`{"uuid": "22222222-2222-4222-8222-222222222222",
		"counter": 1, "event": "runner_on_ok", "created": "2026-05-06T07:08:09.1+00:00", "stdout": "", "event_data": {"task": "Say it", "host": "localhost",
		"task_path": "`+must.Get(filepath.EvalSymlinks(local))(t)+`/.content/77/project/roles/a/tasks/main.yml:4", "res": {"changed": false}}}`), 0o600))
	if code, stdout, stderr := invoke("rolewright", "replay", "11111111"); code != 1 || !strings.Contains(stderr, "the end of the run is not known") ||
		!strings.Contains(stdout, "Say it  /project/roles/a/tasks/main.yml:4") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := invoke("rolewright", "replay", "22222222"); code != 2 || !strings.Contains(stderr, local) || !strings.Contains(stderr, "/tmp/ansible-operator/runner") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// Commands that people call gather facts as the project's Pod does.
func TestGatherAsDeployed(t *testing.T) {
	scaffolded(t)
	must.Do(t, os.Unsetenv(envGathering))
	t.Cleanup(func() { _ = os.Unsetenv(envGathering) })
	if err := gatherAsDeployed(); err != nil || os.Getenv(envGathering) != "explicit" {
		t.Errorf("%v, %q", err, os.Getenv(envGathering))
	}
	t.Setenv(envGathering, "smart")
	if err := gatherAsDeployed(); err != nil || os.Getenv(envGathering) != "smart" {
		t.Errorf("what is set was changed: %v, %q", err, os.Getenv(envGathering))
	}
}

// If an argument is missing, the error is ours, and the exit code is 2.
func TestMissing_IsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := invoke("rolewright", "init"); code != 0 {
		t.Fatal(stderr)
	}
	for args, want := range map[string]string{
		"explain":                       "give the ID of a rule, such as RW103",
		"migrate simulate":              "give the directory with the artifacts",
		"replay":                        "give the ID of a run",
		"init op":                       `unexpected argument "op": init makes the project in the current directory`,
		"completion bsh":                `unknown command "bsh" for "rolewright completion"; did you mean "bash"?`,
		"generate sample":               "add one with \"rolewright create api\"",
		"generate argspec":              "there are no roles in roles/",
		"dev --watches-file=other.yaml": "there is no other.yaml; pass the path of the file, or run in its directory; \"rolewright init\" creates a project",
		"explain RW103 RW104":           "one argument expected, there are 2",
	} {
		if code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %s, want %q", args, code, stderr, want)
		}
	}
}
