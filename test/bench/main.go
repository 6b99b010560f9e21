// Command bench measures what Rolewright itself costs: the time from an object
// to its status with a run that takes no time; a thousand idle
// objects; the way of a request through the API proxy; memory while roles list many
// objects; runs that are forked from a warm interpreter, compared with runs that
// start a new Python, and in which of their processes; how long anything is left
// of a run that is ended; a full history of runs; a restart; and
// nothing at all. It prints figures and makes no judgement.
//
// The run that takes no time is a stub in place of ansible-runner (test/faults/fakerunner). The executors are
// compared with the workloads in the directory workloads, which run Ansible. `make bench`
// runs the command on the embedded control plane.
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
	"strings"
	"syscall"
	"time"
)

func main() {
	var opts options
	flag.StringVar(&opts.binary, "rolewright", "bin/rolewright", "the operator's binary")
	flag.StringVar(&opts.stub, "stub", "bin/fakerunner", "the stub: the binary built of ./test/faults/fakerunner")
	flag.StringVar(&opts.part, "part", "", "measure only path, latency, memory, executors, profile, crowd, ends, dev, history or restart")
	flag.BoolVar(&opts.quick, "quick", false, "measure little of everything, to see that it works")
	flag.IntVar(&opts.runs, "runs", 100, "objects that are created one after the other to measure the path of a run")
	flag.IntVar(&opts.idle, "idle", 1000, "objects that the idle operator watches")
	flag.DurationVar(&opts.watch, "watch", defaultIdleTime, "how long the idle operator is watched")
	flag.DurationVar(&opts.rest, "rest", 11*time.Minute, "how long after a run the idle operator is watched again")
	flag.IntVar(&opts.pairs, "pairs", 500, "direct and proxied requests of each kind")
	flag.IntVar(&opts.configMaps, "configmaps", 50_000, "ConfigMaps in the cluster while roles list them")
	flag.IntVar(&opts.owned, "owned", 10, "further ConfigMaps that one of the roles owns")
	flag.DurationVar(&opts.listing, "listing", time.Minute, "how long they list")
	flag.DurationVar(&opts.settling, "settling", defaultSettling, "how long memory may take to settle after that")
	flag.StringVar(&opts.workloads, "workloads", "test/bench/workloads", "the playbooks by which executors are compared")
	flag.StringVar(&opts.workload, "workload", "", "compare them only by this one: "+strings.Join(workloadNames(), ", "))
	flag.IntVar(&opts.repeats, "repeats", 10, "pairs of runs of each workload, one at a time")
	flag.IntVar(&opts.objects, "objects", 100, "objects of each workload that are created at once")
	flag.IntVar(&opts.rounds, "rounds", 1, "how often they are, with each executor")
	flag.IntVar(&opts.ended, "ended", 100, "runs that are ended by deleting their objects; for every five of them, the operator is killed once")
	flag.IntVar(&opts.saved, "saved", 20, "how often a role is saved while rolewright dev runs")
	flag.IntVar(&opts.recorded, "recorded", 20_000, "runs in the history whose cost is measured")
	flag.IntVar(&opts.historyPairs, "history-pairs", 10, "pairs of operators with and without a history that make runs")
	flag.Parse()
	if opts.quick {
		opts.runs, opts.idle, opts.watch = 10, 50, 5*time.Second
		opts.pairs, opts.configMaps, opts.listing, opts.settling = 30, 2000, 5*time.Second, 5*time.Second
		opts.repeats, opts.objects, opts.rounds, opts.ended, opts.saved = 1, 2, 1, 2, 2
		opts.recorded, opts.historyPairs, opts.rest = 400, 1, 5*time.Second
	}
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
	measured := false
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{{"path", b.pathAndIdle}, {"latency", b.latency}, {"memory", b.memory}, {"executors", b.oneAtATime}, {"profile", b.profile}, {"crowd", b.manyAtOnce}, {"ends", b.ends}, {"dev", b.dev}, {"history", b.history}, {"restart", b.restart}} {
		if opts.part != "" && opts.part != part.name {
			continue
		}
		measured = true
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if !measured {
		return fmt.Errorf("there is no part %q", opts.part)
	}
	return nil
}

// pathAndIdle measures the path of a run, and what idle objects cost.
func (b *bench) pathAndIdle(ctx context.Context) error {
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
	fmt.Printf("%-58s %10s %10.1f %10s   %s\n", fmt.Sprintf("resident memory, %d idle objects, MiB", b.opts.idle), "", idle.residentMiB, "", "60 / 40")
	fmt.Printf("%-58s %10s %10.3f %10s   %s\n", "CPU while idle, % of a core", "", idle.cpuPercent, "", "0.2")
	fmt.Printf("%-58s %10s %10d %10s   %s\n", "runs while idle and after a restart", "", idle.runs, "", "0")
	return nil
}
