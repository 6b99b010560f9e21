package executors

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

func TestMain(m *testing.M) {
	parts.AnsibleOrExit()
	testenv.Main(m)
}

// ways are the two ways to make a run.
type ways struct {
	forked, executed *runner.Runner
	// trace is the file in which the fork server records what it forked.
	trace string
}

// bothWays returns Runners with the same environment: this process's, with the test's own HOME.
func bothWays(t *testing.T) ways {
	t.Helper()
	o := warm.Options{Trace: filepath.Join(t.TempDir(), "trace"), Content: []string{must.Get(filepath.Abs(filepath.Join("testdata", "corpus")))(t)}}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "ROLEWRIGHT_") && !strings.HasPrefix(entry, "KUBECONFIG=") {
			o.Environ = append(o.Environ, entry)
		}
	}
	o.Environ = append(o.Environ, "HOME="+t.TempDir())
	for name, path := range map[string]*string{"ansible-runner": &o.Runner, "ansible-playbook": &o.Playbook} {
		var err error
		if *path, err = exec.LookPath(name); err != nil {
			t.Fatalf("%v: these tests run real Ansible; call `make setup`", err)
		}
	}
	pool := warm.New(o)
	t.Cleanup(pool.Close)
	must.Do(t, pool.Wait(t.Context()))
	w := ways{
		forked:   runner.New(runner.Options{Environ: o.Environ, Warm: pool, ForkTimeout: time.Minute}),
		executed: runner.New(runner.Options{Environ: o.Environ}),
		trace:    o.Trace,
	}
	t.Cleanup(w.forked.Close)
	t.Cleanup(w.executed.Close)
	return w
}

// traced returns what the fork server has recorded.
func (w ways) traced(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}
