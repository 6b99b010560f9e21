package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rolewright/rolewright/runner"
)

// profile makes forked runs of each workload, and prints which processes use
// the CPU time.
func (b *bench) profile(ctx context.Context) error {
	trace := filepath.Join(b.dir, "trace")
	opts, err := b.runnerOptions(ctx)
	if err != nil {
		return err
	}
	opts.Trace = trace
	pool := runner.NewPool(opts, nil)
	defer pool.Close()
	if err := pool.Wait(ctx); err != nil {
		return err
	}
	opts.Warm = pool
	c := contest{b: b, warm: runner.New(opts)}
	defer c.warm.Close()
	for _, w := range b.workloads(workloadNames()...) {
		name := w.name
		var sum profile
		for i := range b.opts.repeats + 1 {
			if err := os.WriteFile(trace, nil, 0o600); err != nil {
				return err
			}
			whole, err := c.run(ctx, c.warm, name, "{}")
			if err != nil {
				return fmt.Errorf("workload %s: %w", name, err)
			}
			one, err := readProfile(trace, whole)
			if err != nil {
				return fmt.Errorf("workload %s: %w", name, err)
			}
			if i > 0 { // the first run creates the objects
				sum.add(one)
			}
		}
		sum.print(fmt.Sprintf("%s, forked, mean of %d runs, ms", name, b.opts.repeats), float64(b.opts.repeats))
	}
	return nil
}

// share is what processes have used: CPU time in seconds, and page faults.
type share struct{ user, system, faults float64 }

func (u share) plus(v share) share {
	return share{u.user + v.user, u.system + v.system, u.faults + v.faults}
}
func (u share) less(v share) share {
	return share{u.user - v.user, u.system - v.system, u.faults - v.faults}
}
func (u share) total() float64 { return u.user + u.system }
func (u share) ms(n float64) string {
	return fmt.Sprintf("%9.0f %9.0f %9.0f %9.0f", 1000*u.user/n, 1000*u.system/n, 1000*u.total()/n, u.faults/n)
}

// profile is the CPU time of a run by kinds of processes, in seconds.
type profile struct {
	modules float64 // the number of modules
	of      map[string]share
	whole   cost
}

// kinds returns the kinds of a run's processes, in the order of a profile.
func kinds() []string {
	return []string{"ansible-runner", "ansible-playbook", "workers", "process that forks modules", "modules"}
}

// readProfile reads what the processes of a run have recorded. Each process knows the CPU time of
// all processes below it, starting with the one that leads the run.
func readProfile(trace string, whole cost) (profile, error) {
	p := profile{of: map[string]share{}, whole: whole}
	text, err := os.ReadFile(trace)
	if err != nil {
		return p, err
	}
	own, below := map[string]share{}, map[string]share{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "module forked") {
			p.modules++
		}
		if line, ok := strings.CutPrefix(line, "used "); ok {
			var kind string
			var a, b share
			if _, err := fmt.Sscan(line, &kind, &a.user, &a.system, &a.faults, &b.user, &b.system, &b.faults); err != nil {
				return p, fmt.Errorf("%q: %w", line, err)
			}
			own[kind], below[kind] = a, b
		}
	}
	if len(own) != 4 {
		return p, fmt.Errorf("not all of the run is forked: %s", text)
	}
	p.of["ansible-runner"] = below["runhead"].less(below["ansible-runner"])
	p.of["ansible-playbook"] = below["ansible-runner"].less(below["ansible-playbook"])
	p.of["process that forks modules"], p.of["modules"] = own["modules"], below["modules"]
	p.of["workers"] = below["ansible-playbook"].less(own["modules"]).less(below["modules"])
	return p, nil
}

func (p *profile) add(one profile) {
	if p.of == nil {
		p.of = map[string]share{}
	}
	for kind, used := range one.of {
		p.of[kind] = p.of[kind].plus(used)
	}
	p.modules += one.modules
	p.whole.wall += one.whole.wall
	p.whole.used = p.whole.used.plus(one.whole.used)
}

func (p profile) print(title string, n float64) {
	fmt.Printf("\n%-50s %9s %9s %9s %9s\n", title, "user", "system", "CPU", "faults")
	rest := p.whole.used.total()
	for _, kind := range kinds() {
		name := kind
		if kind == "modules" {
			name = fmt.Sprintf("%.0f modules", p.modules/n)
		}
		fmt.Printf("%-50s %s\n", name, p.of[kind].ms(n))
		rest -= p.of[kind].total()
	}
	fmt.Printf("%-50s %29.0f\n", "fork server, run head, supervisor, this program", 1000*rest/n)
	fmt.Printf("%-50s %29.0f\n", "the run", 1000*p.whole.used.total()/n)
	fmt.Printf("%-50s %29s\n", "the run, wall", time.Duration(p.whole.wall/n*float64(time.Second)).Round(time.Millisecond))
}
