// Package e2e tests the whole program as it is built from cmd/rolewright, in its own process, with the real ansible-runner,
// against a real API server.
//
// The tests use what a user knows: flags, watches.yaml, roles, statuses, exit codes, and the documented paths on disk. They
// call no code of the operator. What one package can show alone is tested there, in more cases. Here are the tests that
// need all of them.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// repository is the top directory of the repository, relative to the directory in which the tests of this package run.
const repository = "../.."

// program is the directory in which the binary is built, once for all tests.
var program struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless the flag is given: most of the time, these tests wait
	parts.AnsibleOrExit()
	testenv.Main(m)
}

// binary returns the path of the program, which is built like the tests: with the race detector if they have it.
func binary(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "rolewright-e2e-"); program.err != nil {
			return
		}
		// One test runs the program as the user "nobody".
		if program.err = os.Chmod(program.dir, 0o755); program.err != nil {
			return
		}
		args := []string{"build", "-o", program.dir, "-buildvcs=false"} // a tarball is enough
		if withRace {
			args = append(args, "-race")
		}
		build := exec.Command("go", append(args, "./cmd/rolewright")...)
		build.Dir = repository
		if out, err := build.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("build the program: %w\n%s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "rolewright")
}

// needAnsible fails the test if Ansible is not installed.
func needAnsible(t *testing.T) {
	t.Helper()
	parts.Ansible(t)
}

// absolute returns the absolute path of a path in the repository.
func absolute(t *testing.T, path ...string) string {
	t.Helper()
	abs := must.Get(filepath.Abs(filepath.Join(append([]string{repository}, path...)...)))(t)
	return abs
}
