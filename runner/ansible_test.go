package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == asStarved {
		os.Exit(starve(os.Args[2], os.Args[3]))
	}
	if len(os.Args) > 3 && os.Args[1] == asFailing {
		os.Exit(endOnAFailingDisk(os.Args[2], os.Args[3]))
	}
	leaktest.Main(m, supervise.ReapOrphans)
}

// patient is the fork timeout of tests that fail if it expires.
const patient = time.Minute

// ansible returns a Runner that uses the installed ansible-runner. Its runs get the environment of this process, a HOME of
// their own, and the given entries. The test fails if the runs leave temporary files.
func ansible(t *testing.T, environ ...string) *Runner {
	t.Helper()
	parts.Ansible(t)
	environ = ansibleenv.Inherited(append(append(os.Environ(), "HOME="+t.TempDir()), environ...))
	temp := must.Get(NewTemp(os.TempDir()))(t)
	t.Cleanup(func() {
		if left := transients(t, temp); len(left) > 0 {
			t.Errorf("temporary files left: %q", left)
		}
		temp.Close()
	})
	opts := Options{Environ: environ, Temp: temp, ForkTimeout: patient}
	opts.Warm = pool(t, opts)
	r := New(opts)
	t.Cleanup(r.Close)
	return r
}

// pool returns a pool whose fork server is ready, or nil for plain runs. TEST_EXECUTOR decides, because these tests apply
// to forked and plain runs alike. The test fails if the pool reports an error.
func pool(t *testing.T, opts Options) *warm.Pool {
	t.Helper()
	if os.Getenv("TEST_EXECUTOR") != "warm" {
		return nil
	}
	p := NewPool(opts, func(err error) {
		if err != nil {
			t.Errorf("the fork server: %v", err)
		}
	})
	t.Cleanup(p.Close)
	must.Do(t, p.Wait(t.Context()))
	return p
}

// request returns a request to run a playbook of testdata.
func request(t *testing.T, playbook string) Request {
	t.Helper()
	id := uuid.NewString()
	return Request{
		ID:      id,
		Dir:     filepath.Join(t.TempDir(), id),
		Content: Content{Playbook: testdata(t, "playbooks/"+playbook)},
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	path := must.Get(filepath.Abs(filepath.Join("testdata", name)))(t)
	return path
}

// marked lists the living processes that carry a run's cookie: pid → command line.
// It shares no code with what it checks.
func marked(t *testing.T, id string) map[int]string {
	t.Helper()
	return must.Get(procs.Marked("ROLEWRIGHT_RUN=" + id))(t)
}

// eventually waits until a condition holds. The time limit is there for tests that hang.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waiting in vain: %s", what)
			return
		}
	}
}

// during runs a request. It calls a function during the run, once the command lines of the run's processes contain all
// texts.
func during(ctx context.Context, t *testing.T, r *Runner, req Request, texts []string, do func()) (Result, error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, "a process "+strings.Join(texts, " and "), func() bool {
			lines := ""
			for _, cmdline := range marked(t, req.ID) {
				lines += cmdline + "\n"
			}
			for _, text := range texts {
				if !strings.Contains(lines, text) {
					return false
				}
			}
			return true
		})
		do()
	}()
	res, err := r.Run(ctx, req)
	<-done
	return res, err
}

// send sends a signal to the processes of a run whose command line fits.
func send(t *testing.T, id string, sig syscall.Signal, fits func(cmdline string) bool) {
	t.Helper()
	sent := 0
	for pid, cmdline := range marked(t, id) {
		if fits(cmdline) && syscall.Kill(pid, sig) == nil {
			sent++
		}
	}
	if sent == 0 {
		t.Errorf("no process to signal among %v", marked(t, id))
	}
}
