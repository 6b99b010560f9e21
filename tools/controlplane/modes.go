package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// stay is the mode run: it returns when the context or a component ends, after everything is removed again.
func stay(ctx context.Context, opts options, out, progress io.Writer) (err error) {
	c, err := open(opts, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(ctx, opts); err != nil {
		return err
	}
	fmt.Fprintln(out, exportLine(c.kubeconfig()))
	select {
	case <-ctx.Done():
		c.report("stopping")
		return nil
	case part := <-c.ended:
		return part.failure()
	}
}

// exportLine is for a shell to evaluate. The path is quoted if necessary.
func exportLine(kubeconfig string) string {
	return "export KUBECONFIG=" + shellQuote(kubeconfig)
}

// shellQuote quotes a path for a POSIX shell if that is necessary.
func shellQuote(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%"

// commandGrace is how long the command of exec may take to end after a signal or the death of a component, before it is
// killed. The clean-up of the demo and of Ansible's processes takes seconds, but a command that is stuck must end, too.
const commandGrace = time.Minute

// execute is the mode exec: it returns the exit code that the command ended with.
func execute(ctx context.Context, opts options, command []string) (code int, err error) {
	// Check this now, not when everything is up.
	if _, err := exec.LookPath(command[0]); err != nil {
		return exitNotFound, fmt.Errorf("find the command: %w", err)
	}
	c, err := open(opts, os.Stderr)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopped := c.stop(); stopped != nil {
			code, err = max(code, 1), errors.Join(err, stopped)
		}
	}()
	if err := c.start(ctx, opts); err != nil {
		if ctx.Err() != nil {
			return exitInterrupted, err
		}
		return 1, err
	}
	signals := make(chan os.Signal, 8) // a burst of signals is forwarded whole
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	return c.execute(command, signals)
}

// execute runs the command in a process group of its own and ends the whole group with it.
func (c *cluster) execute(command []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(), "ROLEWRIGHT_TEST_KUBECONFIG="+c.kubeconfig())
	if c.layout.auditLog != "" {
		cmd.Env = append(cmd.Env, "ROLEWRIGHT_TEST_AUDIT_LOG="+c.layout.auditLog)
	}
	if err := c.spawner.start(cmd); err != nil {
		return exitNotFound, fmt.Errorf("start %s: %w", command[0], err)
	}
	group := cmd.Process.Pid
	if err := c.janitor.watchGroup(group); err != nil {
		_ = syscall.Kill(-group, syscall.SIGKILL)
		return 1, errors.Join(err, cmd.Wait())
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the answer is in ProcessState
		close(ended)
	}()
	err := c.forward(group, signals, ended)
	// What the command started and left behind is killed, too.
	_ = syscall.Kill(-group, syscall.SIGKILL) // an empty group is fine
	return exitCode(cmd.ProcessState, err), err
}

// forward passes signals on until the command has ended. A component that ends takes the command with it.
func (c *cluster) forward(group int, signals <-chan os.Signal, ended <-chan struct{}) error {
	var (
		failure error
		overdue <-chan time.Time
	)
	for {
		select {
		case <-ended:
			return failure
		case received := <-signals:
			number, _ := received.(syscall.Signal) // on this system every signal is one of these
			_ = syscall.Kill(-group, number)       // ended tells if it was too late
			if overdue == nil && number != syscall.SIGQUIT {
				overdue = time.After(commandGrace)
			}
		case part := <-c.ended:
			failure = part.failure()
			_ = syscall.Kill(-group, syscall.SIGTERM)
			overdue = time.After(commandGrace)
		case <-overdue:
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
}

// exitCode is a command's exit code as a shell reports it. A failed control plane is never a success.
func exitCode(state *os.ProcessState, failure error) int {
	code := state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if failure != nil {
		return max(code, 1)
	}
	return code
}
