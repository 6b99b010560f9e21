package main

import (
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/faults/campaign"
)

// The results of a kill matrix come from an earlier call. Few plans were not reached, but these are all plans of one
// failpoint.
func TestVerdict_NamesAFailpointThatNoPlanReached(t *testing.T) {
	const point = "sweep.before-remove"
	k := &kept{plans: campaign.KillMatrix(false), results: map[string]campaign.Result{}}
	for _, p := range k.plans {
		k.results[p.Name] = campaign.Result{Plan: p, Reached: !strings.HasPrefix(p.Name, point)}
	}
	verdict := func() error {
		total := row{}
		for _, res := range k.results {
			total.plans++
			if res.Reached {
				total.reached++
			}
		}
		return newDriver(options{matrix: true, unreached: 0.05}, nil, k).verdict(total)
	}
	if err := verdict(); err == nil || !strings.HasSuffix(err.Error(), "failpoint "+point) {
		t.Errorf("no plan reached %s, and the verdict is %v", point, err)
	}
	last := k.results[point+"-kill-2"]
	delete(k.results, last.Plan.Name)
	if err := verdict(); err == nil || strings.Contains(err.Error(), point) {
		t.Errorf("a plan of %s is left, and the verdict is %v", point, err)
	}
	last.Reached = true
	k.results[last.Plan.Name] = last
	if err := verdict(); err != nil {
		t.Errorf("a plan reached %s, and the verdict is %v", point, err)
	}
}
