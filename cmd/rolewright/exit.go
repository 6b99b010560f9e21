package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// The exit codes of the program; docs/reference/exit-codes.md lists them. The
// operator itself ("run") ends with 0 or 1 only, as ansible-operator does.
const (
	exitOK     = 0
	exitFailed = 1
	// exitUsage: an unknown command or flag, or a file that cannot be read.
	exitUsage = 2
	// exitUnreachable: the cluster could not be asked.
	exitUnreachable = 3
	// exitTimeout: what was waited for took too long.
	exitTimeout = 4
	// exitNothing: nothing matched.
	exitNothing = 5
	// exitSignal is added to the number of the signal that ended a command.
	exitSignal = 128
)

// errInvalid is returned by a subcommand that has already printed what is
// wrong. It sets the exit code and is not printed.
var errInvalid = errors.New("the input is not valid")

// codedError is an error with the exit code that it causes.
type codedError struct {
	error
	code int
}

// Unwrap returns the error without its code.
func (e codedError) Unwrap() error { return e.error }

// usage marks an error of the command line, or a file that cannot be read.
func usage(err error) error { return coded(err, exitUsage) }

// unreachable marks a cluster that could not be asked.
func unreachable(err error) error { return coded(err, exitUnreachable) }

func coded(err error, code int) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// interruptedError says that a signal ended a run of once. It wraps [context.Canceled], which
// leads to the exit code of the signal.
type interruptedError struct{}

func (interruptedError) Error() string {
	return "interrupted: what the run had done by then stays; start it once more to complete it"
}

// Unwrap returns the error that a signal causes.
func (interruptedError) Unwrap() error { return context.Canceled }

// exitCode prints err, once and in one place, and returns the exit code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errInvalid) {
		fmt.Fprintf(stderr, "Error: %s\n", plaintext.Plain(err.Error()))
	}
	var known codedError
	if errors.As(err, &known) {
		return known.code
	}
	return exitFailed
}

// interrupted is the exit code of a command that a signal ended: 130 for an
// interrupt, 143 for SIGTERM.
func interrupted(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return exitSignal + int(number)
	}
	return exitFailed
}
