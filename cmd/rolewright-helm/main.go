// Command rolewright-helm makes a Helm release for an object. The operator runs it for
// watches with a chart, as it runs any command: see docs/handlers.md. It is a separate
// program so that no other one contains Helm's libraries.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes of the protocol, in addition to 0.
const (
	exitFailed  = 1
	exitRefused = 78
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if os.Getenv("ROLEWRIGHT_PROTOCOL") != "1" {
		fmt.Fprintln(os.Stderr, "rolewright-helm is started by rolewright, for watches with a chart: see docs/handlers.md")
		return exitRefused
	}
	in, err := readInput()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	reports, err := openReports(os.Getenv("ROLEWRIGHT_EVENTS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	defer reports.close()
	h := newHandler(in, reports)
	result, err := h.act(ctx)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		reports.result("failed", err.Error(), false)
		return exitRefused
	case err != nil:
		reports.result("failed", clip(err.Error(), maxMessage-maxLog)+h.logs, false)
		return exitFailed
	case reports.err != nil:
		fmt.Fprintln(os.Stderr, reports.err)
		return exitFailed
	case result.waiting != "":
		reports.requeue(result.requeue)
		reports.result("waiting", result.waiting, result.changed)
	default:
		reports.result("ok", "", result.changed)
	}
	return 0
}

// unlimited is the timeout of a run without a deadline: Helm has no value for none.
const unlimited = 365 * 24 * time.Hour

func newHandler(in *input, reports *reports) *handler {
	h := &handler{in: in, reports: reports, timeout: unlimited}
	if deadline := in.Run.Deadline; deadline != nil {
		h.deadline = *deadline
		h.timeout = h.left()
	}
	return h
}

// refusal is an error that a retry does not solve: the object, the watch or the chart has
// to change first.
type refusal struct{ error }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// result is how a run without a failure has ended.
type result struct {
	changed bool
	// waiting says what is not as wanted yet; empty if everything is. requeue is the time until the next check.
	waiting string
	requeue time.Duration
}
