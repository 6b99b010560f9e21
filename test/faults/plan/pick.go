package plan

import (
	"slices"
	"strings"
)

// Classes returns what p covers: for each rule the action with the verb (or event) and the resource, for each failpoint its
// name and what it does.
func (p Plan) Classes() []string {
	var classes []string
	for _, r := range p.Rules {
		classes = append(classes, strings.Join([]string{string(r.Action.Do) + r.Action.Signal, r.Match.Verb + r.Match.Event, r.Match.Resource}, " "))
	}
	for _, f := range p.Failpoints {
		classes = append(classes, f.Name+" "+f.Do)
	}
	return classes
}

// Pick chooses n plans, or all if there are fewer, in their order; the choice is deterministic. The plans cover as
// many classes as a greedy choice can: every class, if n is large enough. More important than classes are actions,
// verbs with their resources, and workloads. The rest of n is distributed evenly over all of these.
func Pick(plans []Plan, n int) []Plan {
	all := make([][]feature, len(plans))
	for i, p := range plans {
		all[i] = features(p)
	}
	covered := map[string]int{}
	chosen := make([]bool, len(plans))
	for range min(n, len(plans)) {
		best, value := -1, -1.0
		for i := range plans {
			if v := worth(all[i], covered); !chosen[i] && v > value {
				best, value = i, v
			}
		}
		chosen[best] = true
		for _, f := range all[best] {
			covered[f.name]++
		}
	}
	var picked []Plan
	for i, p := range plans {
		if chosen[i] {
			picked = append(picked, p)
		}
	}
	return picked
}

// Share gives every third plan two replicas, to test what leaders do to each other.
func Share(plans []Plan) {
	for i := 0; i < len(plans); i += 3 {
		plans[i].Replicas, plans[i].Name = 2, plans[i].Name+"-of-2"
	}
}

// Uncovered returns the classes of plans that picked does not cover, sorted.
func Uncovered(plans, picked []Plan) []string {
	missing := map[string]bool{}
	for _, p := range plans {
		for _, c := range p.Classes() {
			missing[c] = true
		}
	}
	for _, p := range picked {
		for _, c := range p.Classes() {
			delete(missing, c)
		}
	}
	var list []string
	for c := range missing {
		list = append(list, c)
	}
	slices.Sort(list)
	return list
}

// feature is a feature of a plan, with the value of the first plan that has it. One feature of a higher value outweighs all
// features of lower values.
type feature struct {
	name  string
	value float64
}

func features(p Plan) []feature {
	is := []feature{{"workload " + p.Workload, 100}}
	for _, r := range p.Rules {
		do, at := "do "+string(r.Action.Do)+r.Action.Signal, "at "+r.Match.Verb+r.Match.Event+" "+r.Match.Resource
		is = append(is, feature{do, 10000}, feature{at, 10000})
		is = append(is, feature{p.Workload + " " + do, 0}, feature{p.Workload + " " + at, 0})
	}
	for _, c := range p.Classes() {
		is = append(is, feature{"class " + c, 1000})
	}
	return is
}

// worth is the value that a plan adds to what is covered: something new, or else something rare.
func worth(features []feature, covered map[string]int) float64 {
	sum, rare := 0.0, 0.0
	for _, f := range features {
		n := covered[f.name]
		if n == 0 {
			sum += f.value
		}
		rare += 1 / float64(1+n)
	}
	return sum + rare/float64(len(features))
}
