package plan

import (
	"slices"
	"strings"
)

// Classes are what p covers: of each rule the action with the verb (or event) and the resource, of each failpoint its name
// and what it does.
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

// Pick chooses n plans, or all if there are fewer: always the same ones of the same plans, in their order. They cover as
// many classes as n plans can, seen greedily; every class, if n is large enough for it. Before that come each action, each
// verb with its resource, and each workload. What is left of n is spread over all of these evenly.
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

// Share gives every third plan two replicas: what leaders do to each other.
func Share(plans []Plan) {
	for i := 0; i < len(plans); i += 3 {
		plans[i].Replicas, plans[i].Name = 2, plans[i].Name+"-of-2"
	}
}

// Uncovered are the classes of plans that picked has not, sorted.
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

// feature of a plan, with what the first plan that has it is worth. What is worth more weighs heavier than all that is
// worth less.
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

// worth is what a plan adds to what is covered: something new, or else something rare.
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
