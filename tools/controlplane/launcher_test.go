package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests of this file run the real program with the real parts in bin/tools.

// launcher is the path of the program under test, which TestMain builds.
var launcher string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "controlplane-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	launcher = filepath.Join(dir, "controlplane")
	build := exec.Command("go", "build", "-o", launcher, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // like make: the pause image has no C library
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the launcher: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// assets returns the directory in which make builds the parts.
func assets(t *testing.T, parts ...string) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/tools")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range append(parts, "etcd", "kube-apiserver", "kube-controller-manager") {
		if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
			t.Fatalf("%v: run `make cluster-tools-kwok`", err)
		}
	}
	return dir
}

// command returns a call of the launcher with its state in dir.
func command(t *testing.T, dir, mode string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(launcher, append([]string{mode, "--dir=" + dir, "--assets=" + assets(t)}, args...)...)
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=")
	return cmd
}

// running is a launcher that has printed its export line.
type running struct {
	cmd        *exec.Cmd
	stdin      io.Closer
	stderr     *bytes.Buffer // complete when the launcher has ended
	kubeconfig string
}

func startRun(t *testing.T, dir string, args ...string) running {
	t.Helper()
	r := running{cmd: command(t, dir, "run", args...), stderr: &bytes.Buffer{}}
	r.cmd.Stderr = r.stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = r.cmd.Wait()
		t.Fatalf("no export line: %v\n%s", err, r.stderr)
	}
	r.kubeconfig = strings.TrimPrefix(strings.TrimSpace(line), "export KUBECONFIG=")
	return r
}

// processes returns the running processes that have text in their command line, as "pid command".
func processes(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte(text)) {
			continue // gone, or another process
		}
		found = append(found, filepath.Base(filepath.Dir(file))+" "+string(bytes.ReplaceAll(data, []byte{0}, []byte(" "))))
	}
	return found
}

// patience bounds each wait, so that a broken test ends with a message.
const patience = 2 * time.Minute

// wantNothingLeft waits until no process and no directory is left.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left := processes(t, dir)
		_, err := os.Lstat(dir)
		if len(left) == 0 && errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: directory %v, processes:\n%s", err == nil, strings.Join(left, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestExec_ExitsAsTheCommandDid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
		want   int
	}{
		{name: "success with the kubeconfig in two variables", want: 0,
			script: `test -s "$KUBECONFIG" && test "$ROLEWRIGHT_TEST_KUBECONFIG" = "$KUBECONFIG" && test -s "$ROLEWRIGHT_TEST_AUDIT_LOG"`},
		{name: "a code of its own", script: "exit 7", want: 7},
		{name: "killed", script: "kill -9 $$", want: 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			cmd := command(t, dir, "exec", "--audit-log=audit.log", "--", "sh", "-c", tt.script)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatalf("exec: %v", err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code %d, want %d; output:\n%s", got, tt.want, out)
			}
			wantNothingLeft(t, dir)
		})
	}
}

func TestExec_ForwardsSignalsToTheWholeGroupAndLetsItCleanUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	const script = `trap 'test -s "$KUBECONFIG" && echo cleaned up; exit 3' TERM; echo started; sleep 100000 & wait`
	cmd := command(t, dir, "exec", "--", "sh", "-c", script)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("first line %q, want started", lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "cleaned up" {
		t.Errorf("after the signal: %q, want the command to clean up with the control plane still there", lines.Text())
	}
	_ = cmd.Wait() // the exit code has the result
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("exit code %d, want the command's 3", got)
	}
	wantNothingLeft(t, dir)
}

func TestExec_KilledLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	cmd := command(t, dir, "exec", "--", "sh", "-c", `echo started; sh -c 'sleep 100000; true' "$0/left" & wait`, dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(stdout); !lines.Scan() {
		t.Fatal("the command did not start")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	wantNothingLeft(t, dir)
}

func TestRun_EndsWithItsParentAndNotWithCtrlC(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	r := startRun(t, dir, "--die-with-parent")
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(r.kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig after Ctrl-C: %v, %v, want it there and private", info, err)
	}
	if err := r.stdin.Close(); err != nil { // as when the parent dies
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("run: %v\n%s", err, r.stderr)
	}
	wantNothingLeft(t, dir)
}

func TestUp_IsIdempotentAndDownRemovesEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	script := func(args ...string) *exec.Cmd {
		cmd := exec.Command("../cluster.sh", args...)
		cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=")
		return cmd
	}
	t.Cleanup(func() { _ = script("down", dir).Run() })
	var lines []string
	for range 2 {
		cmd := script("up", dir, launcher, "--assets="+assets(t))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("up: %v\n%s", err, &stderr)
		}
		lines = append(lines, string(out))
	}
	if want := "export KUBECONFIG=" + dir + "/kubeconfig\n"; lines[0] != want || lines[1] != want {
		t.Errorf("up printed %q, want %q twice", lines, want)
	}
	if got := len(processes(t, "--data-dir="+dir)); got != 1 {
		t.Errorf("%d etcd run, want 1", got)
	}
	for range 2 {
		if out, err := script("down", dir).CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	}
	for _, file := range []string{dir + ".log", dir + ".ready"} {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after down: %v, want it removed", file, err)
		}
	}
	wantNothingLeft(t, dir)
}
