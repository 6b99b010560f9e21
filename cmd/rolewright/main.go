// Command rolewright turns Ansible content into a Kubernetes operator.
//
// The package knows flags, environment variables, signals, exit codes and how
// the parts are put together. What is done with them is the business of
// controller, runner and the packages under internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/supervise"
)

// The exit codes of the program.
const (
	exitOK     = 0
	exitFailed = 1
)

// errInvalid is returned by a subcommand that has already told the user, on
// its own output, what is wrong. It sets the exit code and is not printed.
var errInvalid = errors.New("the input is not valid")

func main() {
	if supervising(os.Args) {
		os.Exit(supervise.Main(os.Stdin, os.Stderr))
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(execute(signals, os.Args, os.Stdout, os.Stderr))
}

// supervising reports whether this is not the operator, but the process that
// it has started to look after a run. That is no subcommand for people.
func supervising(args []string) bool {
	return len(args) == 2 && args[1] == runner.SupervisorCommand
}

// abortPatience is how long the program may take to end what it started once
// it was told twice: the grace of a run, the kill, the last status write.
const abortPatience = 10 * time.Second

// abortKey is the key under which a context carries the one that ends when the
// program must not wait for anything.
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
// returns the exit code. The first signal asks for an orderly end; the second
// one stops the runs at once, and leaves nothing of them behind; the third one
// waits for nothing.
func execute(signals <-chan os.Signal, args []string, stdout, stderr io.Writer) int {
	hard, abort := context.WithCancel(context.Background())
	defer abort()
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), abortKey{}, hard))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, stdout, stderr) }()

	var patience <-chan time.Time
	for told := 1; ; told++ {
		select {
		case err := <-done:
			return exitCode(err, stderr)
		case <-patience:
			return exitFailed
		case <-signals:
		}
		switch told {
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

// exitCode tells the user about err, once and in one place.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errInvalid) {
		fmt.Fprintf(stderr, "Error: %v\n", err)
	}
	return exitFailed
}

// run is the whole program: args is the command line with the program's name
// first. It returns when everything that it started has ended. An error is
// fit for printing; see [errInvalid].
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRootCommand(args[0])
	root.SetArgs(args[1:])
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}
