package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/test/faults/campaign"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// driver carries out many plans.
type driver struct {
	o    options
	c    *campaign.Campaign
	kept *kept

	mu         sync.Mutex
	references map[string]*reference
	results    []campaign.Result
	errs       []error
}

func newDriver(o options, c *campaign.Campaign, k *kept) *driver {
	d := &driver{o: o, c: c, kept: k, references: map[string]*reference{}}
	if k.plans == nil {
		return d // plans are made from references that are carried out now
	}
	for _, name := range sorted(k.results) {
		res := k.results[name]
		d.results = append(d.results, res)
		if campaign.IsReference(name) {
			r := &reference{result: res}
			r.once.Do(func() {})
			d.references[name] = r
		}
	}
	return d
}

// reference is the result of a workload without faults.
type reference struct {
	once   sync.Once
	result campaign.Result
	err    error
}

// reference runs a workload without faults, once.
func (d *driver) reference(ctx context.Context, workload string, replicas int) (campaign.Result, error) {
	p := campaign.Reference(workload, replicas)
	d.mu.Lock()
	r := d.references[p.Name]
	if r == nil {
		r = &reference{}
		d.references[p.Name] = r
	}
	d.mu.Unlock()
	r.once.Do(func() {
		r.result, r.err = d.c.Run(ctx, p, "")
		if r.err == nil {
			d.done(r.result)
		}
	})
	return r.result, r.err
}

// choose makes or reads the plans.
func (d *driver) choose(ctx context.Context) ([]plan.Plan, error) {
	var plans []plan.Plan
	for _, name := range names(d.o.plans) {
		read, err := plan.LoadDir(name)
		if err != nil {
			return nil, err
		}
		plans = append(plans, read...)
	}
	if d.o.generate > 0 {
		generated, err := d.generate(ctx)
		if err != nil {
			return nil, err
		}
		plans = append(plans, generated...)
	}
	if d.o.matrix {
		matrix := campaign.KillMatrix(d.o.Forked)
		if only := names(d.o.workloads); len(only) > 0 {
			matrix = slices.DeleteFunc(matrix, func(p plan.Plan) bool { return !slices.Contains(only, p.Workload) })
		}
		plans = append(plans, matrix...)
	}
	for i := range (d.o.failovers + 9) / 10 {
		plans = append(plans, campaign.FailoverPlan(i))
	}
	if d.o.soak > 0 {
		plans = append(plans, campaign.SoakPlan("soak-"+d.o.runner, d.o.soak))
	}
	if len(plans) == 0 {
		return nil, errors.New("no plans: give -plans, -generate, -kill-matrix, -fail-overs or -soak, and with -workloads those that exist")
	}
	var all []plan.Plan
	for i := range max(1, d.o.repeat) {
		for _, p := range plans {
			if i > 0 {
				p.Name += fmt.Sprintf("-again-%d", i)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// generate makes plans from the reference runs of all workloads.
func (d *driver) generate(ctx context.Context) ([]plan.Plan, error) {
	workloads := names(d.o.workloads)
	if len(workloads) == 0 {
		workloads = campaign.Workloads()
	}
	made := make([][]plan.Plan, len(workloads))
	errs := make([]error, len(workloads))
	campaign.Each(d.o.parallel, len(workloads), func(i int) {
		r, err := d.reference(ctx, workloads[i], 1)
		if err != nil {
			errs[i] = err
			return
		}
		made[i] = plan.Generate(r.Trace, plan.Options{Workload: workloads[i], Replicas: 1})
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := slices.Concat(made...)
	picked := plan.Pick(all, d.o.generate)
	plan.Share(picked)
	fmt.Printf("%d plans made of %d reference runs, %d of them chosen; %d classes are not covered\n",
		len(all), len(workloads), len(picked), len(plan.Uncovered(all, picked)))
	return picked, nil
}

func save(plans []plan.Plan, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range plans {
		if _, err := p.Save(dir); err != nil {
			return err
		}
	}
	fmt.Printf("%d plans written to %s\n", len(plans), dir)
	return nil
}

// carryOut carries out all plans that have no result.
func (d *driver) carryOut(ctx context.Context) {
	campaign.Each(d.o.parallel, len(d.kept.plans), func(i int) {
		p := d.kept.plans[i]
		if _, done := d.kept.results[p.Name]; done || ctx.Err() != nil {
			return
		}
		var ref, res campaign.Result
		var err error
		if campaign.HasReference(p) {
			ref, err = d.reference(ctx, p.Workload, p.Replicas)
		}
		if err == nil {
			res, err = d.c.Run(ctx, p, ref.Dir)
		}
		switch {
		case ctx.Err() != nil: // it is carried out again later
		case err != nil:
			d.mu.Lock()
			defer d.mu.Unlock()
			d.errs = append(d.errs, err)
			fmt.Printf("%s: %v\n", p.Name, err)
		default:
			d.done(res)
		}
	})
}

// done records and prints the result of a plan.
func (d *driver) done(res campaign.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.results = append(d.results, res)
	if err := d.kept.add(res); err != nil {
		d.errs = append(d.errs, err)
	}
	word := "ok"
	switch {
	case len(res.Violations) > 0:
		word = "VIOLATED"
	case !res.Reached:
		word = "not reached"
	}
	fmt.Printf("%4d %-12s %5.1fs %2d runs  %s\n", len(d.results), word, res.Took.Seconds(), res.Runs, res.Plan.Name)
	for _, v := range res.Violations {
		fmt.Printf("       %s\n", v)
	}
	if len(res.Violations) > 0 {
		_, err := res.Plan.Save(res.Dir)
		if err != nil {
			d.errs = append(d.errs, err)
		}
		return
	}
	// References are needed until the end.
	if !d.o.keep && !campaign.IsReference(res.Plan.Name) {
		_ = os.RemoveAll(res.Dir) // the whole directory is removed at the end
	}
}

// row has the results of the plans of a class.
type row struct{ plans, reached, violations, runs, forked, plain int }

// report prints the table, and returns what is wrong.
func (d *driver) report() error {
	rows := map[string]*row{}
	total := &row{}
	violated := map[string]int{}
	var took time.Duration
	for _, res := range d.results {
		took += res.Took
		for _, r := range []*row{at(rows, classOf(res.Plan)), total} {
			r.plans++
			r.runs += res.Runs
			r.forked += res.Forked
			r.plain += res.Plain
			if res.Reached {
				r.reached++
			}
			if len(res.Violations) > 0 {
				r.violations++
			}
		}
		for _, v := range res.Violations {
			violated[v.Invariant]++
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nfault\tplans\treached\tviolated\truns\tforked\n")
	for _, name := range sorted(rows) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", name, rows[name].plans, rows[name].reached, rows[name].violations, rows[name].runs, rows[name].forked)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\t%d\n", total.plans, total.reached, total.violations, total.runs, total.forked)
	_ = w.Flush()
	for _, res := range d.results {
		if res.Report != "" {
			fmt.Printf("%s, %d runs:\n%s\n", res.Plan.Name, res.Runs, res.Report)
		}
	}
	for _, name := range sorted(violated) {
		fmt.Printf("%s: %d violations\n", name, violated[name])
	}
	fmt.Printf("%s of plans, %d at a time, %s runner, commit %s, %s\n", took.Round(time.Second), d.o.parallel, d.o.runner, version.GitVersion, time.Now().Format(time.DateOnly))
	for _, res := range d.results {
		if !res.Reached {
			fmt.Printf("not reached: %s\n", res.Plan.Name)
		}
	}
	return d.verdict(*total)
}

// verdict returns what is wrong with the results; total is their sum.
func (d *driver) verdict(total row) error {
	errs := slices.Clone(d.errs)
	done := map[string]bool{}
	for _, res := range d.results {
		done[res.Plan.Name] = true
	}
	left := slices.DeleteFunc(slices.Clone(d.kept.plans), func(p plan.Plan) bool { return done[p.Name] })
	if left := len(left); left > 0 {
		errs = append(errs, fmt.Errorf("%d plans are left: call it again with -out %s", left, d.o.Dir))
	} else if points := unreachedPoints(d.results); d.o.matrix && len(points) > 0 {
		errs = append(errs, fmt.Errorf("no plan reached the failpoint %s", strings.Join(points, ", ")))
	}
	if total.violations > 0 {
		errs = append(errs, fmt.Errorf("%d plans violate an invariant", total.violations))
	}
	if d.o.Forked && total.plain > total.forked/5 {
		errs = append(errs, fmt.Errorf("%d runs were forked and %d were not: four of five are to be", total.forked, total.plain))
	}
	if missed := total.plans - total.reached; float64(missed) > max(1, d.o.unreached*float64(total.plans)) {
		errs = append(errs, fmt.Errorf("%d of %d plans found no chance to do what they are for", missed, total.plans))
	}
	return errors.Join(errs...)
}

// unreachedPoints returns the failpoints that plans are for, but that none of them
// reached: the share of plans that may miss theirs would hide a single failpoint.
func unreachedPoints(results []campaign.Result) []string {
	reached := map[string]bool{}
	for _, res := range results {
		if f := res.Plan.Failpoints; len(f) > 0 {
			point := f[len(f)-1].Name
			reached[point] = reached[point] || res.Reached
		}
	}
	return slices.DeleteFunc(sorted(reached), func(point string) bool { return reached[point] })
}

func at[T any](m map[string]*T, key string) *T {
	if m[key] == nil {
		m[key] = new(T)
	}
	return m[key]
}

func sorted[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// classOf returns the class of a plan, which is the name of its row.
func classOf(p plan.Plan) string {
	switch {
	case len(p.Failpoints) > 0:
		f := p.Failpoints[len(p.Failpoints)-1]
		return fmt.Sprintf("failpoint, %s, %d replicas", f.Do, max(1, p.Replicas))
	case len(p.Rules) == 0:
		return "none"
	}
	return string(p.Rules[0].Action.Do)
}
