package controller

import (
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// quietFor is how long a quiet run may last before its progress is shown.
const quietFor = 10 * time.Second

// quietPeriod is the longest period of quiet runs.
const quietPeriod = 10 * time.Minute

// isQuiet tells whether the run that is planned is to leave the status of its object as it is,
// unless it has something new to say: a periodic run of a chart whose release was as wanted.
// helm-operator, too, writes nothing then, and an idle chart runs every minute. A run with a long period
// is on record, or each restart would run all objects at once.
//
// Such a run is not on record while it lasts. Were this process to end meanwhile, another one
// would find nothing to end, and run the object again. What is left of the run by then reaches
// nothing: all that a chart can do goes through the proxy of the process that has ended. A run as a
// Job goes on instead, and is on record, so that it is found.
func (r *reconciler) isQuiet(s *scope) bool {
	return s.plan.cause == causePeriod && !s.plan.check && !s.deleting && s.memory.unwritten == nil &&
		quietAfter(r.watch, s.settings.period, s.memory.last, s.object.GetGeneration())
}

// quietAfter tells whether periodic runs after the last one that is on record are quiet.
func quietAfter(w watches.Watch, period time.Duration, last *status.Run, generation int64) bool {
	return isChart(w) && w.Executor != watches.ExecutorJob && period > 0 && period <= quietPeriod &&
		last != nil && last.Result == status.Succeeded && !last.NotYet() && last.Generation == generation
}

// foundNothing tells whether a quiet run has found everything as wanted.
func (s *scope) foundNothing(run status.Run) bool {
	return s.quiet && run.ID == s.active.ID && run.Result == status.Succeeded && !run.NotYet() && run.Counts.Changed == 0
}

// conclude is what the end of a run makes of a status.
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
