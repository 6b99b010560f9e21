package jobevent

import "time"

// Summary is what the events of one run add up to. The zero value is ready;
// [Summary.Observe] is called from one goroutine. Its memory is bounded
// however many events there are.
type Summary struct {
	// PlaybookUUID is that of the first playbook_on_start; events that carry
	// another one are not accepted.
	PlaybookUUID string
	// Events counts accepted events; Foreign those that were refused because
	// they do not bear the run's playbook UUID; Bad those that could not be
	// decoded; Gaps the counters that never appeared.
	Events, Foreign, Bad, Gaps int

	// Task is the task that runs now (or ran last), with its role, file:line
	// and start; TasksStarted counts the tasks begun so far.
	Task         Task
	TasksStarted int

	// The totals over all hosts: running counts until the stats event
	// arrives, that event's figures afterwards.
	OK, Changed, Skipped, Failures, Unreachable, Rescued, Ignored int
	// Complete is true once an accepted playbook_on_stats was seen.
	Complete bool
	// CompletedAt is the creation time of that event.
	CompletedAt time.Time
	// Stats is that event's content, by host.
	Stats *Stats
	// NoHostsMatched is true if a play found no host.
	NoHostsMatched bool

	// Failed holds the failures that were neither ignored nor, as far as the
	// events tell, rescued: the most recent ones, at most 10.
	Failed []Failure
	// RequeueAfter is the last valid or invalid wish of a requeue_after
	// module; nil if there was none.
	RequeueAfter *RequeueAfter
}

// Task names a task.
type Task struct {
	Name, Action, Role string
	Path               string // file:line
	Started            time.Time
}

// Failure is a task that failed on a host.
type Failure struct {
	Task Task
	Host string
	// Message is the result's msg, rendered as text; bounded.
	Message string
	// Items describe the loop items that failed, at most 5, bounded.
	Items []string
	// ItemsFailed counts them all.
	ItemsFailed int
	// NoLog is true if the result was censored.
	NoLog bool
	// Handler, FailedWhen and Unreachable tell what kind of failure it is.
	Handler, FailedWhen, Unreachable bool
}

// RequeueAfter is the wish of a requeue_after task for the time until the
// next run.
type RequeueAfter struct {
	// Period is the text the module returned; the reader validates it.
	Period string
	// Task is the task that asked.
	Task Task
}
