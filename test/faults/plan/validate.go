package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Validate says everything that is wrong with p, and where.
func (p Plan) Validate() error {
	var errs []error
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`).MatchString(p.Name) {
		errs = append(errs, fmt.Errorf("name: %q is not a name of lower case letters, digits, dots and hyphens", p.Name))
	}
	if p.Workload == "" {
		errs = append(errs, errors.New("workload: is missing; say what the client is to do"))
	}
	if p.Replicas < 0 {
		errs = append(errs, fmt.Errorf("replicas: %d is less than none", p.Replicas))
	}
	for i, r := range p.Rules {
		errs = append(errs, at(fmt.Sprintf("rules[%d].match", i), r.Match.problems())...)
		errs = append(errs, at(fmt.Sprintf("rules[%d].action", i), r.Action.problems(r.Match))...)
	}
	for i, f := range p.Failpoints {
		errs = append(errs, at(fmt.Sprintf("failpoints[%d]", i), f.problems())...)
	}
	return errors.Join(errs...)
}

func at(where string, problems []string) []error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s.%s", where, p))
	}
	return errs
}

func (m Match) problems() (is []string) {
	verbs := []string{"", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	if !slices.Contains(verbs, m.Verb) {
		is = append(is, fmt.Sprintf("verb: %q is none of %s", m.Verb, strings.Join(verbs[1:], ", ")))
	}
	events := []string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK", AnyEvent}
	if !slices.Contains(events, m.Event) {
		is = append(is, fmt.Sprintf("event: %q is none of %s", m.Event, strings.Join(events[1:], ", ")))
	}
	if m.Event != "" && m.Verb != "watch" {
		is = append(is, fmt.Sprintf("event: only a watch has events, the verb is %q", m.Verb))
	}
	if m.Occurrence < 0 {
		is = append(is, fmt.Sprintf("occurrence: %d is not the number of a request, which starts at 1", m.Occurrence))
	}
	if m.Times < -1 {
		is = append(is, fmt.Sprintf("times: %d is neither a number of times nor -1, without end", m.Times))
	}
	return is
}

// subject says what an action can act on.
type subject struct {
	verbs []string // only requests with these verbs; nil means all
	no    bool     // no requests at all
	event bool     // events too
}

// subjects returns the subjects of all actions.
func subjects() map[Do]subject {
	any, anyAndEvents := subject{}, subject{event: true}
	changes := subject{verbs: []string{"create", "update", "patch", "delete", "deletecollection"}}
	watches := subject{verbs: []string{"watch"}, event: true}
	events := subject{no: true, event: true}
	return map[Do]subject{
		CrashBefore: anyAndEvents, CrashAfter: anyAndEvents,
		Conflict: changes, Invalid: changes,
		Throttle: any, Error: any, Unavailable: any, Forbid: any, Block: any,
		TimeoutAfterCommit: any, ResetBefore: any, ResetAfter: any, Slow: any,
		Gone:      {verbs: []string{"list", "watch"}, event: true},
		Stale:     {verbs: []string{"get", "list", "watch"}},
		HoldWatch: watches, CutWatch: watches,
		DropEvent: events, DuplicateEvent: events,
	}
}

func (a Action) problems(m Match) (is []string) {
	s, known := subjects()[a.Do]
	switch {
	case !known:
		return []string{fmt.Sprintf("do: there is no action %q", a.Do)}
	case m.Event != "" && !s.event:
		is = append(is, fmt.Sprintf("do: %s acts on requests, and the match is for events", a.Do))
	case m.Event == "" && s.no:
		is = append(is, fmt.Sprintf("do: %s acts on events; set match.event", a.Do))
	case m.Event == "" && s.verbs != nil && !slices.Contains(s.verbs, m.Verb):
		is = append(is, fmt.Sprintf("do: %s needs match.verb to be one of %s, not %q", a.Do, strings.Join(s.verbs, ", "), m.Verb))
	}
	crash := a.Do == CrashBefore || a.Do == CrashAfter
	switch {
	case !crash && a.Signal != "":
		is = append(is, fmt.Sprintf("signal: %s sends none", a.Do))
	case !slices.Contains([]string{"", "KILL", "TERM", "STOP"}, a.Signal):
		is = append(is, fmt.Sprintf("signal: %q is none of KILL, TERM, STOP", a.Signal))
	}
	needs := slices.Contains([]Do{Slow, HoldWatch, Block}, a.Do) || a.Signal == "STOP"
	may := needs || slices.Contains([]Do{DropEvent, Stale}, a.Do) || (Action{Do: a.Do, For: metav1.Duration{Duration: 1}}).Lasts()
	switch {
	case a.For.Duration < 0:
		is = append(is, "for: is less than nothing")
	case needs && a.For.Duration == 0:
		is = append(is, fmt.Sprintf("for: is missing; %s needs to know how long", strings.TrimSpace(string(a.Do)+" "+a.Signal)))
	case !may && a.For.Duration > 0:
		is = append(is, fmt.Sprintf("for: %s takes no time", a.Do))
	}
	return is
}

func (f Failpoint) problems() (is []string) {
	if f.Name == "" {
		is = append(is, "name: is missing; say which failpoint")
	}
	does := []string{"kill", "term", "stop", "panic", "sleep"}
	if !slices.Contains(does, f.Do) {
		is = append(is, fmt.Sprintf("do: %q is none of %s", f.Do, strings.Join(does, ", ")))
	}
	if f.Occurrence < 0 {
		is = append(is, fmt.Sprintf("occurrence: %d is not the number of a passage, which starts at 1", f.Occurrence))
	}
	lasts := f.Do == "stop" || f.Do == "sleep"
	switch {
	case f.For.Duration < 0:
		is = append(is, "for: is less than nothing")
	case lasts && f.For.Duration == 0:
		is = append(is, fmt.Sprintf("for: is missing; %s needs to know how long", f.Do))
	case !lasts && f.For.Duration > 0:
		is = append(is, fmt.Sprintf("for: %s takes no time", f.Do))
	}
	return is
}
