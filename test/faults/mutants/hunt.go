package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/rolewright/rolewright/test/faults/campaign"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// hunt looks for plans that catch mutants.
type hunt struct {
	o options
	// sound carries plans out with the operator that has no seeded bug.
	sound *campaign.Campaign
	// references are its runs of the workloads without faults, confirmed its verdicts on other plans.
	references map[string]*outcome
	confirmed  map[string]bool
	results    []result
}

// outcome is a reference, and what plans are made of it.
type outcome struct {
	campaign.Result

	generated []plan.Plan
	err       error
}

// result is what became of a mutant.
type result struct {
	mutant
	// by is the plan that caught it, empty if none did, and what the invariant; missed says more then.
	by, what, missed string
	plans            int
	took             time.Duration
}

// try looks for a plan that the mutant fails and the sound operator passes.
func (h *hunt) try(ctx context.Context, m mutant) {
	began := time.Now()
	r := result{mutant: m}
	dir := filepath.Join(h.o.Dir, "mutants", m.Name)
	binary, err := m.build(ctx, h.o.root, dir)
	if err != nil {
		r.missed = err.Error()
	} else {
		h.catch(ctx, &r, h.sound.With(binary, dir))
	}
	_ = os.RemoveAll(dir) // the whole directory goes in the end
	r.took = time.Since(began)
	h.results = append(h.results, r)
	fmt.Println(r)
}

// String is the line of a mutant.
func (r result) String() string {
	if r.by == "" {
		return fmt.Sprintf("MISSED %-50s %4.0fs %2d plans  %s", r.Name, r.took.Seconds(), r.plans, r.missed)
	}
	return fmt.Sprintf("caught %-50s %4.0fs %2d plans  %s by %s", r.Name, r.took.Seconds(), r.plans, r.what, r.by)
}

// catch carries out the mutant's plans, some at a time, until one is violated.
func (h *hunt) catch(ctx context.Context, r *result, c *campaign.Campaign) {
	candidates := h.candidates(ctx, r.mutant)
	if len(candidates) == 0 {
		r.missed = "there is no such plan"
	}
	for batch := range slices.Chunk(candidates, max(1, h.o.parallel)) {
		found := make([]campaign.Result, len(batch))
		errs := make([]error, len(batch))
		var wg sync.WaitGroup
		for i, p := range batch {
			wg.Go(func() { found[i], errs[i] = c.Run(ctx, p, h.references[p.Workload].Dir) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			r.missed = err.Error()
		}
		r.plans += len(batch)
		for i, p := range batch {
			if len(found[i].Violations) == 0 {
				continue
			}
			if !h.passes(ctx, p) {
				r.missed = "the operator without the bug fails " + p.Name + " too"
				continue
			}
			r.by, r.what = p.Name, invariants(found[i])
			return
		}
	}
}

// invariants are those that a plan has seen violated.
func invariants(r campaign.Result) string {
	var names []string
	for _, v := range r.Violations {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// reference carries a workload out without faults and without a seeded bug.
func (h *hunt) reference(ctx context.Context, workload string) *outcome {
	if r := h.references[workload]; r != nil {
		return r
	}
	r := &outcome{}
	h.references[workload] = r
	if !slices.Contains(campaign.Workloads(), workload) {
		r.err = fmt.Errorf("there is no workload %q", workload)
		return r
	}
	p := plan.Plan{Name: "reference-" + workload, Workload: workload, Replicas: 1}
	if r.Result, r.err = h.sound.Run(ctx, p, ""); r.err == nil {
		h.confirmed[p.Name] = len(r.Violations) == 0
		r.generated = plan.Generate(r.Trace, plan.Options{Workload: workload, Replicas: 1})
	}
	return r
}

// candidates are the plans of a mutant, in the order in which they are tried.
func (h *hunt) candidates(ctx context.Context, m mutant) []plan.Plan {
	const perPattern = 5
	var found []plan.Plan
	add := func(p plan.Plan) bool {
		if r := h.reference(ctx, p.Workload); r.err != nil {
			fmt.Printf("       %s: %v\n", m.Name, r.err)
			return false
		}
		if !slices.ContainsFunc(found, func(q plan.Plan) bool { return q.Name == p.Name }) {
			found = append(found, p)
			return true
		}
		return false
	}
	for _, pattern := range m.Plans {
		workload, part, faulty := strings.Cut(pattern, "/")
		var from []plan.Plan
		switch {
		case !faulty:
			from = []plan.Plan{{Name: "reference-" + workload, Workload: workload, Replicas: 1}}
		case workload == "matrix":
			from = campaign.KillMatrix()
		default:
			from = h.reference(ctx, workload).generated
		}
		n := 0
		for _, p := range from {
			if strings.Contains(p.Name, part) && n < perPattern && add(p) {
				n++
			}
		}
	}
	return found[:min(len(found), h.o.most)]
}

// passes tells whether the operator without a seeded bug survives a plan.
func (h *hunt) passes(ctx context.Context, p plan.Plan) bool {
	if ok, known := h.confirmed[p.Name]; known {
		return ok
	}
	r, err := h.sound.Run(ctx, p, h.references[p.Workload].Dir)
	h.confirmed[p.Name] = err == nil && len(r.Violations) == 0
	return h.confirmed[p.Name]
}

// report prints the table; the error says that too few were caught.
func (h *hunt) report() error {
	caught := 0
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nseeded bug\torigin\tcaught by\tinvariant\n")
	for _, r := range h.results {
		by := r.by
		switch {
		case by != "":
			caught++
		case r.Elsewhere != "":
			by = "- (" + r.Elsewhere + ")"
		default:
			by = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Origin, by, r.what)
	}
	_ = w.Flush()
	fmt.Printf("%d of %d seeded bugs caught\n", caught, len(h.results))
	if float64(caught) < h.o.least*float64(len(h.results)) {
		return fmt.Errorf("%d of %d seeded bugs were not caught; at least %.0f %% have to be", len(h.results)-caught, len(h.results), 100*h.o.least)
	}
	return nil
}
