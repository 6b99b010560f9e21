package jobevent

import (
	"encoding/json"
	"time"
)

// Outcome is how a task ended on a host, in Ansible's words.
type Outcome string

// The outcomes.
const (
	OK          Outcome = "ok"
	Changed     Outcome = "changed"
	Skipped     Outcome = "skipped"
	Failed      Outcome = "failed"
	Ignored     Outcome = "ignored" // failed, under ignore_errors
	Unreachable Outcome = "unreachable"
)

// TaskResult is a task that has ended on a host. Its text is plain: see [Failure].
type TaskResult struct {
	Task Task
	// Play is the name of the play.
	Play, Host string
	Finished   time.Time
	Outcome    Outcome
	// Items is how many items its loop had; 0 without a loop, or if the result was
	// dropped because of its size.
	Items int
	// Message and Detail say why the task failed; empty for other outcomes.
	Message, Detail string
}

// Result returns the result of a task that an event reports, and false for an event of
// another kind or of another run. It must be called before [Summary.Observe] gets the event.
func (s *Summary) Result(e Event) (TaskResult, bool) {
	d := e.Data
	r := TaskResult{Play: line(d.Play, maxName), Host: line(d.Host, maxName), Finished: e.Created}
	switch {
	case !s.owns(e) || s.Complete:
		return TaskResult{}, false
	case e.Kind == RunnerSkipped:
		r.Outcome = Skipped
	case e.Kind == RunnerOK && changed(d.Res):
		r.Outcome = Changed
	case e.Kind == RunnerOK:
		r.Outcome = OK
	case e.Kind == RunnerUnreach:
		r.Outcome = Unreachable
	case e.Kind == RunnerFailed && d.IgnoreErrors:
		r.Outcome = Ignored
	case e.Kind == RunnerFailed:
		r.Outcome = Failed
	default:
		return TaskResult{}, false
	}
	r.Task = s.task(d)
	r.Items = itemsOf(d.Res)
	if r.Outcome == Failed || r.Outcome == Ignored || r.Outcome == Unreachable {
		items, _ := s.items.get(hostTask{d.TaskUUID, d.Host})
		f := describe(d.Res, items)
		r.Message, r.Detail = f.Message, f.Detail
	}
	return r, true
}

// itemsOf returns the number of items in the result of a loop.
func itemsOf(res json.RawMessage) int {
	n := 0
	elements(readResult(res).results, func([]byte) { n++ })
	return n
}
