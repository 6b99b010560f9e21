package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/collection"
	"github.com/rolewright/rolewright/test/procs"
)

// contest holds the two ways of making a run.
type contest struct {
	b           *bench
	plain, warm *runner.Runner
}

// oneAtATime makes runs in pairs, and then, unless a workload is chosen, holds
// some of them to measure their memory.
func (b *bench) oneAtATime(ctx context.Context) (err error) {
	opts, err := b.runnerOptions(ctx)
	if err != nil {
		return err
	}
	lost := make(chan error, 1) // a run that is not forked must not be measured as a forked one
	pool := runner.NewPool(opts, func(err error) {
		if err != nil {
			select {
			case lost <- err:
			default: // the first error is enough
			}
		}
	})
	defer pool.Close()
	if err := pool.Wait(ctx); err != nil {
		return err
	}
	c := contest{b: b, plain: runner.New(opts)}
	opts.Warm = pool
	c.warm = runner.New(opts)
	defer c.plain.Close()
	defer c.warm.Close()
	for _, w := range b.workloads(workloadNames()...) {
		if err := c.pairs(ctx, w); err != nil {
			return fmt.Errorf("workload %s: %w", w.name, err)
		}
	}
	if b.opts.workload == "" {
		if err := c.memory(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-lost:
		return fmt.Errorf("runs were not forked: %w", err)
	default:
		return nil
	}
}

// runnerOptions returns the options of runs without an operator. It also creates an
// object whose status they write.
func (b *bench) runnerOptions(ctx context.Context) (runner.Options, error) {
	if err := client.IgnoreAlreadyExists(b.client.Create(ctx, newThing(metav1.NamespaceDefault, "bench"))); err != nil {
		return runner.Options{}, fmt.Errorf("create an object: %w", err)
	}
	collections, err := collection.Install(b.dir)
	return runner.Options{Collections: collections, WarmContent: []string{b.copied()}}, err
}

// cost is what a run took: seconds, and what its processes have used.
type cost struct {
	wall float64
	used share
}

// run makes one run, which has to succeed.
func (c contest) run(ctx context.Context, r *runner.Runner, name string, vars string) (cost, error) {
	id := uuid.NewString()
	req := runner.Request{
		ID: id, Dir: filepath.Join(c.b.dir, id), Content: c.b.of(name), ExtraVars: []byte(vars),
		Env: map[string]string{"K8S_AUTH_KUBECONFIG": c.b.admin()},
	}
	before, err := usedBy(os.Getpid())
	if err != nil {
		return cost{}, err
	}
	res, err := r.Run(ctx, req)
	if err == nil && !res.Verdict().Success {
		err = fmt.Errorf("the run failed: %+v\n%s", res.Verdict(), res.Tail)
	}
	if err != nil {
		return cost{}, err
	}
	after, err := usedBy(os.Getpid())
	return cost{res.Finished.Sub(res.Started).Seconds(), after.less(before)}, errors.Join(err, os.RemoveAll(req.Dir))
}

// comparison has the measurements of pairs.
type comparison struct{ plain, warm []cost }

// pairs makes runs of a workload in turn, in changing order.
func (c contest) pairs(ctx context.Context, w workload) error {
	var seen comparison
	for i := range c.b.opts.repeats + 1 {
		var pair [2]cost
		for k := range pair {
			which := (i + k) % len(pair)
			var err error
			if pair[which], err = c.run(ctx, []*runner.Runner{c.plain, c.warm}[which], w.name, "{}"); err != nil {
				return err
			}
		}
		if i > 0 { // the first run creates the objects
			seen.plain, seen.warm = append(seen.plain, pair[0]), append(seen.warm, pair[1])
		}
	}
	seen.print(fmt.Sprintf("%s, one at a time, %d pairs", w.name, c.b.opts.repeats), "5, 8", w.reach)
	return nil
}

// print prints costs and ratios, with the minimum and the aim for the ratios of wall and CPU.
func (c comparison) print(title, wall, cpu string) {
	fmt.Printf("\n%-50s %9s %9s %9s %9s %9s   reach, aim\n", title, "min", "q1", "median", "q3", "max")
	for _, figure := range []struct {
		name, unit, reach string
		of                func(cost) float64
	}{
		{"wall", "s", wall, func(c cost) float64 { return c.wall }},
		{"CPU", "s", cpu, func(c cost) float64 { return c.used.total() }},
		{"of it system", "s", "", func(c cost) float64 { return c.used.system }},
		{"page faults", "1,000", "", func(c cost) float64 { return c.used.faults / 1000 }},
	} {
		var plain, warm, ratio series
		for i := range c.plain {
			p, w := figure.of(c.plain[i]), figure.of(c.warm[i])
			plain, warm, ratio = append(plain, p), append(warm, w), append(ratio, p/w)
		}
		plain.quartiles(figure.name+", plain, "+figure.unit, "")
		warm.quartiles(figure.name+", warm, "+figure.unit, "")
		ratio.quartiles(figure.name+", plain ÷ warm", figure.reach)
	}
}

// memory holds runs in the middle of a module, and prints their memory. The private memory
// of a run is what each further one adds: the first also takes over from the
// fork server what was private to that until then.
func (c contest) memory(ctx context.Context) error {
	idle, err := footprintOf(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("\n%-50s %12s %12s %14s %14s\n", "memory, MiB", "private", "proportional", "a further run:", "proportional")
	fmt.Printf("%-50s %12.1f %12.1f\n", "fork server and supervisors", idle.private, idle.proportional)
	for _, way := range []struct {
		name   string
		runner *runner.Runner
	}{{"plain", c.plain}, {"warm", c.warm}} {
		var one footprint
		for _, k := range []int{1, 4, 8} {
			held, err := c.hold(ctx, way.runner, k)
			if err != nil {
				return err
			}
			fmt.Printf("%-50s %12.1f %12.1f", fmt.Sprintf("the same and %d runs, %s", k, way.name), held.private, held.proportional)
			if k == 1 {
				one = held
				fmt.Println()
				continue
			}
			more := held.less(one)
			fmt.Printf(" %14.1f %14.1f\n", more.private/float64(k-1), more.proportional/float64(k-1))
		}
	}
	return nil
}

// hold measures the memory while k runs are in progress.
func (c contest) hold(ctx context.Context, r *runner.Runner, k int) (footprint, error) {
	gate := filepath.Join(c.b.dir, "gate-"+uuid.NewString())
	ended := make(chan error, k)
	for range k {
		go func() {
			_, err := c.run(ctx, r, "waiting", fmt.Sprintf(`{"gate": %q}`, gate))
			ended <- err
		}()
	}
	var held footprint
	err := wait(ctx, "the runs to be in their modules", func() bool { return c.waiting() >= k })
	if err == nil {
		time.Sleep(time.Second) // a module imports first
		held, err = footprintOf(os.Getpid())
	}
	err = errors.Join(err, os.WriteFile(gate, nil, 0o600))
	for range k {
		err = errors.Join(err, <-ended)
	}
	return held, err
}

// waiting counts the modules that wait: the processes below this one that
// have the module's file in their arguments, without the shells around them.
func (c contest) waiting() int {
	processes, err := procs.Tree(os.Getpid())
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range processes {
		args, _ := p.CmdLine() // it may have ended
		if len(args) > 1 && strings.HasSuffix(args[1], "/AnsiballZ_wait_for.py") {
			n++
		}
	}
	return n
}
