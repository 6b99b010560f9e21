// Package parts decides about tests that need a part which is missing: a control
// plane, Ansible, root, time. They are skipped, so that go test works in any clone.
// If ROLEWRIGHT_TEST_PARTS is "required", as in make test, they fail.
package parts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// required reports whether a missing part is a failure.
func required() bool { return os.Getenv("ROLEWRIGHT_TEST_PARTS") == "required" }

// Missing skips the test, or fails it, because of err: the part that is missing.
func Missing(t testing.TB, err error) {
	t.Helper()
	if required() {
		t.Fatal(err)
	}
	t.Skipf("NOT TESTED: %v; run `make test`", err)
}

// Ansible is called by tests that run ansible-playbook or ansible-runner.
func Ansible(t testing.TB) {
	t.Helper()
	if err := ansible(); err != nil {
		Missing(t, err)
	}
}

// Time is called by tests that take longer than ten seconds.
func Time(t testing.TB) {
	t.Helper()
	if !required() {
		t.Skip("NOT TESTED: it takes longer than ten seconds; run `make test`")
	}
}

// Root is called by tests that make namespaces or processes of other users.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, errors.New("it needs root"))
	}
}

// AnsibleOrExit is called by a TestMain, if all tests of the package run
// Ansible.
func AnsibleOrExit() {
	if err := ansible(); err != nil && !required() {
		fmt.Printf("NOT TESTED: %v; run `make test`\n", err)
		os.Exit(0) //nolint:forbidigo // as TestMain does
	}
}

func ansible() error {
	for _, name := range []string{"ansible-runner", "ansible-playbook"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: run `make setup`, or install ansible-core and ansible-runner", err)
		}
	}
	return nil
}
