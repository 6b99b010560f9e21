package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// asProgram makes the test binary run as rolewright, so that tests can send it signals.
const asProgram = "ROLEWRIGHT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	testenv.Main(m)
}

// invoke runs the program in this process.
func invoke(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = execute(nil, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestExecute_EndsWithTheRightCodeAndSaysWhy(t *testing.T) {
	tests := []struct {
		name   string
		args   string
		code   int
		stdout string // part of the output; empty if nothing is printed
		stderr string // the whole text
	}{
		{
			name:   "version",
			args:   "rolewright version",
			stdout: `rolewright version: "`,
		},
		{
			name:   "version under the name ansible-operator",
			args:   "/usr/local/bin/ansible-operator version",
			stdout: `ansible-operator version: "`,
		},
		{
			name:   "version under the name helm-operator",
			args:   "/usr/local/bin/helm-operator version",
			stdout: `helm-operator version: "`,
		},
		{
			name:   "help of run under the name helm-operator has its defaults",
			args:   "helm-operator help run",
			stdout: `(default ":8081")`,
		},
		{
			name:   "version under any other name is ours",
			args:   "/tmp/rw-test version",
			stdout: `rolewright version: "`,
		},
		{
			name:   "no subcommand: help",
			args:   "rolewright",
			stdout: "Available Commands:",
		},
		{
			name:   "completion",
			args:   "rolewright completion bash",
			stdout: "bash completion V2 for rolewright",
		},
		{
			name:   "help of run",
			args:   "rolewright help run",
			stdout: "\nLeader election:\n",
		},
		{
			name:   "unknown subcommand",
			args:   "rolewright rnu",
			code:   2,
			stderr: "Error: unknown command \"rnu\" for \"rolewright\"; did you mean \"run\"?\n",
		},
		{
			name:   "unknown subcommand of a subcommand",
			args:   "rolewright generate frobnicate",
			code:   2,
			stderr: "Error: unknown command \"frobnicate\" for \"rolewright generate\"; see \"rolewright generate --help\"\n",
		},
		{
			name:   "version as a flag",
			args:   "rolewright --version",
			stdout: `rolewright version: "`,
		},
		{
			name:   "version for programs",
			args:   "rolewright version -o json",
			stdout: `{"version":"`,
		},
		{
			name:   "file that is not there",
			args:   "rolewright validate nosuch.yaml",
			code:   2,
			stdout: "nosuch.yaml: no such file or directory",
		},
		{
			name:   "flag of another subcommand",
			args:   "rolewright validate --frobnicate",
			code:   2,
			stderr: "Error: unknown flag: --frobnicate; see \"rolewright validate --help\"\n",
		},
		{
			name:   "misspelt flag",
			args:   "rolewright run --watch-file=x",
			code:   1,
			stderr: "Error: unknown flag: --watch-file; did you mean --watches-file? See \"rolewright run --help\"\n",
		},
		{
			name:   "unknown flag that is like no other",
			args:   "rolewright run --frobnicate",
			code:   1,
			stderr: "Error: unknown flag: --frobnicate; see \"rolewright run --help\"\n",
		},
		{
			name: "value that is none",
			args: "rolewright run --reconcile-period=10",
			code: 1,
			stderr: "Error: invalid argument \"10\" for \"--reconcile-period\" flag: time: missing unit in duration \"10\"; " +
				"see \"rolewright run --help\"\n",
		},
		{
			name:   "flags that contradict each other",
			args:   "rolewright run --metrics-addr=:1 --metrics-bind-address=:1",
			code:   1,
			stderr: "Error: only one of --metrics-addr and --metrics-bind-address may be set\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := invoke(strings.Fields(tt.args)...)
			if code != tt.code {
				t.Errorf("exit code = %d, want %d", code, tt.code)
			}
			if tt.stdout == "" && stdout != "" || !strings.Contains(stdout, tt.stdout) {
				t.Errorf("stdout = %q, want %q in it", stdout, tt.stdout)
			}
			must.Be(t, "stderr", tt.stderr, stderr)
		})
	}
}

func TestExitCode_PrintsWhatIsNotPrintedYet(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		code   int
		stderr string
	}{
		{"success", nil, 0, ""},
		{"failure", errors.New("boom"), 1, "Error: boom\n"},
		{"already reported", errInvalid, 1, ""},
		{"no cluster", fmt.Errorf("ask: %w", unreachable(errors.New("refused"))), 3, "Error: ask: refused\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr strings.Builder
			if code := exitCode(tt.err, &stderr); code != tt.code || stderr.String() != tt.stderr {
				t.Errorf("exitCode = %d, %q; want %d, %q", code, stderr.String(), tt.code, tt.stderr)
			}
		})
	}
}

// TestExecute_ThirdSignalDoesNotWait uses a program that cannot end, because its output is never read.
func TestExecute_ThirdSignalDoesNotWait(t *testing.T) {
	unread, stuck := io.Pipe()
	t.Cleanup(func() { _ = unread.Close() })
	signals := make(chan os.Signal, 3)
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	if code := execute(signals, []string{"rolewright", "version"}, stuck, io.Discard); code != exitFailed {
		t.Errorf("exit code = %d, want %d", code, exitFailed)
	}
}

// Ctrl-C also ends the reader of the output, and then the terminal may close. These signals do not make the program
// impatient: runs still have their time.
func TestExecute_OutputAndTerminalThatGoAreNotImpatient(t *testing.T) {
	unread, stuck := io.Pipe()
	t.Cleanup(func() { _ = unread.Close() })
	signals, code := make(chan os.Signal), make(chan int, 1)
	go func() { code <- execute(signals, []string{"rolewright", "version"}, stuck, io.Discard) }()
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		select {
		case signals <- s:
		case <-code:
			t.Fatalf("it ends before %s", s)
		}
	}
	must.Be(t, "exit code", exitFailed, <-code)
}

// If its terminal closes, the program ends in order, as with Ctrl-C.
func TestMain_EndsInOrderWithItsTerminal(t *testing.T) {
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-t.Context().Done()
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, "{clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}", server.URL), 0o600))
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored, as by nohup")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], "get", "runs", "--server", server.URL, "--service-account", "a/b") // asks the server for a token
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG="+kubeconfig)
	must.Do(t, cmd.Start())
	select {
	case <-asked:
		must.Do(t, cmd.Process.Signal(syscall.SIGHUP))
	case <-ctx.Done():
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitSignal+int(syscall.SIGHUP) {
		t.Errorf("it ends with %s", cmd.ProcessState)
	}
}

// A pipe without a reader does not kill the program, which may have a cluster to stop.
func TestMain_EndsInOrderWithItsPipe(t *testing.T) {
	unread, out, err := os.Pipe()
	must.Do(t, err)
	must.Do(t, unread.Close())
	cmd := exec.Command(os.Args[0], "completion", "bash")
	var stderr strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asProgram+"=1"), out, &stderr
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != exitSignal+int(syscall.SIGPIPE) || stderr.Len() > 0 {
		t.Errorf("it ends with %s: %s", cmd.ProcessState, stderr.String())
	}
}

func TestOutputIsGone_OfPipesAndSockets(t *testing.T) {
	var pipe [2]int
	must.Do(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	sockets := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	file := must.Get(os.Open(os.DevNull))(t)
	t.Cleanup(func() { _ = file.Close() })
	for _, pair := range [][2]int{pipe, sockets} { // the first pair has a reader
		out, other := int32(pair[1]), int32(file.Fd())
		if outputIsGone(out, other) || outputIsGone(other, out) {
			t.Errorf("%v is gone while it is read", pair)
		}
		must.Do(t, unix.Close(pair[0]))
		if !outputIsGone(out, other) || !outputIsGone(other, out) {
			t.Errorf("%v is not gone", pair)
		}
		must.Do(t, unix.Close(pair[1]))
	}
	terminal, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	must.Do(t, unix.IoctlSetPointerInt(terminal, unix.TIOCSPTLCK, 0))
	number := must.Get(unix.IoctlGetInt(terminal, unix.TIOCGPTN))(t)
	out := must.Get(unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = unix.Close(out) })
	must.Do(t, unix.Close(terminal))
	if outputIsGone(int32(out)) {
		t.Error("a closed terminal, which a job in the background survives, is taken for a pipe")
	}
}

func TestNearestFlag_NamesNoHiddenOrDeprecatedFlag(t *testing.T) {
	flags := newRunCommand().Flags()
	tests := []struct{ name, want string }{
		{"leader-election", "leader-elect"},
		{"metrics-bind-adress", "metrics-bind-address"},
		{"proxy-prt", "proxy-port"},
		{"metrics-addrs", ""}, // metrics-addr is deprecated
		{"zap-loglevel", "zap-log-level"},
	}
	for _, tt := range tests {
		if got := nearestFlag(flags, tt.name); got != tt.want {
			t.Errorf("nearestFlag(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Only terminals get colours, and only if the user wants them.
func TestColoured_OnlyOnATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = terminal.Close() }()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer func() { _ = file.Close() }()
	for _, tt := range []struct {
		out         io.Writer
		noColor, as string
		want        bool
	}{
		{terminal, "", "xterm", true}, {terminal, "1", "xterm", false}, {terminal, "", "dumb", false}, {file, "", "xterm", false}, {io.Discard, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", tt.noColor)
		t.Setenv("TERM", tt.as)
		if got := coloured(tt.out); got != tt.want {
			t.Errorf("%T, NO_COLOR=%q, TERM=%q: %t", tt.out, tt.noColor, tt.as, got)
		}
	}
}
