package controller

import (
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// quietFor is how long a quiet run may last before the status shows its progress.
const quietFor = 10 * time.Second

// quietPeriod is the longest period of quiet runs.
const quietPeriod = 10 * time.Minute

// isQuiet reports whether the planned run is quiet: it changes the object's status only if it has
// something new to say. That is a periodic run of a chart whose release was as wanted. helm-operator
// writes nothing then, either, and an idle chart runs every minute. A run with a long period is
// recorded, or each restart would run all objects at once.
//
// The status does not show a quiet run while it is in progress. If this process ends meanwhile, the
// next one does not know of the run, and runs the object again. What is left of the first run can do no
// harm: all that a chart does goes through the proxy of the process that has ended. A run as a Job
// goes on instead, so it is recorded in order to be found.
func (r *reconciler) isQuiet(s *scope) bool {
	return s.plan.cause == causePeriod && !s.plan.check && !s.deleting && s.memory.unwritten == nil &&
		quietAfter(r.watch, s.settings.period, s.memory.last, s.object.GetGeneration())
}

// quietAfter reports whether periodic runs after last, the last recorded run, are quiet.
func quietAfter(w watches.Watch, period time.Duration, last *status.Run, generation int64) bool {
	return isChart(w) && w.Executor != watches.ExecutorJob && period > 0 && period <= quietPeriod &&
		last != nil && last.Result == status.Succeeded && !last.NotYet() && last.Generation == generation
}

// foundNothing reports whether run is quiet and has found everything as wanted.
func (s *scope) foundNothing(run status.Run) bool {
	return s.quiet && run.ID == s.active.ID && run.Result == status.Succeeded && !run.NotYet() && run.Counts.Changed == 0
}

// conclude returns the status st after the end of run. After a quiet run without news, that is st itself.
func (s *scope) conclude(st map[string]any, run status.Run, next time.Duration, now time.Time) map[string]any {
	after := status.Conclude(st, run, next, now)
	switch {
	case !s.quiet || run.ID != s.active.ID:
		return after
	case status.Repeats(st, after):
		return st
	}
	return status.Conclude(status.Begin(st, s.active, s.deleting, s.active.Started), run, next, now)
}
