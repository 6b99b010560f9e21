// Command rolewright turns Ansible content into a Kubernetes operator.
//
// The package knows flags, environment variables, signals, exit codes and how
// the parts are put together. The packages controller and runner and those under
// internal do the rest.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
)

func main() {
	os.Exit(execute(notified(), os.Args, os.Stdout, os.Stderr))
}

// notified returns the signals that end the program: signals from people, from a terminal that
// is closed, unless nohup ignores that, and from an output that nothing reads any more.
func notified() <-chan os.Signal {
	signals, pipes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		for s := range pipes { // a connection may be the cause, too
			if outputIsGone(1, 2) {
				signals <- s
				return
			}
		}
	}()
	return signals
}

// outputIsGone tells whether nothing reads one of the descriptors any more: a pipe, or a socket such as an SSH server's.
// A terminal that is closed does not count: writing to it causes no SIGPIPE.
func outputIsGone(descriptors ...int32) bool {
	return slices.ContainsFunc(descriptors, func(fd int32) bool {
		var about unix.Stat_t
		if unix.Fstat(int(fd), &about) != nil || about.Mode&unix.S_IFMT == unix.S_IFCHR {
			return false
		}
		out := []unix.PollFd{{Fd: fd}}
		_, err := unix.Poll(out, 0)
		return err == nil && out[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
}

// abortPatience is how long the program may take, after the second signal, to
// end what it started: the grace of a run, the kill and the last status write, whose own
// limits add up to 25 seconds. A third signal waits for nothing.
const abortPatience = time.Minute

// abortKey is the key under which a context carries another context, which ends
// when the program must not wait for anything.
type abortKey struct{}

// onAbort calls do, in a goroutine of its own, when the user does not want to
// wait any longer.
func onAbort(ctx context.Context, do func()) (stop func() bool) {
	hard, ok := ctx.Value(abortKey{}).(context.Context)
	if !ok {
		return func() bool { return true }
	}
	return context.AfterFunc(hard, do)
}

// execute runs the program until it ends by itself or a signal ends it, and
// returns the exit code. The first signal asks for an orderly end. The second one
// stops the runs at once, and leaves nothing of them behind. The third one waits for
// nothing. SIGHUP and SIGPIPE only count as the first signal.
func execute(signals <-chan os.Signal, args []string, stdout, stderr io.Writer) int {
	hard, abort := context.WithCancel(context.Background())
	defer abort()
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), abortKey{}, hard))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, stdout, stderr) }()

	var patience <-chan time.Time
	var first os.Signal
	for count := 0; ; {
		var s os.Signal
		select {
		case err := <-done:
			return ended(err, first, stderr)
		case <-patience:
			return exitFailed
		case s = <-signals:
		}
		if first != nil && (s == syscall.SIGHUP || s == syscall.SIGPIPE) {
			continue // the user is gone, and in no hurry
		}
		if first == nil {
			first = s
		}
		switch count++; count {
		case 1:
			failpoint.Hit("shutdown.begun")
			cancel()
		case 2:
			abort()
			patience = time.After(abortPatience)
		default:
			return exitFailed
		}
	}
}

// ended returns the exit code of a program that ended with err, which may be nil. first is the first signal, if any.
func ended(err error, first os.Signal, stderr io.Writer) int {
	if errors.Is(err, syscall.EPIPE) && outputIsGone(1, 2) {
		if first == nil { // the error can come before the signal
			first = syscall.SIGPIPE
		}
		return interrupted(first)
	}
	if first != nil && err != nil && err.Error() == context.Canceled.Error() {
		return interrupted(first) // there is nothing to say
	}
	code := exitCode(err, stderr)
	if errors.Is(err, context.Canceled) && first != nil {
		code = interrupted(first)
	}
	return code
}

// run is the whole program. args is the command line, starting with the program's
// name. It returns when everything that it started has ended. The error can be
// printed; see [errInvalid].
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRootCommand(args[0])
	arguments := args[1:]
	if filepath.Base(args[0]) == kubectlComplete {
		arguments = append([]string{cobra.ShellCompRequestCmd}, arguments...)
	}
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	checkCompletion(root)
	understood := false // cobra gives its errors about the command line no type
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return nil
	case cmd.Name() == runCommand && cmd.Parent() == root:
		return coded(err, exitFailed)
	case !understood:
		return usage(err)
	}
	return err
}
