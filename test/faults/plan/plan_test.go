package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/faults/plan"
)

const whole = `
name: spec-change-2
workload: spec-change
replicas: 2
rules:
- match: {verb: patch, resource: memcacheds/status, name: one, replica: a, occurrence: 2, times: -1}
  action: {do: crash-before, for: 20s, signal: STOP}
- match: {verb: watch, resource: memcacheds, event: DELETED}
  action: {do: drop-event}
failpoints:
- {name: begin.after-write, do: sleep, for: 2s, occurrence: 3, replica: b}
`

func TestPlan_IsTheSameAfterSaveAndLoad(t *testing.T) {
	t.Parallel()
	p, err := plan.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Plan{
		Name: "spec-change-2", Workload: "spec-change", Replicas: 2,
		Rules: []plan.Rule{
			{
				Match:  plan.Match{Verb: "patch", Resource: "memcacheds/status", Name: "one", Replica: "a", Occurrence: 2, Times: -1},
				Action: plan.Action{Do: plan.CrashBefore, Signal: "STOP", For: metav1.Duration{Duration: 20 * time.Second}},
			},
			{Match: plan.Match{Verb: "watch", Resource: "memcacheds", Event: "DELETED"}, Action: plan.Action{Do: plan.DropEvent}},
		},
		Failpoints: []plan.Failpoint{{Name: "begin.after-write", Do: "sleep", For: metav1.Duration{Duration: 2 * time.Second}, Occurrence: 3, Replica: "b"}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	file, err := p.Save(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Load(file); err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("loaded %+v (%v)", again, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || filepath.Base(file) != "spec-change-2.json" {
		t.Errorf("saved as %v (%v)", info, err)
	}
}

func TestPlan_SaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ plan, want string }{
		{`{name: x, workload: w, rulez: []}`, `unknown field "rulez"`},
		{`{name: x, workload: w, rules: [{match: {kind: Pod}, action: {do: error}}]}`, `unknown field "rules[0].match.kind"`},
		{`{name: x, name: y, workload: w}`, `key "name" already set`},
		{`{name: ../x, workload: w}`, `name: "../x" is not a name`},
		{`{name: x}`, `workload: is missing`},
		{`{name: x, workload: w, replicas: -1}`, `replicas: -1`},
		{`{name: x, workload: w, rules: [{action: {do: error}}, {match: {verb: steal}, action: {do: error}}]}`, `rules[1].match.verb: "steal"`},
		{`{name: x, workload: w, rules: [{action: {do: explode}}]}`, `rules[0].action.do: there is no action "explode"`},
		{`{name: x, workload: w, rules: [{match: {verb: get}, action: {do: conflict}}]}`, `rules[0].action.do: conflict needs match.verb`},
		{`{name: x, workload: w, rules: [{match: {verb: watch}, action: {do: drop-event}}]}`, `acts on events; set match.event`},
		{`{name: x, workload: w, rules: [{match: {verb: watch, event: ADDED}, action: {do: conflict}}]}`, `acts on requests`},
		{`{name: x, workload: w, rules: [{match: {verb: list, event: ADDED}, action: {do: gone}}]}`, `rules[0].match.event: only a watch`},
		{`{name: x, workload: w, rules: [{match: {verb: watch, event: added}, action: {do: gone}}]}`, `rules[0].match.event: "added"`},
		{`{name: x, workload: w, rules: [{match: {occurrence: -1, times: -2}, action: {do: error}}]}`, `rules[0].match.times: -2`},
		{`{name: x, workload: w, rules: [{action: {do: slow}}]}`, `rules[0].action.for: is missing`},
		{`{name: x, workload: w, rules: [{action: {do: slow, for: -2s}}]}`, `rules[0].action.for: is less`},
		{`{name: x, workload: w, rules: [{action: {do: slow, for: soon}}]}`, `invalid duration "soon"`},
		{`{name: x, workload: w, rules: [{action: {do: reset-after, for: 1s}}]}`, `rules[0].action.for: reset-after takes no time`},
		{`{name: x, workload: w, rules: [{action: {do: crash-after, signal: STOP}}]}`, `crash-after STOP needs to know how long`},
		{`{name: x, workload: w, rules: [{action: {do: crash-after, signal: HUP}}]}`, `rules[0].action.signal: "HUP"`},
		{`{name: x, workload: w, rules: [{action: {do: error, signal: KILL}}]}`, `rules[0].action.signal: error sends none`},
		{`{name: x, workload: w, failpoints: [{do: kill}]}`, `failpoints[0].name: is missing`},
		{`{name: x, workload: w, failpoints: [{name: f, do: faint}]}`, `failpoints[0].do: "faint"`},
		{`{name: x, workload: w, failpoints: [{name: f, do: stop}]}`, `failpoints[0].for: is missing`},
		{`{name: x, workload: w, failpoints: [{name: f, do: kill, for: 1s, occurrence: -1}]}`, `failpoints[0].for: kill takes no time`},
	} {
		if _, err := plan.Parse([]byte(c.plan)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\nsays %v\nwant %s", c.plan, err, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("name: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error does not name the file: %v", err)
	}
}

// trace is what an operator does for one object: finalizer, run record, result, and the leader's renewals.
func trace(name string) []plan.Request {
	var list []plan.Request
	add := func(verb, resource, event string, generation int64) {
		list = append(list, plan.Request{Verb: verb, Resource: resource, Event: event, Name: name, Generation: generation, ResourceVersion: strconv.Itoa(len(list))})
	}
	add("get", "/version", "", 0)
	list[0].Name = ""
	list = append(list, plan.Request{Verb: "create", Resource: "leases", Name: "lock"}, plan.Request{Verb: "watch", Resource: "memcacheds"})
	add("watch", "memcacheds", "ADDED", 1)
	add("patch", "memcacheds", "", 1)
	for generation := range int64(2) {
		add("get", "memcacheds", "", generation+1)
		add("patch", "memcacheds/status", "", generation+1)
		add("watch", "memcacheds", "MODIFIED", generation+1)
		add("patch", "memcacheds/status", "", generation+1)
		add("watch", "memcacheds", "MODIFIED", generation+1)
		list = append(list, plan.Request{Verb: "update", Resource: "leases", Name: "lock"})
	}
	add("watch", "memcacheds", "DELETED", 2)
	return list
}

func TestGenerate_OnePlanForEachStepAndFault(t *testing.T) {
	t.Parallel()
	plans := plan.Generate(trace("one"), plan.Options{Workload: "w", Replicas: 1})
	var names []string
	for _, p := range plans {
		names = append(names, p.Name)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if p.Workload != "w" || p.Replicas != 1 || len(p.Rules) == 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, unwanted := range []string{"w-get-memcacheds-one-2-stale", "w-get-version-1-stale", "w-watch-memcacheds-1-conflict"} {
		if slices.Contains(names, unwanted) {
			t.Errorf("there is a plan %s, for which there is no chance", unwanted)
		}
	}
	for _, want := range []string{
		"w-get-version-1-error", "w-create-leases-1-block", "w-watch-memcacheds-1-cut-watch", "w-added-memcacheds-one-1-drop-event",
		"w-patch-memcacheds-one-1-crash-before", "w-patch-memcacheds.status-one-2-timeout-after-commit", "w-get-memcacheds-one-2-slow",
		"w-deleted-memcacheds-one-1-duplicate-event", "w-patch-memcacheds.status-one-1-restart-stale",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no plan %s in\n%s", want, strings.Join(names, "\n"))
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
		t.Errorf("%d names of %d plans", len(unique), len(names))
	}
	for _, p := range plans {
		if p.Name != "w-patch-memcacheds.status-one-2-crash-after" {
			continue
		}
		want := []plan.Rule{{Match: plan.Match{Verb: "patch", Resource: "memcacheds/status", Name: "one", Occurrence: 2}, Action: plan.Action{Do: plan.CrashAfter}}}
		if diff := cmp.Diff(want, p.Rules); diff != "" {
			t.Error(diff)
		}
	}
}

// What happens to a second object in the same phase is nothing new, unless more plans are wanted.
func TestGenerate_EquivalentStepsComeLater(t *testing.T) {
	t.Parallel()
	both := append(trace("one"), trace("two")...)
	first := plan.Generate(trace("one"), plan.Options{Workload: "w"})
	again := plan.Generate(both, plan.Options{Workload: "w"})
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a second object that does the same adds plans:\n%s", diff)
	}
	more := plan.Generate(both, plan.Options{Workload: "w", Want: len(again) + 20})
	if len(more) != len(again)+20 || !cmp.Equal(more[:len(again)], again) {
		t.Errorf("%d plans where %d and 20 more are wanted, or others", len(more), len(again))
	}
	if diff := cmp.Diff(more, plan.Generate(both, plan.Options{Workload: "w", Want: len(again) + 20})); diff != "" {
		t.Errorf("the same trace gives other plans:\n%s", diff)
	}
	rivals := trace("one")
	rivals[0].Replica = "b"
	for _, c := range []struct {
		trace    []plan.Request
		replicas int
		want     bool
	}{{trace("one"), 1, false}, {trace("one"), 2, true}, {rivals, 0, true}} {
		paused := plan.Generate(c.trace, plan.Options{Workload: "w", Replicas: c.replicas})
		if got := slices.ContainsFunc(paused, func(p plan.Plan) bool { return p.Rules[0].Action.Signal == "STOP" }); got != c.want {
			t.Errorf("a plan pauses the leader: %t, want %t, with %d replicas", got, c.want, c.replicas)
		}
	}
}

func TestPick_CoversEveryClassIfItCan(t *testing.T) {
	t.Parallel()
	var plans []plan.Plan
	for i := range 8 {
		plans = append(plans, plan.Generate(trace("one"), plan.Options{Workload: fmt.Sprint("w", i), Want: 84})...)
	}
	if len(plans) < 650 {
		t.Errorf("8 workloads make %d plans, want at least 650", len(plans))
	}
	picked := plan.Pick(plans, 120)
	if missing := plan.Uncovered(plans, picked); len(missing) > 0 {
		t.Errorf("120 plans do not cover %q", missing)
	}
	few := plan.Pick(plans, 60)
	if len(few) != 60 || !cmp.Equal(few, plan.Pick(plans, 60)) {
		t.Errorf("%d plans, or not the same ones again", len(few))
	}
	var does, at, workloads []string
	for _, p := range plans {
		for _, r := range p.Rules {
			does = append(does, string(r.Action.Do))
			at = append(at, r.Match.Verb+r.Match.Resource+r.Match.Event)
		}
		workloads = append(workloads, p.Workload)
	}
	for _, p := range few {
		for _, r := range p.Rules {
			does = slices.DeleteFunc(does, func(s string) bool { return s == string(r.Action.Do) })
			at = slices.DeleteFunc(at, func(s string) bool { return s == r.Match.Verb+r.Match.Resource+r.Match.Event })
		}
		workloads = slices.DeleteFunc(workloads, func(s string) bool { return s == p.Workload })
	}
	if len(does)+len(at)+len(workloads) > 0 {
		t.Errorf("60 plans do not cover %q %q %q", does, at, workloads)
	}
	if all := plan.Pick(plans[:5], 60); len(all) != 5 {
		t.Errorf("picked %d of 5", len(all))
	}
}
