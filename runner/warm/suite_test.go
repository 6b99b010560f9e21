package warm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// With the argument asOperator, the test binary is an operator.
const asOperator = "operator"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asOperator:
			os.Exit(operate())
		case asLimited:
			os.Exit(operateLimited())
		}
	}
	parts.AnsibleOrExit()
	leaktest.Main(m, supervise.ReapOrphans)
}

// order says what that operator runs.
type order struct {
	Options           warm.Options
	ID, Dir, Playbook string
}

// operate makes one forked run.
func operate() int {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return 2
	}
	pool := warm.New(o.Options)
	defer pool.Close()
	if err := pool.Wait(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	r := runnerOf(o.Options, pool, patient)
	defer r.Close()
	if _, err := r.Run(context.Background(), runner.Request{ID: o.ID, Dir: o.Dir, Content: runner.Content{Playbook: o.Playbook}}); err != nil {
		return 1
	}
	return 0
}

// options returns the options of a pool whose runs have a HOME of their own.
func options(t testing.TB) warm.Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := warm.Options{
		Dir:     dir,
		Environ: environ(t),
		Trace:   filepath.Join(t.TempDir(), "trace"),
	}
	for name, path := range map[string]*string{"ansible-runner": &o.Runner, "ansible-playbook": &o.Playbook} {
		var err error
		if *path, err = exec.LookPath(name); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// environ returns the environment of this process with another HOME, and with a TMPDIR for what killed modules leave. The
// path of TMPDIR is short: from 2.22 on, Ansible has a socket below it, whose path Python 3.14 takes for shorter than it is.
func environ(t testing.TB) []string {
	t.Helper()
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "ROLEWRIGHT_") {
			kept = append(kept, entry)
		}
	}
	temp := must.Get(os.MkdirTemp("", "t"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	return append(kept, "HOME="+t.TempDir(), "TMPDIR="+temp)
}

// start returns a Runner whose runs are forked.
func start(t *testing.T, o warm.Options) (*runner.Runner, *warm.Pool) {
	t.Helper()
	pool := warm.New(o)
	t.Cleanup(pool.Close)
	must.Do(t, pool.Wait(t.Context()))
	r := runnerOf(o, pool, patient)
	t.Cleanup(r.Close)
	return r, pool
}

// patient is the fork timeout if a run has to be forked, impatient if the test freezes the server.
const (
	patient   = time.Minute
	impatient = 2 * time.Second
)

// runnerOf returns a Runner whose runs are forked from the pool's servers.
func runnerOf(o warm.Options, pool *warm.Pool, timeout time.Duration) *runner.Runner {
	return runner.New(runner.Options{Environ: o.Environ, Warm: pool, ForkTimeout: timeout})
}

// request returns a request for a run of a playbook with this text.
func request(t *testing.T, playbook string) runner.Request {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "playbook.yml")
	must.Do(t, os.WriteFile(path, []byte(playbook), 0o600))
	id := uuid.NewString()
	return runner.Request{ID: id, Dir: filepath.Join(dir, id), Content: runner.Content{Playbook: path}}
}

// run makes a run that has to succeed.
func run(t *testing.T, r *runner.Runner, playbook string) runner.Result {
	t.Helper()
	res := must.Get(r.Run(t.Context(), request(t, playbook)))(t)
	if v := res.Verdict(); !v.Success {
		t.Fatalf("verdict %+v\n%s", v, res.Tail)
	}
	return res
}

// traced returns the text of the trace; empty if there is none.
func traced(t *testing.T, o warm.Options) string {
	t.Helper()
	text, err := os.ReadFile(o.Trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// processes returns the processes whose command line contains a text, without this one: pid → command line.
func processes(t testing.TB, text string) map[int]string {
	t.Helper()
	found := must.Get(procs.Titled(text))(t)
	delete(found, os.Getpid())
	return found
}

// servers lists the fork servers whose files are in dir: the children of their keepers. A process that a server has just
// forked has the same name, but is not listed.
func servers(t testing.TB, dir string) map[int]string {
	t.Helper()
	found := processes(t, "rolewright-fork-server "+dir+"/")
	keepers := processes(t, "/server.py "+dir+"/")
	maps.DeleteFunc(found, func(pid int, _ string) bool { return keepers[procs.Parent(pid)] == "" })
	return found
}

// runheads lists the run heads of a run. A process that a run head has just forked has the same name, but is not listed.
func runheads(t testing.TB, id string) map[int]string {
	t.Helper()
	found := processes(t, id)
	maps.DeleteFunc(found, func(_ int, line string) bool { return !strings.HasPrefix(line, "rolewright-run ") })
	forked := maps.Clone(found)
	maps.DeleteFunc(found, func(pid int, _ string) bool { return forked[procs.Parent(pid)] != "" })
	return found
}

// eventually waits until a condition holds. The time limit is there for tests that hang.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting in vain: %s", what)
		}
	}
}

// family returns a playbook that leaves processes behind that are hard to find, a daemon and one without environment, and
// then waits. Their command lines contain mark.
func family(mark string) string {
	return fmt.Sprintf(`
- hosts: localhost
  gather_facts: false
  tasks:
  - shell: |
      setsid nohup sleep 6001.%[1]s >/dev/null 2>&1 </dev/null &
      env -i setsid /bin/sh -c 'trap "" TERM HUP; sleep 6002.%[1]s; sleep 6003.%[1]s' >/dev/null 2>&1 </dev/null &
      sleep 0.2
  - shell: trap "" TERM; sleep 6004.%[1]s; sleep 6005.%[1]s
`, mark)
}

// mark returns a number that no other test uses.
func mark(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(time.Now().UnixNano(), 10)
}

// awaitFamily waits until a run of family has started its processes.
func awaitFamily(t *testing.T, mark string) {
	t.Helper()
	for _, n := range []int{6001, 6002, 6004} {
		eventually(t, fmt.Sprintf("the process %d of the run", n), func() bool {
			return len(processes(t, fmt.Sprintf("sleep %d.%s", n, mark))) > 0
		})
	}
}

// send sends a signal to the only process in found.
func send(t *testing.T, signal syscall.Signal, found map[int]string) {
	t.Helper()
	if len(found) != 1 {
		t.Errorf("%d processes to signal: %v", len(found), found)
	}
	for pid, line := range found {
		if pid <= 1 { // kill(2) takes 0 for the process group of the test
			t.Errorf("process %d, of %q, is not one to signal: the parent is gone", pid, line)
			continue
		}
		if err := syscall.Kill(pid, signal); err != nil {
			t.Error(err)
		}
	}
}
