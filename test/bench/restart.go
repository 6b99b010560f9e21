package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rolewright/rolewright/test/procs"
)

// restart measures what the operator, and everything below it, uses from a restart on with objects
// that have not changed, and then while nothing happens: after the restart, and after a run.
func (b *bench) restart(ctx context.Context) error {
	if err := b.runWithStub(ctx); err != nil {
		return err
	}
	if err := b.startProcess(ctx, []string{"--proxy-port", "0"}, b.stubEnviron()); err != nil {
		return err
	}
	if err := sleep(ctx, resting); err != nil {
		return err
	}
	cpu, err := usedBy(b.operator.cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-58s %10s\n", fmt.Sprintf("restart, %d unchanged objects, all processes", b.opts.idle), "")
	fmt.Printf("%-58s %10.2f   %s\n", "CPU of the restart, s", cpu.total(), "1 / 0.5")
	if err := b.idleTree(ctx, "without a run"); err != nil {
		return err
	}
	if err := b.create(ctx, "default", "restart-one-more"); err != nil {
		return err
	}
	if err := b.awaitReady(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, b.opts.rest); err != nil {
		return err
	}
	return b.idleTree(ctx, fmt.Sprintf("%s after a run", b.opts.rest))
}

// runWithStub makes the stub run all objects, stops the operator, and replaces the stub by the real ansible-runner.
func (b *bench) runWithStub(ctx context.Context) error {
	real, err := exec.LookPath("ansible-runner")
	if err != nil {
		return err
	}
	stub, err := filepath.Abs(b.opts.stub)
	if err != nil {
		return err
	}
	// The stub claims to be the real one, and is replaced by it in the same place: any
	// difference would cause runs.
	path := filepath.Join(b.dir, "bin", "ansible-runner")
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" != --version ] || exec %s --version\nexec %s \"$@\"\n", real, stub)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(text), 0o700)); err != nil {
		return err
	}
	if err := b.startOperator(ctx); err != nil {
		return err
	}
	for i := range b.opts.idle {
		if err := b.create(ctx, "default", fmt.Sprintf("restart-%d", i)); err != nil {
			return err
		}
	}
	if err := b.awaitReady(ctx); err != nil {
		return err
	}
	if err := b.operator.stop(); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.Symlink(real, path))
}

// idleTree prints what the operator, and everything below it, uses while nothing happens.
func (b *bench) idleTree(ctx context.Context, when string) error {
	pid := b.operator.cmd.Process.Pid
	was, err := usedBy(pid)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.opts.watch); err != nil {
		return err
	}
	is, err := usedBy(pid)
	if err != nil {
		return err
	}
	below, err := footprintOf(pid)
	if err != nil {
		return err
	}
	own, err := b.operator.usage()
	if err != nil {
		return err
	}
	processes, err := procs.Tree(pid)
	fmt.Printf("%-58s %10.3f   %s\n", "CPU, % of a core, idle, "+when, 100*is.less(was).total()/b.opts.watch.Seconds(), "0.05")
	fmt.Printf("%-58s %10.1f   %s\n", fmt.Sprintf("memory, MiB, of %d processes", len(processes)), own.residentMiB+below.proportional, "45")
	fmt.Printf("%-58s %10.1f   %s\n", "  of it the operator, MiB", own.residentMiB, fmt.Sprintf("(%.1f anonymous)", own.anonMiB))
	return err
}

// sleep waits for d, or returns the reason why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
