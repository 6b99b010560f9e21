//go:build warm

package warm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// asOperator is the argument with which the test binary is an operator.
const asOperator = "operator"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case runner.SupervisorCommand:
			os.Exit(supervise.Main(os.Stdin, os.Stderr))
		case asOperator:
			os.Exit(operate())
		}
	}
	os.Exit(m.Run())
}

// order is what an operator of these tests is to do.
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
	r := runner.New(runner.Options{Environ: o.Options.Environ, Supervisor: o.Options.Supervisor, Warm: pool})
	defer r.Close()
	if _, err := r.Run(context.Background(), runner.Request{ID: o.ID, Dir: o.Dir, Content: runner.Content{Playbook: o.Playbook}}); err != nil {
		return 1
	}
	return 0
}

// options are those of a pool whose runs have a HOME of their own.
func options(t testing.TB) warm.Options {
	t.Helper()
	o := warm.Options{
		Dir:        t.TempDir(),
		Environ:    environ(t),
		Supervisor: []string{"/proc/self/exe", runner.SupervisorCommand},
		Trace:      filepath.Join(t.TempDir(), "trace"),
	}
	for name, path := range map[string]*string{"ansible-runner": &o.Runner, "ansible-playbook": &o.Playbook} {
		var err error
		if *path, err = exec.LookPath(name); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// environ is this process's environment with another HOME.
func environ(t testing.TB) []string {
	t.Helper()
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "ROLEWRIGHT_") {
			kept = append(kept, entry)
		}
	}
	return append(kept, "HOME="+t.TempDir())
}

// start returns a Runner whose runs are forked.
func start(t *testing.T, o warm.Options) (*runner.Runner, *warm.Pool) {
	t.Helper()
	pool := warm.New(o)
	t.Cleanup(pool.Close)
	if err := pool.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := runner.New(runner.Options{Environ: o.Environ, Supervisor: o.Supervisor, Warm: pool})
	t.Cleanup(r.Close)
	return r, pool
}

// request is that for a run of the text of a playbook.
func request(t *testing.T, playbook string) runner.Request {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "playbook.yml")
	if err := os.WriteFile(path, []byte(playbook), 0o600); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	return runner.Request{ID: id, Dir: filepath.Join(dir, id), Content: runner.Content{Playbook: path}}
}

// run makes a run that is to succeed.
func run(t *testing.T, r *runner.Runner, playbook string) runner.Result {
	t.Helper()
	res, err := r.Run(t.Context(), request(t, playbook))
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict(); !v.Success {
		t.Fatalf("verdict %+v\n%s", v, res.Tail)
	}
	return res
}

// traced returns the lines of the trace.
func traced(t *testing.T, o warm.Options) string {
	t.Helper()
	text, err := os.ReadFile(o.Trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// processes returns those whose command line contains a text: pid → command line.
func processes(t testing.TB, text string) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, file := range files {
		line, err := os.ReadFile(file)
		line = bytes.ReplaceAll(line, []byte{0}, []byte{' '})
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && strings.Contains(string(line), text) && pid != os.Getpid() {
			found[pid] = strings.TrimSpace(string(line))
		}
	}
	return found
}

// eventually waits until a condition holds; only a hanging test fails here.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting in vain: %s", what)
		}
	}
}

// family is a playbook that leaves behind what is hard to find, marked by
// the text, and waits: a daemon, and one that has cleared its environment.
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

// mark is a number that no other test uses.
func mark(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(time.Now().UnixNano(), 10)
}

// awaitFamily waits until a run of family is where it waits.
func awaitFamily(t *testing.T, mark string) {
	t.Helper()
	for _, n := range []int{6001, 6002, 6004} {
		eventually(t, fmt.Sprintf("the process %d of the run", n), func() bool {
			return len(processes(t, fmt.Sprintf("sleep %d.%s", n, mark))) > 0
		})
	}
}

// kill kills those processes of which the command line begins with a text and
// contains another.
func kill(t *testing.T, begins, contains string) {
	t.Helper()
	killed := 0
	for pid, line := range processes(t, contains) {
		if strings.HasPrefix(line, begins) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed != 1 {
		t.Errorf("%d processes killed as %q of %v", killed, begins, processes(t, contains))
	}
}

const simple = `
- hosts: localhost
  gather_facts: false
  tasks: [{ping: }, {command: "true"}]
`

func TestRun_IsForked(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	run(t, r, simple)
	trace := traced(t, o)
	if !strings.HasPrefix(trace, "playbook forked\n") || strings.Count(trace, "module forked ") != 2 || strings.Count(trace, "\n") != 3 {
		t.Errorf("trace:\n%s", trace)
	}
}

// However a run is cut short, nothing of it is left when it returns.
func TestRun_LeavesNothing(t *testing.T) {
	t.Parallel()
	r, _ := start(t, options(t))
	for name, end := range map[string]func(t *testing.T, req runner.Request, cancel func()){
		"cancelled":                         func(_ *testing.T, _ runner.Request, cancel func()) { cancel() },
		"its leader is killed":              func(t *testing.T, req runner.Request, _ func()) { t.Helper(); kill(t, "rolewright-run ", req.ID) },
		"ansible-runner is killed":          func(t *testing.T, req runner.Request, _ func()) { t.Helper(); killRunner(t, req) },
		"its supervising process is killed": func(t *testing.T, req runner.Request, _ func()) { t.Helper(); killSupervisor(t, req) },
	} {
		t.Run(name, func(t *testing.T) {
			m := mark(t)
			req := request(t, family(m))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				awaitFamily(t, m)
				end(t, req, cancel)
			}()
			res, _ := r.Run(ctx, req)
			if left := processes(t, m); len(left) > 0 {
				t.Errorf("survivors: %v", left)
			}
			if res.Verdict().Success {
				t.Errorf("it is a success: %+v", res)
			}
		})
	}
	run(t, r, simple)
}

func killRunner(t *testing.T, req runner.Request) {
	t.Helper()
	killed := 0
	for pid, line := range processes(t, req.ID) {
		if strings.Contains(line, "/ansible-runner run ") && !strings.HasPrefix(line, "rolewright-run") && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed != 1 {
		t.Errorf("%d processes killed of %v", killed, processes(t, req.ID))
	}
}

// killSupervisor kills the supervising process of a run: that with its output
// file and no arguments of its own.
func killSupervisor(t *testing.T, req runner.Request) {
	t.Helper()
	log := filepath.Join(req.Dir, "runner.log")
	for pid := range processes(t, runner.SupervisorCommand) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); to == log {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
	t.Error("no supervising process")
}

func TestRun_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, pool := start(t, o)
	dir := t.TempDir()
	req := request(t, fmt.Sprintf(`
- hosts: localhost
  gather_facts: false
  tasks:
  - shell: touch %[1]s/ready; while [ ! -e %[1]s/go ]; do sleep 0.05; done
  - ping:
`, dir))
	go func() {
		eventually(t, "the run", func() bool { _, err := os.Stat(dir + "/ready"); return err == nil })
		kill(t, "", "rolewright-fork-server "+o.Dir)
		if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	res, err := r.Run(t.Context(), req)
	if err != nil || !res.Verdict().Success {
		t.Errorf("error %v, verdict %+v", err, res.Verdict())
	}
	// The next is made one way or the other.
	run(t, r, simple)
	if err := pool.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOperator_KilledLeavesNothing(t *testing.T) {
	t.Parallel()
	m := mark(t)
	o := options(t)
	req := request(t, family(m))
	text, err := json.Marshal(order{o, req.ID, req.Dir, req.Content.Playbook})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", asOperator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFamily(t, m)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "nothing is left", func() bool { return len(processes(t, m))+len(processes(t, o.Dir)) == 0 })
}

// Nothing of one run is seen by another.
func TestRun_SeesNothingOfAnother(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	dir := t.TempDir()
	for path, text := range map[string]string{
		"first/filter_plugins/leak.py": "import os, sys, tempfile, locale, signal, socket, logging\n" +
			"os.environ['LEAKED'] = 'x'; os.umask(0o777); os.chdir('/'); sys.path.append('/leaked'); socket.setdefaulttimeout(77)\n" +
			"tempfile.tempdir = '/leaked'; logging.root.addHandler(logging.NullHandler()); signal.signal(signal.SIGUSR1, lambda *_: None)\n" +
			"import kubernetes.client; kubernetes.client.Configuration.set_default(kubernetes.client.Configuration(host='http://leaked'))\n" +
			"import ansible.constants; ansible.constants.DEFAULT_TIMEOUT = 77; import json; json.leaked = 1\n" +
			"class FilterModule:\n    def filters(self):\n        return {'leaked': lambda x: x}\n",
		"second/filter_plugins/look.py": "import os, sys, tempfile, socket, logging, signal, json\n" +
			"import kubernetes.client, ansible.constants\n" +
			"class FilterModule:\n    def filters(self):\n        return {'look': lambda x: ' '.join(map(str, [os.environ.get('LEAKED'), oct(os.umask(0o022)), os.getcwd() == '/', '/leaked' in sys.path," +
			" socket.getdefaulttimeout(), tempfile.gettempdir() == '/leaked', len(logging.root.handlers), signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL," +
			" 'leaked' in kubernetes.client.Configuration.get_default_copy().host, ansible.constants.DEFAULT_TIMEOUT, hasattr(json, 'leaked')]))}\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content := func(name, expression string) runner.Request {
		req := request(t, "")
		req.Content.Playbook = filepath.Join(dir, name, req.ID+".yml")
		text := "- hosts: localhost\n  gather_facts: false\n  tasks: [{debug: {msg: \"" + expression + "\"}}]\n"
		if err := os.WriteFile(req.Content.Playbook, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return req
	}
	for _, tt := range []struct {
		req  runner.Request
		want string
		ok   bool
	}{
		{content("first", "{{ 'seen' | leaked }}"), "seen", true},
		{content("second", "{{ 'x' | look }}"), "None 0o22 False False None False 0 True False 10 False", true},
		{content("second", "{{ 'x' | leaked }}"), "", false},
	} {
		res, err := r.Run(t.Context(), tt.req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Verdict().Success != tt.ok || !strings.Contains(res.Tail, tt.want) {
			t.Errorf("want %q, verdict %+v\n%s", tt.want, res.Verdict(), res.Tail)
		}
	}
}

func TestPool_ReplacesAServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*warm.Options)
		cause  func(t *testing.T, o warm.Options)
	}{
		"after its runs":         {change: func(o *warm.Options) { o.MaxRuns = 1 }},
		"that has grown":         {change: func(o *warm.Options) { o.MaxMemory = 1 }},
		"of which files changed": {cause: func(t *testing.T, o warm.Options) { t.Helper(); touch(t, o.Runner) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if tt.change != nil {
				tt.change(&o)
			}
			text, err := os.ReadFile(o.Runner)
			if err != nil {
				t.Fatal(err)
			}
			o.Runner = filepath.Join(t.TempDir(), "ansible-runner")
			if err := os.WriteFile(o.Runner, text, 0o700); err != nil {
				t.Fatal(err)
			}
			pool := warm.New(o)
			defer pool.Close()
			if err := pool.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			first := processes(t, "rolewright-fork-server "+o.Dir)
			lease, err := pool.Acquire()
			if tt.cause != nil {
				if err != nil {
					t.Fatal(err)
				}
				tt.cause(t, o)
			}
			if second, err := pool.Acquire(); err == nil {
				second.Release(nil)
				t.Error("the server is still in use")
			}
			if err := pool.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			for pid := range first {
				_, alive := processes(t, "rolewright-fork-server "+o.Dir)[pid]
				if lease != nil && !alive {
					t.Error("it ends while a run is under way")
				}
			}
			if lease != nil {
				lease.Release(nil)
			}
			eventually(t, "the old server ends", func() bool {
				now := processes(t, "rolewright-fork-server "+o.Dir)
				for pid := range first {
					if _, alive := now[pid]; alive {
						return false
					}
				}
				return true
			})
		})
	}
}

func touch(t *testing.T, name string) {
	t.Helper()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(name, later, later); err != nil {
		t.Fatal(err)
	}
}

func TestPool_SaysWhyThereIsNoServer(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Playbook = filepath.Join(t.TempDir(), "ansible-playbook")
	if err := os.WriteFile(o.Playbook, []byte("#!/bin/sh\nexec true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	pool := warm.New(o)
	defer pool.Close()
	if err := pool.Wait(t.Context()); !errors.Is(err, warm.ErrNotReady) || !strings.Contains(err.Error(), "no Python script") {
		t.Errorf("error = %v", err)
	}
	if _, err := pool.Acquire(); !errors.Is(err, warm.ErrNotReady) {
		t.Errorf("Acquire: %v", err)
	}
}
