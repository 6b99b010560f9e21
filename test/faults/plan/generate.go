package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options of [Generate].
type Options struct {
	// Workload and Replicas are the same for the reference run and for the plans.
	Workload string
	Replicas int
	// Want is the maximum number of plans, if the trace has enough for them. 0 asks for one plan for each class of
	// equivalent requests and each action.
	Want int
}

const (
	// leaseLost is longer than a leader may go without a renewal (15 s unless the flags say otherwise).
	leaseLost = 20 * time.Second
	// late is longer than anything that the operator does except a run.
	late = 3 * time.Second
	// readTries is how often Go's HTTP client sends a read whose connection is reset.
	readTries = 2
)

// Generate makes plans with one fault each from the trace of a reference run: for each request and each event of a watch,
// every action that can happen to it.
//
// Requests are equivalent if they have the same verb, resource (or event) and phase. The phase consists of the operator's
// last write to the object, how often that was repeated, the object's generation, and whether it was being deleted. The
// first request of each class comes first, in the order of the trace; then the second ones follow, and so on, until there
// are Want plans. The same trace gives the same plans.
func Generate(trace []Request, o Options) []Plan {
	var plans []Plan
	names := map[string]bool{}
	for round, steps := range rounds(trace) {
		if round > 0 && len(plans) >= o.Want {
			break
		}
		for _, s := range steps {
			for _, f := range faultsOf(s, trace, o) {
				p := Plan{Workload: o.Workload, Replicas: o.Replicas, Rules: f.rules}
				p.Name = nameOf(o.Workload, s, f.label)
				for n := 2; names[p.Name]; n++ {
					p.Name = nameOf(o.Workload, s, f.label) + "-" + strconv.Itoa(n)
				}
				names[p.Name] = true
				plans = append(plans, p)
			}
		}
	}
	if o.Want > 0 && len(plans) > o.Want {
		plans = plans[:o.Want]
	}
	return plans
}

// step is a request or an event, with the match that finds it again.
type step struct {
	Request
	at    int // in the trace
	match Match
}

// rounds sorts the trace into rounds: the first step of each class, then the second one, and so on.
func rounds(trace []Request) [][]step {
	var all [][]step
	counts, classes, phases := map[Match]int{}, map[string]int{}, map[string]phase{}
	for i, r := range trace {
		base, _, _ := strings.Cut(r.Resource, "/")
		object := base + " " + r.Namespace + " " + r.Name
		m := Match{Verb: r.Verb, Resource: r.Resource, Event: r.Event, Name: r.Name}
		if r.Verb == "create" || base == "events" {
			m.Name = "" // not always known in advance, or never the same
		}
		counts[m]++
		at := phases[object].seen(r)
		class := fmt.Sprint(r.Verb, " ", r.Resource, " ", r.Event, " ", at)
		if base == "leases" || m.Name == "" {
			class = fmt.Sprint(r.Verb, " ", r.Resource, " ", r.Event)
		}
		phases[object] = at.moved(r)
		m.Occurrence = counts[m]
		round := classes[class]
		classes[class]++
		if round == len(all) {
			all = append(all, nil)
		}
		all[round] = append(all[round], step{Request: r, at: i, match: m})
	}
	return all
}

// phase says how far the operator has got with an object.
type phase struct {
	after      string // the last write
	often      int    // how often in a row
	generation int64
	deleted    bool
}

// enough is how many writes of one kind in a row are distinguished: a run that begins, one that makes progress, one that
// ends.
const enough = 3

func (p phase) seen(r Request) phase {
	if generation := max(p.generation, r.Generation); generation != p.generation || r.Deleted && !p.deleted {
		p = phase{generation: generation, deleted: p.deleted || r.Deleted}
	}
	return p
}

func (p phase) moved(r Request) phase {
	switch is := r.Verb + " " + r.Resource; {
	case !r.Writes():
	case is == p.after:
		p.often = min(p.often+1, enough)
	default:
		p.after, p.often = is, 1
	}
	return p
}

// fault is what a plan does. The label is the same wherever the fault is the same.
type fault struct {
	label string
	rules []Rule
}

func faultsOf(s step, trace []Request, o Options) []fault {
	one := func(do Do, change ...func(*Rule)) fault {
		r := Rule{Match: s.match, Action: Action{Do: do}}
		if r.Match.Occurrence == 1 {
			r.Match.Occurrence = 0
		}
		for _, c := range change {
			c(&r)
		}
		return fault{label: string(do), rules: []Rule{r}}
	}
	lasting := func(d time.Duration) func(*Rule) {
		return func(r *Rule) { r.Action.For = metav1.Duration{Duration: d} }
	}
	read := func(r *Rule) { r.Match.Times = readTries }
	base, _, _ := strings.Cut(s.Resource, "/")
	question := strings.HasSuffix(base, "reviews") // it is created, but not stored
	switch {
	case s.Event == "BOOKMARK":
		return []fault{one(HoldWatch, lasting(late)), one(CutWatch), one(Gone)}
	case s.Event != "":
		return []fault{
			one(DropEvent, lasting(late)), one(HoldWatch, lasting(late)), one(DuplicateEvent), one(CutWatch), one(Gone),
			one(CrashBefore), one(CrashAfter),
		}
	case base == "leases" && s.Writes():
		return []fault{
			one(Block, lasting(leaseLost)), one(Error), one(Conflict), one(TimeoutAfterCommit), one(CrashAfter),
		}
	case s.Writes() && !question:
		faults := []fault{
			one(CrashBefore), one(CrashAfter), one(Conflict), one(Throttle), one(Error), one(TimeoutAfterCommit), one(ResetAfter),
			one(ResetBefore), one(Unavailable, lasting(late)), one(Forbid), one(Invalid),
		}
		if rule, found := staleView(base, trace[:s.at]); found {
			restart := one(CrashAfter)
			faults = append(faults, fault{label: "restart-stale", rules: append(restart.rules, rule)})
		}
		if o.Replicas > 1 || hasRivals(trace) {
			pause := one(CrashBefore, lasting(leaseLost), func(r *Rule) { r.Action.Signal = "STOP" })
			faults = append(faults, fault{label: "pause-before", rules: pause.rules})
		}
		return faults
	case s.Verb == "watch":
		return []fault{one(CutWatch), one(Gone), one(Error, read), one(HoldWatch, lasting(late))}
	case strings.HasPrefix(s.Resource, "/"), base == "leases", question:
		return []fault{one(Error, read), one(ResetBefore, read), one(Slow, lasting(late))}
	case s.Verb == "list":
		return []fault{one(Error, read), one(Gone), one(ResetBefore, read), one(Slow, lasting(late))}
	default:
		// No API server gives a stale answer here: a read of one object returns what etcd has.
		return []fault{one(Error, read), one(ResetBefore, read), one(Slow, lasting(late))}
	}
}

// hasRivals reports whether several replicas took part.
func hasRivals(trace []Request) bool {
	return slices.ContainsFunc(trace, func(r Request) bool { return r.Replica != trace[0].Replica })
}

// staleView returns the rule that makes a restarted operator list objects in an earlier state, for a while: from before the
// step. It returns false if the operator had not listed them by then.
func staleView(resource string, before []Request) (Rule, bool) {
	rule := Rule{Action: Action{Do: Stale, For: metav1.Duration{Duration: late}}}
	for _, r := range before {
		if r.Resource != resource || r.Event != "" || r.Verb != "list" && r.Verb != "watch" {
			continue
		}
		rule.Match = Match{Verb: r.Verb, Resource: resource}
		return rule, true
	}
	return rule, false
}

// nameOf combines workload, request, its number, and fault into a name.
func nameOf(workload string, s step, label string) string {
	verb := s.Verb
	if s.Event != "" {
		verb = s.Event
	}
	parts := []string{workload, verb, s.Resource, s.match.Name, strconv.Itoa(s.match.Occurrence), label}
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	for i, p := range parts {
		p = strings.ReplaceAll(strings.Trim(strings.ToLower(p), "/"), "/", ".")
		p = regexp.MustCompile(`[^a-z0-9.-]+`).ReplaceAllString(p, "-")
		if len(p) > longest {
			p = p[:longest]
		}
		parts[i] = p
	}
	return strings.Join(parts, "-")
}

// longest limits the length of each part of a name, which becomes the name of a file.
const longest = 60
