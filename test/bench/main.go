// Command bench measures what Rolewright itself costs: the time between an
// object and its status around a run that takes none, and what a thousand idle
// objects need. It prints figures and judges nothing.
//
// The instant run is a stub in place of ansible-runner (see stub). `make bench`
// runs it on the embedded control plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	var opts options
	flag.StringVar(&opts.binary, "rolewright", "bin/rolewright", "the operator's binary")
	flag.StringVar(&opts.stub, "stub", "bin/bench-stub", "the stub's binary, built of ./test/bench/stub")
	flag.IntVar(&opts.runs, "runs", 100, "objects that are created one after the other to measure the path of a run")
	flag.IntVar(&opts.idle, "idle", 1000, "objects that the idle operator watches")
	flag.DurationVar(&opts.watch, "watch", defaultIdleTime, "how long the idle operator is watched")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints it.
func run(ctx context.Context, opts options) (err error) {
	b, err := prepare(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cleanUp()) }()
	if err := b.startOperator(ctx); err != nil {
		return err
	}
	empty, err := b.operator.usage()
	if err != nil {
		return err
	}
	path, err := b.measurePath(ctx)
	if err != nil {
		return err
	}
	phases, err := b.operator.phases()
	if err != nil {
		return err
	}
	idle, err := b.measureIdle(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-58s %10s %10s %10s   %s\n", "figure", "min", "median", "max", "reach / aim")
	path.print()
	for _, name := range slices.Sorted(maps.Keys(phases)) {
		fmt.Printf("%-58s %10s %10.1f %10s   (mean)\n", "  of it in phase "+name+", ms", "", phases[name], "")
	}
	fmt.Printf("%-58s %10s %10.1f %10s\n", "resident memory, no object, MiB", "", empty.residentMiB, "")
	fmt.Printf("%-58s %10s %10.1f %10s   %s\n", fmt.Sprintf("resident memory, %d idle objects, MiB", opts.idle), "", idle.residentMiB, "", "60 / 40")
	fmt.Printf("%-58s %10s %10.3f %10s   %s\n", "CPU while idle, % of a core", "", idle.cpuPercent, "", "0.2")
	fmt.Printf("%-58s %10s %10d %10s   %s\n", "runs while idle and after a restart", "", idle.runs, "", "0")
	return nil
}
