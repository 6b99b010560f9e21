package jobevent

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Summary is what the events of one run add up to. The zero value is ready to
// use; [Summary.Observe] is called from one goroutine. Its memory is bounded
// however many events there are.
type Summary struct {
	// PlaybookUUID is the UUID in the first playbook_on_start; events with
	// another one are not accepted.
	PlaybookUUID string
	// Events counts accepted events; Foreign those that were refused because
	// they do not have the run's playbook UUID; Bad those that could not be
	// read or made no sense; Gaps the counters that never appeared.
	Events, Foreign, Bad, Gaps int

	// Task is the task that is in progress, or was last, with its role, file:line
	// and start; TasksStarted counts the tasks begun so far.
	Task         Task
	TasksStarted int
	// Acted is true once a task other than a meta task was begun, and Answered once a task has a result on a host.
	Acted, Answered bool

	// The totals over all hosts: running counts until the stats event arrives,
	// afterwards the numbers of that event.
	OK, Changed, Skipped, Failures, Unreachable, Rescued, Ignored int
	// Complete is true once an accepted playbook_on_stats was seen.
	Complete bool
	// CompletedAt is the creation time of that event.
	CompletedAt time.Time
	// Stats is that event's content, by host.
	Stats *Stats
	// NoHostsMatched is true if a play found no host. HostsMatched is true at the end if a play is known to have found some.
	NoHostsMatched, HostsMatched bool

	// Changes holds the first 10 changes at most.
	Changes []Change
	// Failed holds the most recent failures, at most 10, the newest last.
	// Failures under ignore_errors are left out. Failures that were rescued, or
	// are under ignore_unreachable, are included, because their events look the
	// same: see [Summary.Culprits].
	Failed []Failure
	// RequeueAfter is the last request of a requeue_after module, valid or not;
	// nil if there was none.
	RequeueAfter *RequeueAfter
	// Parked is true if rolewright.operator.wait_for has parked the object.
	Parked bool

	// worked is true once a task was begun that does more than prepare.
	worked bool
	// plays counts the plays begun so far that have found hosts.
	plays int
	// started holds the tasks by UUID: under the free strategy several are
	// in progress.
	started recent[string, startedTask]
	// items collects failed loop items until the event of their task's result.
	items recent[hostTask, failedItems]
	// last holds each host's last failure: one of a task, and one to reach the host.
	last recent[hostFailure, Failure]
}

type startedTask struct {
	at      time.Time
	handler bool
}

type hostTask struct{ taskUUID, host string }

type hostFailure struct {
	host        string
	unreachable bool
}

// Task describes a task. Its text is plain: see [Failure].
type Task struct {
	Name, Action, Role string
	Path               string // file:line
	Started            time.Time
}

// Failure is a task that failed on a host. Its text is plain: bounded, valid
// UTF-8 without escape sequences and control characters; only Message may have
// line breaks.
type Failure struct {
	Task Task
	Host string
	// Message is the result's msg as text, at most 4 KiB; if there is none, the
	// most informative other part of the result. Never empty.
	Message string
	// Detail is more from the result, usually the last line of stderr: the msg is
	// often just "non-zero return code". At most 1 KiB; may be empty.
	Detail string
	// Items describe failed loop items, at most 5, each in at most 200 bytes.
	Items []string
	// ItemsFailed counts all failed loop items.
	ItemsFailed int
	// Handler, FailedWhen and Unreachable tell what kind of failure it is.
	Handler, FailedWhen, Unreachable bool
}

// Hidden is true if the task has no_log.
func (f Failure) Hidden() bool { return f.Detail == hiddenDetail }

// RequeueAfter is the request of a requeue_after task for the time until the
// next run.
type RequeueAfter struct {
	// Period is the text that the module returned; the caller has to validate it.
	Period string
	// Hidden is true if the time is not known because the task has no_log.
	Hidden bool
	// Task is the task that made the request.
	Task Task
}

// Observe adds an event and tells whether it was accepted. Events that are not
// the run's own change only the count Foreign.
//
// Data of a custom resource can forge events, because ansible-runner finds them
// in the terminal output. It cannot forge playbook_uuid, which is drawn after the
// data was fixed. Only messages may lack a playbook_uuid, as they do before the
// playbook starts, and they do not affect the summary.
func (s *Summary) Observe(e Event) (accepted bool) {
	switch {
	case !s.owns(e):
		s.Foreign++
		return false
	case e.Kind == PlaybookStats && !e.Data.Stats.plausible():
		s.Bad++
		return false
	}
	s.Events++
	if s.Complete {
		return true
	}
	s.Answered = s.Answered || slices.Contains([]Kind{RunnerOK, RunnerSkipped, RunnerFailed, RunnerUnreach}, e.Kind)
	switch e.Kind {
	case PlaybookStart:
		s.PlaybookUUID = e.Data.PlaybookUUID
	case TaskStart, HandlerTaskStart:
		s.observeStart(e)
	case PlayStart:
		s.plays++ // even for a play without hosts, for which NoHostsMatched follows
	case NoHostsMatched:
		s.NoHostsMatched = true
		s.plays--
	case ItemFailed:
		s.observeItem(e.Data)
	case RunnerOK:
		s.observeOK(e.Data)
	case RunnerSkipped:
		s.items.remove(hostTask{e.Data.TaskUUID, e.Data.Host})
		s.Skipped++
	case RunnerFailed, RunnerUnreach:
		s.observeFailure(e)
	case PlaybookStats:
		s.observeStats(e)
	}
	return true
}

// ObserveError counts an error of [Follow].
func (s *Summary) ObserveError(err error) {
	if gap, ok := errors.AsType[*GapError](err); ok {
		s.Gaps += min(gap.Last-gap.First+1, math.MaxInt32-s.Gaps)
		return
	}
	s.Bad++
}

func (s *Summary) owns(e Event) bool {
	uuid := e.Data.PlaybookUUID
	switch {
	case e.Kind == PlaybookStart:
		return s.PlaybookUUID == "" && uuid != "" && len(uuid) <= maxName
	case e.Kind == PlaybookStats && s.Complete:
		return false
	case uuid == "":
		return e.Kind.isMessage()
	}
	return uuid == s.PlaybookUUID
}

// isMessage tells whether Ansible prints events of this kind outside of plays and tasks.
func (k Kind) isMessage() bool {
	switch k {
	case Verbose, "debug", "deprecated", "warning", "system_warning", "error":
		return true
	}
	return false
}

func (s *Summary) observeStart(e Event) {
	s.started.set(e.Data.TaskUUID, startedTask{e.Created, e.Data.Handler || e.Kind == HandlerTaskStart})
	s.Task = s.task(e.Data)
	s.TasksStarted++
	action := s.Task.Action[strings.LastIndexByte(s.Task.Action, '.')+1:]
	s.Acted = s.Acted || action != "meta"
	switch action {
	case "gather_facts", "setup", "validate_argument_spec":
	default:
		s.worked = true
	}
}

// Prepared reports whether the only tasks begun gather facts or validate arguments: then the
// end of the run cannot depend on anything that it has read.
func (s *Summary) Prepared() bool { return !s.worked && s.Bad == 0 && s.Gaps == 0 }

func (s *Summary) task(d Data) Task {
	started, _ := s.started.get(d.TaskUUID)
	return Task{
		Name:    line(cmp.Or(d.Task, d.Name), maxName),
		Action:  line(d.TaskAction, maxName),
		Role:    line(d.Role, maxName),
		Path:    line(d.TaskPath, maxName),
		Started: started.at,
	}
}

func (s *Summary) observeItem(d Data) {
	key := hostTask{d.TaskUUID, d.Host}
	items, _ := s.items.get(key)
	items.add(d.Res)
	s.items.set(key, items)
}

func (s *Summary) observeOK(d Data) {
	s.items.remove(hostTask{d.TaskUUID, d.Host})
	s.OK++
	s.observeChange(d)
	s.Parked = s.Parked || parks(d)
	if !isRequeueAfter(d.ResolvedAction) && !isRequeueAfter(d.TaskAction) {
		return
	}
	if period, ok := requeuePeriod(d.Res); ok {
		s.RequeueAfter = &RequeueAfter{Period: period, Task: s.task(d)}
	} else if s.RequeueAfter == nil && readResult(d.Res).noLog {
		s.RequeueAfter = &RequeueAfter{Hidden: true, Task: s.task(d)}
	}
}

func (s *Summary) observeChange(d Data) {
	if changed(d.Res) {
		s.Changed++
		s.noteChange(d)
	}
}

func (s *Summary) observeFailure(e Event) {
	d := e.Data
	key := hostTask{d.TaskUUID, d.Host}
	items, _ := s.items.get(key)
	s.items.remove(key)
	if d.IgnoreErrors {
		// Ansible also counts such a result as ok.
		s.OK++
		s.Ignored++
		s.observeChange(d)
		return
	}
	started, _ := s.started.get(d.TaskUUID)
	f := describe(d.Res, items)
	f.Task = s.task(d)
	f.Host = line(d.Host, maxName)
	f.Handler = started.handler
	f.Unreachable = e.Kind == RunnerUnreach
	if f.Unreachable {
		s.Unreachable++
	} else {
		s.Failures++
	}
	if len(s.Failed) == maxFailures {
		s.Failed = slices.Delete(s.Failed, 0, 1)
	}
	s.Failed = append(s.Failed, f)
	s.last.set(hostFailure{f.Host, f.Unreachable}, f)
}

func (s *Summary) observeStats(e Event) {
	st := e.Data.Stats.plain()
	s.Stats, s.Complete, s.CompletedAt = st, true, e.Created
	s.HostsMatched = s.plays > 0 && s.Bad == 0 && s.Gaps == 0
	s.OK, s.Changed, s.Skipped = sum(st.OK), sum(st.Changed), sum(st.Skipped)
	s.Failures, s.Unreachable = sum(st.Failures), sum(st.Dark)
	s.Rescued, s.Ignored = sum(st.Rescued), sum(st.Ignored)
}

// maxFailures is the largest number of failures that are reported.
const maxFailures = 10

// Culprits returns the failures that make the run fail, in the order of the
// events, the 10 most recent at most: for each host with failures in the stats, its
// last failure, and for each unreachable host, the task that could not reach it.
// Rescued failures are left out, because rescue comes before a host's final
// failure. The exception is a failure that is rescued in an always section after
// the final failure: the events do not tell the two apart. Without stats, it is not
// known which failures matter, and all of Failed is returned.
func (s *Summary) Culprits() []Failure {
	if s.Stats == nil {
		return slices.Clone(s.Failed)
	}
	last := s.last
	if len(last.keys) == 0 {
		for _, f := range s.Failed {
			last.set(hostFailure{f.Host, f.Unreachable}, f)
		}
	}
	var culprits []Failure
	for _, key := range last.keys {
		counts := s.Stats.Failures
		if key.unreachable {
			counts = s.Stats.Dark
		}
		if counts[key.host] > 0 {
			culprits = append(culprits, last.values[key])
		}
	}
	return culprits[max(0, len(culprits)-maxFailures):]
}

// Decisive returns the index of the failure that explains the run: the first that is not
// just an unreachable host, else 0.
func Decisive(culprits []Failure) int {
	return max(0, slices.IndexFunc(culprits, func(f Failure) bool { return !f.Unreachable }))
}

// plausible tells whether Ansible can have counted this. A nil Stats is not
// plausible: its event had no stats.
func (s *Stats) plausible() bool {
	return s != nil && !slices.ContainsFunc(s.all(), func(counts *map[string]int) bool { return !plausible(*counts) })
}

// plain returns a copy with plain names of hosts: see [Failure].
func (s *Stats) plain() *Stats {
	clean := *s
	for _, counts := range clean.all() {
		byHost := make(map[string]int, len(*counts))
		for host, n := range *counts {
			byHost[line(host, maxName)] += n
		}
		*counts = byHost
	}
	return &clean
}

func (s *Stats) all() []*map[string]int {
	return []*map[string]int{&s.OK, &s.Changed, &s.Failures, &s.Dark, &s.Skipped, &s.Rescued, &s.Ignored, &s.Processed}
}

func sum(counts map[string]int) int {
	total := 0
	for n := range maps.Values(counts) {
		total += n
	}
	return total
}
