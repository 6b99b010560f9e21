package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// frozen is how long a stopped operator stays stopped: longer than its lease lasts.
const frozen = 20 * time.Second

// KillMatrix returns the plans in which the operator dies at each of its failpoints
// in each way, alone and with another replica. They only have failpoints that the operator
// passes with forked runs, or with plain ones.
func KillMatrix(forked bool) []plan.Plan {
	passed := func(point string) bool {
		switch point {
		case "forked.started", "forked.ended":
			return forked
		case "supervising.started", "supervising.ended":
			return !forked
		}
		return true
	}
	points := slices.DeleteFunc(failpoint.Points(), func(point string) bool { return !passed(point) })
	if forked {
		points = append(points, pythonPoints()...)
	}
	var plans []plan.Plan
	for _, replicas := range []int{1, 2} {
		for _, point := range points {
			if replicas > 1 && ofTicket(point) {
				continue
			}
			for _, do := range []string{"kill", "term", "stop", "panic"} {
				p := plan.Plan{
					Name:     fmt.Sprintf("%s-%s-%d", point, do, replicas),
					Workload: workloadOf(point, replicas), Replicas: replicas,
				}
				p.Rules, p.Failpoints = leadingTo(point)
				f := plan.Failpoint{Name: point, Do: do}
				if point == serverPoint {
					f.Occurrence = 3 // a question and the self-check pass it first
				}
				if do == "stop" {
					f.For = metav1.Duration{Duration: frozen}
				}
				p.Failpoints = append(p.Failpoints, f)
				plans = append(plans, p)
			}
		}
	}
	return plans
}

// serverPoint is the failpoint of the fork server itself.
const serverPoint = "python.server.before-fork"

// pythonPoints returns the failpoints of sitecustomize.py, in the order in which a run
// passes them.
func pythonPoints() []string {
	return []string{
		serverPoint, "python.head.received", "python.head.ready", "python.head.started", "python.keeper.run-started", "python.command.joined",
		"python.head.going", "python.head.ended", "python.head.killed", "python.head.before-answer",
	}
}

// workloadOf returns a workload in which an operator passes a failpoint.
func workloadOf(point string, replicas int) string {
	part, _, _ := strings.Cut(point, ".")
	switch {
	case part == "release":
		return "delete"
	case part == "forget":
		return "delete-plain"
	case part == "sweep":
		return "deleted-while-down"
	case part == "lease" && replicas > 1:
		return "leader-change"
	case part == "lease":
		return "elected"
	case part == "shutdown" && replicas > 1:
		return "leader-change"
	case part == "shutdown":
		return "restart"
	}
	return "change-during-run"
}

// ofTicket tells whether an operator passes a failpoint only if it has the ticket of a lost run. A run has one
// once it has started, in the directory of its replica.
func ofTicket(point string) bool { return point == "lost.before-reap" || point == "lost.found" }

// leadingTo returns the faults without which a failpoint cannot be passed.
func leadingTo(point string) ([]plan.Rule, []plan.Failpoint) {
	switch {
	case point == "unwritten.before-write":
		// The end of the first run cannot be written.
		return []plan.Rule{{
			Match:  plan.Match{Verb: "patch", Resource: "things/status", Occurrence: 2},
			Action: plan.Action{Do: plan.Unavailable, For: metav1.Duration{Duration: 3 * time.Second}},
		}}, nil
	case ofTicket(point):
		// The run has ended, and no process has recorded it.
		return nil, []plan.Failpoint{{Name: "run.ended", Do: "kill"}}
	case strings.HasPrefix(point, "lost."):
		return nil, []plan.Failpoint{{Name: "begin.after-write", Do: "kill"}}
	}
	return nil, nil
}
