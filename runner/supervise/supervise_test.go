package supervise

import (
	"bytes"
	"context"
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

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
)

// With one of these arguments, the test binary is a program that a test needs, such as an operator that can be killed.
const (
	asOperator = "operate"
	// asUser and asInit run the package's tests as another user and as process 1.
	asUser = "user"
	asInit = "init"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == asOperator:
		os.Exit(operate())
	case len(os.Args) > 1 && os.Args[1] == asUser:
		os.Exit(becomeUser())
	case len(os.Args) > 1 && os.Args[1] == asInit:
		os.Exit(becomeInit())
	}
	leaktest.Main(m, ReapOrphans)
}

// command returns a command that runs a shell script under a cookie of its own.
func command(t *testing.T, script string) Command {
	t.Helper()
	return Command{
		Path:   "/bin/sh",
		Args:   []string{"-c", script},
		Env:    append(os.Environ(), "DIR="+t.TempDir()),
		Cookie: fmt.Sprintf("ROLEWRIGHT_TEST=%s/%d", t.Name(), time.Now().UnixNano()),
		Output: filepath.Join(t.TempDir(), "output"),
		Grace:  time.Minute, // longer than any test machine takes to end what ends by itself
	}
}

// alive lists the processes that have a cookie's value in their environment or their command line, and are not dead. It
// shares no code with what it checks.
func alive(t *testing.T, cookie string) []string {
	t.Helper()
	dirs := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	_, value, _ := strings.Cut(cookie, "=")
	var found []string
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // it may be another user's
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if bytes.Contains(env, []byte(value)) || bytes.Contains(cmdline, []byte(value)) {
			found = append(found, dir+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// waitFor waits until a file exists.
func waitFor(t *testing.T, file string) {
	t.Helper()
	until(t, "the file "+file, func() bool { _, err := os.Stat(file); return err == nil })
}

// The CPU time of descendants counts, once their parents have waited for them.
func TestRun_MeasuresCPU(t *testing.T) {
	got, err := Run(t.Context(), command(t, `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'`))
	if err != nil || got.CPU < 20*time.Millisecond {
		t.Errorf("exit %+v, error %v; counting to 300000 takes CPU", got, err)
	}
}

func TestRun_MeasuresMemory(t *testing.T) {
	// The output is cut after each check of the supervisor, and the second check measures memory.
	got, err := Run(t.Context(), command(t, `for look in 1 2; do
	head -c 2000000 /dev/zero
	while [ $(stat -L -c %s /proc/$$/fd/1) -gt 1048576 ]; do sleep 0.05; done
done`))
	if err != nil || got.Memory < 4<<10 || got.Memory > 64<<20 {
		t.Errorf("exit %+v, error %v; a shell takes more than a page and less than 64 MiB", got, err)
	}
}

// A page that two processes share is counted once.
func TestWeight_CountsSharedPagesOnce(t *testing.T) {
	const size = 64 << 20
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import os, sys
block = bytearray(b"x" * (64 << 20))
child = os.fork()
if child:
    print(child, flush=True)
sys.stdin.read()
`)
	stdin := must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	var child int
	must.Get(fmt.Fscan(stdout, &child))(t)
	var both []identity
	for _, pid := range []int{cmd.Process.Pid, child} {
		p := must.Get(readProcess(pid))(t)
		both = append(both, p.identity)
	}
	if got := weight(both); got < size || got > size+size/2 {
		t.Errorf("memory = %d MiB of two processes that share %d MiB", got>>20, size>>20)
	}
	recycled := identity{pid: child, start: 1}
	if got := weight([]identity{recycled}); got != 0 {
		t.Errorf("memory = %d MiB of a process that has another's pid", got>>20)
	}
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

func TestRun_PassesEnvironmentAndCollectsOutput(t *testing.T) {
	c := command(t, `echo "out $ROLEWRIGHT_TEST $A"; echo err >&2; read line || echo "no input"`)
	c.Env = append(c.Env, "A=b")
	must.Get(Run(t.Context(), c))(t)
	got := must.Get(os.ReadFile(c.Output))(t)
	_, id, _ := strings.Cut(c.Cookie, "=")
	must.Be(t, "output", "out "+id+" b\nerr\nno input\n", string(got))
}

func TestRun_CancelKillsTheWholeTree(t *testing.T) {
	tests := []struct {
		name   string
		script string
		signal string // of the command
	}{
		{"obedient", `touch $DIR/ready; exec sleep 600`, "SIGTERM"},
		{"deaf", `trap "" TERM HUP INT; touch $DIR/ready; sleep 600; sleep 600`, "SIGKILL"},
		{"daemons", `for i in 1 2 3 4 5; do setsid nohup sleep 600 & done; touch $DIR/ready; exec sleep 600`, "SIGTERM"},
		{"breeding", `setsid sh -c 'trap "" TERM; while :; do setsid sleep 600 & sleep 0.005; done' & touch $DIR/ready; exec sleep 600`, "SIGTERM"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := command(t, tt.script)
			if tt.signal == "SIGKILL" {
				c.Grace = time.Second
			}
			_, dir, _ := strings.Cut(c.Env[len(c.Env)-1], "=")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				waitFor(t, filepath.Join(dir, "ready"))
				cancel()
			}()
			got := must.Get(Run(ctx, c))(t)
			if got.Code != -1 || got.Signal != tt.signal || !got.Stopped {
				t.Errorf("exit = %+v, want a stop by %s", got, tt.signal)
			}
			if left := alive(t, c.Cookie); len(left) > 0 {
				t.Errorf("survivors: %q", left)
			}
		})
	}
}

func TestRun_NotStarted(t *testing.T) {
	t.Run("no such executable", func(t *testing.T) {
		c := command(t, "")
		c.Path = filepath.Join(t.TempDir(), "missing")
		if _, err := Run(t.Context(), c); !errors.Is(err, ErrNotStarted) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error = %v, want ErrNotStarted and ErrNotExist", err)
		}
	})
	t.Run("output exists", func(t *testing.T) {
		c := command(t, "exit 0")
		must.Do(t, os.WriteFile(c.Output, nil, 0o600))
		if _, err := Run(t.Context(), c); !errors.Is(err, ErrNotStarted) || !errors.Is(err, os.ErrExist) {
			t.Errorf("error = %v, want ErrNotStarted and ErrExist", err)
		}
	})
	t.Run("context over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Run(ctx, command(t, "exit 0")); !errors.Is(err, ErrNotStarted) || !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want ErrNotStarted and Canceled", err)
		}
	})
}

func TestRun_OutputStaysShort(t *testing.T) {
	// The output grows past the limit, and the script waits until it was cut. If the supervisor does not cut it, the
	// script and the test wait for ever.
	c := command(t, `head -c 2000000 /dev/zero; while [ "$(stat -c %s "$OUT")" -gt 1500000 ]; do sleep 0.02; done; echo end`)
	c.Env = append(c.Env, "OUT="+c.Output)
	must.Get(Run(t.Context(), c))(t)
	got := must.Get(os.ReadFile(c.Output))(t)
	must.Be(t, "output", "end\n", string(got))
}

func TestRun_ReapsOrphansItInherits(t *testing.T) {
	// This process inherits orphans; see TestMain. Orphans of earlier tests may not have been reaped yet.
	mine := func() map[identity]process {
		all := must.Get(processes(0))(t)
		found := map[identity]process{}
		for _, p := range all {
			if p.ppid == os.Getpid() {
				found[p.identity] = p
			}
		}
		return found
	}
	before := mine()
	c := command(t, `sh -c 'sleep 0.05 & exit 0' & setsid nohup sleep 600 & sleep 0.3`)
	must.Get(Run(t.Context(), c))(t)
	for id, p := range mine() {
		if _, ok := before[id]; !ok {
			t.Errorf("child left: %+v", p)
		}
	}
}

func TestTree_KnowsThoseThatClearedTheirEnvironment(t *testing.T) {
	dir := t.TempDir()
	// When the tree is killed, the daemon's parent is gone and its environment is empty: only the sample shows that the
	// daemon belongs to the tree.
	cmd := exec.Command("/bin/sh", "-c", `env -i setsid sleep 600 & : >`+dir+`/ready; exec sleep 600`)
	must.Do(t, cmd.Start())
	tr := newTree(cmd.Process.Pid, "ROLEWRIGHT_TEST=nobody")
	waitFor(t, filepath.Join(dir, "ready"))
	tr.sample()
	if len(tr.members) != 2 {
		t.Errorf("members = %v, want the shell and its child", tr.members)
	}
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
	killed := must.Get(tr.kill())(t)
	if killed != 1 {
		t.Errorf("killed %d processes, want 1", killed)
	}
	for id := range tr.members {
		if p, err := readProcess(id.pid); err == nil && p.identity == id && !p.zombie {
			t.Errorf("process %d lives", id.pid)
		}
	}
}

// SIGKILL does not end a process that waits for a disk. A signal without effect stands for that here.
func TestTree_GivesUpWhatNoSignalEnds(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	must.Do(t, cmd.Start())
	tr := newTree(cmd.Process.Pid, "ROLEWRIGHT_TEST=stuck")
	signals := 0
	tr.surveys, tr.sigkill = 3, func(identity) error { signals++; return nil }
	killed, err := tr.kill()
	if killed != 1 || signals < 4 || !errors.Is(err, ErrSurvivors) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("%d killed with %d signals, error %v", killed, signals, err)
	}
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// If processes cannot be listed, it is not known whether there are survivors.
func TestTree_SaysThatItSeesNothing(t *testing.T) {
	tr := newOrphans("ROLEWRIGHT_TEST=unseen")
	tr.processes = func(uint64) ([]process, error) { return nil, syscall.EMFILE }
	_, err := tr.kill()
	if !errors.Is(err, ErrUnseen) || errors.Is(err, ErrSurvivors) || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("error %v", err)
	}
	path := filepath.Join(t.TempDir(), "end.json")
	must.Do(t, newRecord(Exit{Code: 7}, err).write(path))
	if exit, err := ReadExit(path); exit.Code != 7 || !errors.Is(err, ErrUnseen) || errors.Is(err, ErrSurvivors) {
		t.Errorf("recorded: %+v, %v", exit, err)
	}
}

func TestSigkill_SparesWhoeverHasTheRecycledPID(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	p := must.Get(readProcess(cmd.Process.Pid))(t)
	must.Do(t, sigkill(identity{pid: p.pid, start: p.start - 1}))
	if now, err := readProcess(p.pid); err != nil || now.zombie {
		t.Errorf("the stranger is gone: %+v, %v", now, err)
	}
}

func TestParseStat(t *testing.T) {
	// The fields after the name: state, ppid, pgrp, session, tty, tpgid, flags,
	// 10 that do not matter, threads, one more, start.
	stat := func(name, state, threads, flags string) string {
		return "42 (" + name + ") " + state + " 7 8 9 0 -1 " + flags + " 0 0 0 0 0 0 0 0 20 0 " + threads + " 0 12345 0"
	}
	proc := process{identity: identity{42, 12345}, ppid: 7, session: 9, threads: 1}
	with := func(change func(*process)) process {
		p := proc
		change(&p)
		return p
	}
	tests := []struct {
		name string
		stat string
		want process
		err  error
	}{
		{"plain", stat("sleep", "S", "1", "4194304"), proc, nil},
		{"hostile name", stat(") Z 1 1 (", "S", "1", "0"), proc, nil},
		{"zombie", stat("sleep", "Z", "1", "0"), with(func(p *process) { p.zombie = true }), nil},
		{"zombie whose threads live", stat("sleep", "Z", "2", "0"), with(func(p *process) { p.threads = 2 }), nil},
		{"kernel thread", stat("kworker", "I", "1", strconv.Itoa(flagKernelThread)), with(func(p *process) { p.kernel = true }), nil},
		{"empty", "", process{}, errMalformed},
		{"cut short", "42 (sleep) S 7 8", process{}, errMalformed},
		{"no numbers", stat("sleep", "S", "x", "0"), process{}, errMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(42, []byte(tt.stat))
			if !errors.Is(err, tt.err) {
				t.Fatalf("error = %v, want %v", err, tt.err)
			}
			must.Be(t, "process", tt.want, got, cmp.AllowUnexported(process{}, identity{}))
		})
	}
}

// BenchmarkRun measures what it costs to supervise a command that does nothing.
func BenchmarkRun(b *testing.B) {
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		must.Get(Run(b.Context(), Command{
			Path:   "/bin/true",
			Env:    os.Environ(),
			Cookie: "ROLEWRIGHT_TEST=" + strconv.Itoa(i),
			Output: filepath.Join(dir, strconv.Itoa(i)),
		}))(b)
	}
}

// A command that has its whole group signalled gets one signal itself: some programs end at once at the second. Signals
// that the kernel queues can be counted.
func TestRun_StopsTheLeaderOnce(t *testing.T) {
	t.Parallel()
	c := command(t, `exec python3 -c '
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
open(os.environ["DIR"] + "/ready", "w").close()
signal.sigwait([40])
again = signal.sigtimedwait([40], 0.5)
raise SystemExit(3 if again else 0)' `)
	c.Signal, c.Grace, c.Reports = 40, time.Minute, filepath.Join(t.TempDir(), "reports")
	must.Do(t, os.WriteFile(c.Reports, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		waitFor(t, filepath.Join(dirOf(c), "ready"))
		cancel()
	}()
	if got := must.Get(Run(ctx, c))(t); got.Code != 0 || !got.Stopped {
		t.Errorf("exit = %+v", got)
	}
}
