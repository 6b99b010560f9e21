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

// hunt looks for plans that catch mutants. It is safe for concurrent use.
type hunt struct {
	o options
	// sound carries plans out with the operator that has no seeded bug.
	sound *campaign.Campaign

	mu sync.Mutex
	// sounds are its runs, by plan.
	sounds  map[string]*outcome
	results []result
}

// outcome is a plan that was carried out without a seeded bug.
type outcome struct {
	once sync.Once
	campaign.Result

	// generated are the plans that are made of it, if it is a workload without faults.
	generated []plan.Plan
	err       error
}

// result is what became of a mutant.
type result struct {
	mutant
	// by is the plan that caught it, empty if none did, and what the invariant; missed says more then.
	by, what, missed string
	// outdated: the patch does not apply.
	outdated bool
	plans    int
	took     time.Duration
}

// try looks for a plan that the mutant fails and the sound operator passes.
func (h *hunt) try(ctx context.Context, m mutant) {
	began := time.Now()
	r := result{mutant: m}
	dir := filepath.Join(h.o.Dir, "mutants", m.Name)
	binary, err := m.build(ctx, h.o.root, dir)
	if err != nil {
		r.missed, r.outdated = err.Error(), errors.Is(err, errOutdated)
	} else {
		h.catch(ctx, &r, h.sound.With(binary, dir))
	}
	if !h.o.keep {
		_ = os.RemoveAll(dir) // the whole directory goes in the end
	}
	r.took = time.Since(began)
	h.mu.Lock()
	defer h.mu.Unlock()
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

// catch carries out the mutant's plans until one is violated.
func (h *hunt) catch(ctx context.Context, r *result, c *campaign.Campaign) {
	candidates, err := h.candidates(ctx, r.mutant)
	if err != nil {
		r.missed = err.Error()
	} else if len(candidates) == 0 {
		r.missed = "there is no such plan"
	}
	for _, p := range candidates {
		found, err := c.Run(ctx, p, h.reference(ctx, p.Workload).Dir)
		r.plans++
		switch {
		case err != nil:
			r.missed = err.Error()
		case len(found.Violations) == 0:
		case !h.passes(ctx, p):
			r.missed = "the operator without the bug fails " + p.Name + " too"
		default:
			r.by, r.what = p.Name, invariants(found)
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

// soundly carries a plan out without a seeded bug, once.
func (h *hunt) soundly(ctx context.Context, p plan.Plan, reference string) *outcome {
	h.mu.Lock()
	r := h.sounds[p.Name]
	if r == nil {
		r = &outcome{}
		h.sounds[p.Name] = r
	}
	h.mu.Unlock()
	r.once.Do(func() {
		r.Result, r.err = h.sound.Run(ctx, p, reference)
		for _, v := range r.Violations {
			fmt.Printf("       %s is violated without a bug: %s\n", p.Name, v)
		}
		if r.err == nil && len(p.Rules)+len(p.Failpoints) == 0 {
			r.generated = plan.Generate(r.Trace, plan.Options{Workload: p.Workload, Replicas: 1})
		}
	})
	return r
}

// faultless is a workload without faults.
func faultless(workload string) plan.Plan {
	return plan.Plan{Name: "reference-" + workload, Workload: workload, Replicas: 1}
}

// reference carries a workload out without faults and without a seeded bug.
func (h *hunt) reference(ctx context.Context, workload string) *outcome {
	return h.soundly(ctx, faultless(workload), "")
}

// passes tells whether the operator without a seeded bug survives a plan.
func (h *hunt) passes(ctx context.Context, p plan.Plan) bool {
	r := h.soundly(ctx, p, h.reference(ctx, p.Workload).Dir)
	return r.err == nil && len(r.Violations) == 0
}

// candidates are the plans of a mutant, in the order in which they are tried.
func (h *hunt) candidates(ctx context.Context, m mutant) ([]plan.Plan, error) {
	const perPattern = 5
	var found []plan.Plan
	for _, pattern := range m.Plans {
		workload, part, faulty := strings.Cut(pattern, "/")
		var from []plan.Plan
		switch {
		case faulty && workload == "matrix":
			from = campaign.KillMatrix(false)
		case faulty && workload == "fixed":
			p, err := plan.Load(filepath.Join(h.o.root, "test/faults/testdata/plans", part+".json"))
			if err != nil {
				return nil, err
			}
			from = []plan.Plan{p}
		case !slices.Contains(campaign.Workloads(), workload):
			return nil, fmt.Errorf("there is no workload %q", workload)
		case faulty:
			r := h.reference(ctx, workload)
			if r.err != nil {
				return nil, r.err
			}
			from = r.generated
		default:
			from = []plan.Plan{faultless(workload)}
		}
		n := 0
		for _, p := range from {
			if n < perPattern && strings.Contains(p.Name, part) && !slices.ContainsFunc(found, func(q plan.Plan) bool { return q.Name == p.Name }) {
				found = append(found, p)
				n++
			}
		}
	}
	return found[:min(len(found), h.o.most)], nil
}

// report prints the table; the error says that too few were caught.
func (h *hunt) report() error {
	caught := 0
	var outdated []string
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nseeded bug\tseen\tcaught by\tinvariant\n")
	for _, r := range h.results {
		if r.outdated {
			outdated = append(outdated, r.Name)
			continue
		}
		by := r.by
		switch {
		case by != "":
			caught++
		case r.Elsewhere != "":
			by = "- (" + r.Elsewhere + ")"
		default:
			by = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Seen, by, r.what)
	}
	_ = w.Flush()
	tried := len(h.results) - len(outdated)
	fmt.Printf("%d of %d seeded bugs caught\n", caught, tried)
	var problems []error
	if float64(caught) < h.o.least*float64(tried) {
		problems = append(problems, fmt.Errorf("%d of %d seeded bugs were not caught; at least %.0f %% must be", tried-caught, tried, 100*h.o.least))
	}
	if len(outdated) > 0 {
		problems = append(problems, fmt.Errorf("%w, make them again: %s", errOutdated, strings.Join(outdated, ", ")))
	}
	return errors.Join(problems...)
}
