package wire

import (
	"slices"
	"sync"
	"time"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// Fired is a fault that took place.
type Fired struct {
	Rule    int          `json:"rule"` // its number, from 0
	Do      plan.Do      `json:"do"`
	Time    time.Time    `json:"time"`
	Request plan.Request `json:"request"` // or the event; it does not have the API server's answer yet
}

// rules count requests and decide what happens to them.
type rules struct {
	mu      sync.Mutex
	list    []rule
	fired   []Fired
	stopped bool
}

type rule struct {
	plan.Rule
	seen, acted int
	first       time.Time // when it first acted
}

func newRules(list []plan.Rule) *rules {
	rs := &rules{}
	for _, r := range list {
		rs.list = append(rs.list, rule{Rule: r})
	}
	return rs
}

// due reports whether the rule acts on what it has just seen.
func (r *rule) due(now time.Time) bool {
	if r.seen < max(r.Match.Occurrence, 1) {
		return false
	}
	if r.Action.Lasts() {
		return r.acted == 0 || now.Sub(r.first) < r.Action.For.Duration
	}
	return r.Match.Times == -1 || r.acted < max(r.Match.Times, 1)
}

// take counts r and says what happens to it; the zero value means nothing. wait are the rules that want r answered
// with something earlier, if there is an earlier answer.
func (rs *rules) take(r plan.Request) (is plan.Action, wait []int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	for i := range rs.list {
		rule := &rs.list[i]
		if !rule.Match.Fits(r) {
			continue
		}
		rule.seen++
		switch {
		case rs.stopped || is.Do != "" || !rule.due(now):
		case rule.Action.Do == plan.Stale:
			wait = append(wait, i)
		default:
			is = rs.act(i, r, now)
		}
	}
	if is.Do != "" {
		return is, nil
	}
	return is, wait
}

// takeStale lets the first of the waiting rules act.
func (rs *rules) takeStale(wait []int, r plan.Request) plan.Action {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	for _, i := range wait {
		if !rs.stopped && rs.list[i].due(now) {
			return rs.act(i, r, now)
		}
	}
	return plan.Action{}
}

func (rs *rules) act(i int, r plan.Request, now time.Time) plan.Action {
	rule := &rs.list[i]
	if rule.acted == 0 {
		rule.first = now
	}
	rule.acted++
	rs.fired = append(rs.fired, Fired{Rule: i, Do: rule.Action.Do, Time: now, Request: r})
	return rule.Action
}

// remembers reports whether earlier answers to r may be needed.
func (rs *rules) remembers(r plan.Request) bool {
	return slices.ContainsFunc(rs.list, func(rule rule) bool { // these fields never change
		m := rule.Match
		m.Replica = ""
		return rule.Action.Do == plan.Stale && m.Fits(r)
	})
}

func (rs *rules) record() []Fired {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(rs.fired)
}

func (rs *rules) unreached() (is []int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i, rule := range rs.list {
		if rule.acted == 0 {
			is = append(is, i)
		}
	}
	return is
}

func (rs *rules) stop() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stopped = true
}
