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
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(execute(signals, os.Args, os.Stdout, os.Stderr))
}

// execute runs the program until it ends by itself or a signal ends it, and
// returns the exit code. The first signal asks for an orderly end; the second
// one does not wait for it.
func execute(signals <-chan os.Signal, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, stdout, stderr) }()

	for stopping := false; ; stopping = true {
		select {
		case err := <-done:
			return exitCode(err, stderr)
		case <-signals:
			if stopping {
				return exitFailed
			}
			cancel()
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
