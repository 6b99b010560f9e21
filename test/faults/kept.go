package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/test/faults/campaign"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// kept is what a campaign keeps in its directory, so that it can be stopped and
// resumed: the operator under test, its plans, and the result of each plan that
// was carried out. No plan has two results.
type kept struct {
	dir     string
	plans   []plan.Plan
	results map[string]campaign.Result
}

// keptPlans is the content of plans.json.
type keptPlans struct {
	// What has the options that chose the plans, and Commit the commit that the operator and the checks
	// were built from.
	What   string      `json:"what"`
	Commit string      `json:"commit"`
	Plans  []plan.Plan `json:"plans"`
}

// keep opens the directory of a campaign, and replaces the operator and the
// scripted ansible-runner in the options by the copies that the directory has, or gets now.
func keep(o *options) (*kept, error) {
	for _, binary := range []*string{&o.Rolewright, &o.Options.Runner} {
		if *binary == "" {
			continue
		}
		own := filepath.Join(o.Dir, filepath.Base(*binary))
		if _, err := os.Stat(own); errors.Is(err, fs.ErrNotExist) {
			if err := copyProgram(*binary, own); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		*binary = own
	}
	k := &kept{dir: o.Dir, results: map[string]campaign.Result{}}
	data, err := os.ReadFile(k.path("plans.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		var before keptPlans
		if err := json.Unmarshal(data, &before); err != nil {
			return nil, fmt.Errorf("%s: %w", k.path("plans.json"), err)
		}
		if before.What != o.what() {
			return nil, fmt.Errorf("%s has a campaign of %q, this one is of %q: give another directory by -out", o.Dir, before.What, o.what())
		}
		if before.Commit != version.GitVersion {
			return nil, fmt.Errorf("%s has a campaign of commit %s, this one is of %s: give another directory by -out, or check that commit out to go on",
				o.Dir, before.Commit, version.GitVersion)
		}
		k.plans = before.Plans
	}
	results, err := campaign.ReadResults[campaign.Result](k.path("results.jsonl"))
	for _, res := range results {
		k.results[res.Plan.Name] = res
	}
	return k, err
}

func (k *kept) path(name string) string { return filepath.Join(k.dir, name) }

// choose saves the plans of a new campaign.
func (k *kept) choose(o options, plans []plan.Plan) error {
	k.plans = plans
	data, err := json.Marshal(keptPlans{What: o.what(), Commit: version.GitVersion, Plans: plans})
	if err != nil {
		return err
	}
	temporary := k.path("plans.json.new")
	return errors.Join(os.WriteFile(temporary, data, 0o600), os.Rename(temporary, k.path("plans.json")))
}

// add saves a result.
func (k *kept) add(res campaign.Result) error {
	return campaign.AddResult(k.path("results.jsonl"), res)
}

// left returns how many plans have no result.
func (k *kept) left() int {
	n := 0
	for _, p := range k.plans {
		if _, done := k.results[p.Name]; !done {
			n++
		}
	}
	return n
}

// what describes the options that choose plans.
func (o options) what() string {
	return fmt.Sprintf("%s runner, plans %q, %d generated, matrix %t, soak %d, fail-overs %d, workloads %q, %d times",
		o.runner, o.plans, o.generate, o.matrix, o.soak, o.failovers, o.workloads, o.repeat)
}

func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o700)
	}
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	return nil
}
