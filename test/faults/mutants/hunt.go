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
	"time"

	"github.com/rolewright/rolewright/test/faults/campaign"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// suite is what each mutant has to pass: the workloads without faults, the fixed
// plans, and plans that are generated like those of `make faults`. It is safe for
// concurrent use.
type suite struct {
	// sound carries plans out with the operator that has no seeded bug.
	sound *campaign.Campaign
	plans []plan.Plan

	mu   sync.Mutex
	runs map[string]*outcome
}

// outcome is the result of a plan that was carried out without a seeded bug.
type outcome struct {
	once sync.Once
	campaign.Result

	err error
}

// result is the result of a mutant, a line in results.jsonl.
type result struct {
	Name string `json:"name"`
	Seen string `json:"seen"`
	// By is the plan that caught it, empty if none did; What lists the violated invariants.
	By   string `json:"by,omitempty"`
	What string `json:"what,omitempty"`
	// Elsewhere is the test that catches it if no plan does.
	Elsewhere string `json:"elsewhere,omitempty"`
	// Error says why it was not tried: the patch does not apply, or does not compile.
	Error string `json:"error,omitempty"`
	// Dismissed is how many of the Plans found a violation that they did not find again.
	Plans     int           `json:"plans"`
	Dismissed int           `json:"dismissed,omitempty"`
	Took      time.Duration `json:"took"`
}

// String formats the result as a line.
func (r result) String() string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("NOT TRIED %s: %s", r.Name, r.Error)
	case r.By == "":
		return fmt.Sprintf("MISSED %-50s %4.0fs %3d plans, %d dismissed", r.Name, r.Took.Seconds(), r.Plans, r.Dismissed)
	}
	return fmt.Sprintf("caught %-50s %4.0fs %3d plans, %d dismissed  %s by %s", r.Name, r.Took.Seconds(), r.Plans, r.Dismissed, r.What, r.By)
}

// newSuite carries out the workloads without faults, and generates plans from them.
func newSuite(ctx context.Context, c *campaign.Campaign, o options, forked bool) (*suite, error) {
	s := &suite{sound: c, runs: map[string]*outcome{}}
	workloads := campaign.Workloads()
	errs := make([]error, len(workloads))
	campaign.Each(o.parallel, len(workloads), func(i int) { errs[i] = s.reference(ctx, workloads[i], 1).err })
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var generated []plan.Plan
	for _, workload := range workloads {
		s.plans = append(s.plans, campaign.Reference(workload, 1))
		generated = append(generated, plan.Generate(s.reference(ctx, workload, 1).Trace, plan.Options{Workload: workload, Replicas: 1})...)
	}
	dirs := []string{"plans"}
	if forked {
		dirs = append(dirs, "plans-forked")
	}
	for _, dir := range dirs {
		fixed, err := plan.LoadDir(filepath.Join(o.root, "test/faults/testdata", dir))
		if err != nil {
			return nil, err
		}
		s.plans = append(s.plans, fixed...)
	}
	picked := plan.Pick(generated, o.generate)
	plan.Share(picked)
	s.plans = append(s.plans, picked...)
	return s, nil
}

// try looks for a plan that the mutant fails and the sound operator passes.
func (s *suite) try(ctx context.Context, o options, m mutant) result {
	began := time.Now()
	r := result{Name: m.Name, Seen: m.Seen, Elsewhere: m.Elsewhere}
	dir := filepath.Join(o.Dir, "mutants", m.Name)
	binary, err := m.build(ctx, o.root, dir)
	if err != nil {
		r.Error = err.Error()
	} else {
		s.catch(ctx, o.parallel, &r, s.sound.With(binary, dir))
	}
	if !o.keep {
		_ = os.RemoveAll(dir) // the whole directory is removed at the end
	}
	r.Took = time.Since(began)
	return r
}

// catch carries out the plans, once each, until one finds a violation, and finds it again.
func (s *suite) catch(ctx context.Context, parallel int, r *result, c *campaign.Campaign) {
	ctx, caught := context.WithCancel(ctx)
	defer caught()
	var mu sync.Mutex
	campaign.Each(parallel, len(s.plans), func(i int) {
		if ctx.Err() != nil {
			return
		}
		p := s.plans[i]
		reference := s.reference(ctx, p.Workload, p.Replicas).Dir
		found, err := c.Run(ctx, p, reference)
		if err != nil || len(found.Violations) > 0 && !s.passes(ctx, p) {
			return
		}
		violated, err := confirm(invariants(found), func(n int) ([]string, error) {
			again := p
			again.Name += fmt.Sprintf("-again-%d", n)
			found, err := c.Run(ctx, again, reference)
			return invariants(found), err
		})
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		r.Plans++
		switch {
		case len(found.Violations) == 0:
		case len(violated) == 0:
			r.Dismissed++
		case r.By == "":
			r.By, r.What = p.Name, strings.Join(violated, " ")
			caught()
		}
	})
}

// confirm returns those of the violated invariants that one of up to two further passes
// of the plan violates too. A single violation may come from a busy machine, even if the
// plan passes once without the seeded bug.
func confirm(violated []string, pass func(n int) ([]string, error)) ([]string, error) {
	for n := 1; n <= 2 && len(violated) > 0; n++ {
		again, err := pass(n)
		if err != nil {
			return nil, err
		}
		both := slices.DeleteFunc(slices.Clone(violated), func(name string) bool { return !slices.Contains(again, name) })
		if len(both) > 0 {
			return both, nil
		}
	}
	return nil, nil
}

// invariants returns the invariants that a plan has found violated.
func invariants(r campaign.Result) []string {
	var names []string
	for _, v := range r.Violations {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	slices.Sort(names)
	return names
}

// soundly carries a plan out without a seeded bug, once.
func (s *suite) soundly(ctx context.Context, p plan.Plan, reference string) *outcome {
	s.mu.Lock()
	r := s.runs[p.Name]
	if r == nil {
		r = &outcome{}
		s.runs[p.Name] = r
	}
	s.mu.Unlock()
	r.once.Do(func() {
		r.Result, r.err = s.sound.Run(ctx, p, reference)
		for _, v := range r.Violations {
			fmt.Printf("       %s is violated without a bug: %s\n", p.Name, v)
		}
	})
	return r
}

// reference carries a workload out without faults and without a seeded bug.
func (s *suite) reference(ctx context.Context, workload string, replicas int) *outcome {
	return s.soundly(ctx, campaign.Reference(workload, replicas), "")
}

// passes tells whether the operator without a seeded bug survives a plan.
func (s *suite) passes(ctx context.Context, p plan.Plan) bool {
	r := s.soundly(ctx, p, s.reference(ctx, p.Workload, p.Replicas).Dir)
	return r.err == nil && len(r.Violations) == 0
}

// report prints the table of all results. The error says that too few were caught,
// or that some are left.
func report(o options, results []result, left int) error {
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.Name, b.Name) })
	caught, faultlessly, tried, dismissed := 0, 0, 0, 0
	var problems []error
	fmt.Printf("\n| seeded bug | seen | caught by | invariant | dismissed |\n|---|---|---|---|---|\n")
	for _, r := range results {
		if r.Error != "" {
			problems = append(problems, fmt.Errorf("%s: %s", r.Name, r.Error))
			continue
		}
		tried++
		by := r.By
		switch {
		case by != "":
			caught++
			if campaign.IsReference(by) {
				faultlessly++
			}
		case r.Elsewhere != "":
			by = "- (" + r.Elsewhere + ")"
		default:
			by = "-"
		}
		fmt.Printf("| %s | %s | %s | %s | %d |\n", r.Name, r.Seen, by, r.What, r.Dismissed)
		dismissed += r.Dismissed
	}
	fmt.Printf("\n%d of %d seeded bugs caught, %d of them by a workload without faults; %d plans dismissed, because they did not find their violation again; commit %s\n",
		caught, tried, faultlessly, dismissed, o.commit)
	if float64(caught) < o.least*float64(tried) {
		problems = append(problems, fmt.Errorf("%d of %d seeded bugs were not caught; at least %.0f %% must be", tried-caught, tried, 100*o.least))
	}
	if left > 0 {
		problems = append(problems, fmt.Errorf("%d seeded bugs are left: call it again with -out %s", left, o.Dir))
	}
	return errors.Join(problems...)
}
