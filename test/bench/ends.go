package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/procs"
)

// ends ends endless runs, by deleting their objects and by
// killing the operator, and measures how long any process of them is left.
func (b *bench) ends(ctx context.Context) error {
	const title = "until no process of a run is left, s"
	fmt.Printf("\n%-58s %8s %8s %8s %8s   %s\n", title, "median", "p90", "p99", "max", "reach")
	for _, executor := range []string{"runner", "warm"} {
		deleted, err := b.endByDeleting(ctx, executor)
		if err != nil {
			return fmt.Errorf("--executor=%s: %w", executor, err)
		}
		printEnds(fmt.Sprintf("%d objects deleted, one at a time, --executor=%s", len(deleted), executor), deleted, "p99 2")
		killed, err := b.endByKilling(ctx, executor)
		if err != nil {
			return fmt.Errorf("--executor=%s: %w", executor, err)
		}
		printEnds(fmt.Sprintf("operator killed %d times, %d runs each, --executor=%s", len(killed), atOnce, executor), killed, "max 5")
	}
	return nil
}

// atOnce is how many runs are in progress when the operator is killed.
const atOnce = 4

func printEnds(what string, took []float64, reach string) {
	slices.Sort(took)
	at := func(percent int) float64 { return took[(len(took)*percent+99)/100-1] }
	fmt.Printf("%-58s %8.2f %8.2f %8.2f %8.2f   %s\n", what, at(50), at(90), at(99), at(100), reach)
}

// startEndless starts an operator whose runs do not end by themselves.
func (b *bench) startEndless(ctx context.Context, executor string) error {
	return b.startWorkload(ctx, "endless", executor, "--max-concurrent-reconciles", fmt.Sprint(atOnce))
}

func (b *bench) endByDeleting(ctx context.Context, executor string) (took []float64, err error) {
	if err := b.startEndless(ctx, executor); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.operator.stop()); b.operator = nil }()
	for i := range b.opts.ended {
		name := fmt.Sprintf("deleted-%d", i)
		if err := b.createEndless(ctx, name); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := b.client.Delete(ctx, newThing(metav1.NamespaceDefault, name)); err != nil {
			return nil, fmt.Errorf("delete an object: %w", err)
		}
		if err := b.awaitNoRun(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took, nil
}

func (b *bench) endByKilling(ctx context.Context, executor string) (took []float64, err error) {
	for range (b.opts.ended + 4) / 5 {
		if err := b.startEndless(ctx, executor); err != nil {
			return nil, err
		}
		names := make([]string, atOnce)
		for i := range names {
			names[i] = fmt.Sprintf("killed-%d", i)
		}
		if err := b.createEndless(ctx, names...); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := b.operator.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			return nil, fmt.Errorf("kill the operator: %w", err)
		}
		if err := b.awaitNoRun(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds())
		<-b.operator.ended //nolint:errcheck // it says that it was killed
		b.operator = nil
	}
	return took, b.removeThings(ctx)
}

// createEndless creates objects, and returns when everything that their runs start is running.
func (b *bench) createEndless(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := b.create(ctx, metav1.NamespaceDefault, name); err != nil {
			return err
		}
	}
	return wait(ctx, "the runs to come to their last task", func() bool {
		commands, err := b.processesOfRuns()
		for _, command := range []string{"sleep 86397", "sleep 86398", "sleep 86399"} {
			there := 0
			for _, c := range commands {
				if strings.HasPrefix(c, command) {
					there++
				}
			}
			if there < len(names) {
				return false
			}
		}
		return err == nil
	})
}

// awaitNoRun returns when no process of a run is left.
func (b *bench) awaitNoRun(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("something is left of a run after a minute"))
	defer cancel()
	for {
		commands, err := b.processesOfRuns()
		if err != nil || len(commands) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %q", context.Cause(ctx), commands)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// markEnv is in the environment of this program's operators, and so of their runs.
const markEnv = "BENCH_DIR"

// processesOfRuns returns the command lines of the processes of the operator's
// runs: they inherit its environment, and have the run's cookie. A forked process
// has the environment of the fork server, plus the cookie.
func (b *bench) processesOfRuns() ([]string, error) {
	mine, err := procs.Marked(markEnv + "=" + b.dir + "\x00")
	var found []string
	for pid, command := range mine {
		_, run, _ := bytes.Cut(procs.Environ(pid), []byte("ROLEWRIGHT_RUN="))
		if len(run) > 0 && !bytes.HasPrefix(run, []byte("server-")) { // without a run the process has ended
			found = append(found, command)
		}
	}
	return found, err
}
