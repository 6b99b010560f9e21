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
// verb with its resource, and each workload.
func Pick(plans []Plan, n int) []Plan {
	covered := map[string]int{}
	var chosen []int
	for len(chosen) < min(n, len(plans)) {
		best, value := -1, -1.0
		for i, p := range plans {
			if v := worth(p, covered); !slices.Contains(chosen, i) && v > value {
				best, value = i, v
			}
		}
		chosen = append(chosen, best)
		for feature := range features(plans[best]) {
			covered[feature]++
		}
	}
	slices.Sort(chosen)
	picked := make([]Plan, 0, len(chosen))
	for _, i := range chosen {
		picked = append(picked, plans[i])
	}
	return picked
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

// features of a plan with what the first plan that has one is worth. What is worth more weighs heavier than all that is
// worth less.
func features(p Plan) map[string]float64 {
	is := map[string]float64{"workload " + p.Workload: 10}
	for _, r := range p.Rules {
		is["do "+string(r.Action.Do)+r.Action.Signal] = 1000
		is["at "+r.Match.Verb+r.Match.Event+" "+r.Match.Resource] = 1000
	}
	for _, c := range p.Classes() {
		is["class "+c] = 100
	}
	return is
}

// worth is what p adds to what is covered. Of two plans that add the same, the one of the rarer workload is worth more.
func worth(p Plan, covered map[string]int) float64 {
	sum := 0.0
	for feature, value := range features(p) {
		if covered[feature] == 0 {
			sum += value
		}
	}
	return sum + 1/float64(1+covered["workload "+p.Workload])
}
