package history

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits on what is kept of one run. Further tasks and writes are only counted; when all messages
// together have more than MaxText bytes, further tasks have no message.
const (
	MaxTasks  = 2000
	MaxWrites = 1000
	MaxText   = 1 << 20
)

// maxEvents is how many events are kept for clients that read later, and maxBatch how many
// a client gets at a time, so that a slow client does not hold more.
const (
	maxEvents = 2048
	maxBatch  = 256
)

// EventKind says what an [Event] is about.
type EventKind string

// The kinds.
const (
	RunStarted EventKind = "run-started"
	TaskEnded  EventKind = "task"
	Wrote      EventKind = "write"
	RunEnded   EventKind = "run-ended"
	// RunLeft is the last event of a run that goes on, and that another process records.
	RunLeft EventKind = "run-left"
)

// Event is something that happens to a run in progress.
type Event struct {
	Kind EventKind `json:"kind"`
	// Run is the state of the run at that time.
	Run Brief `json:"run"`
	// Number is the index of Task in Tasks of the run, or of Write in Writes.
	Number int    `json:"number,omitempty"`
	Task   *Task  `json:"task,omitempty"`
	Write  *Write `json:"write,omitempty"`
}

// Observer is notified of runs while they happen.
type Observer interface {
	// Begin is called when a run begins, and may add the ID of its trace to run.
	Begin(run *Run) Observed
}

// Observed is notified of what happens to one run, by one caller at a time.
type Observed interface {
	// Parent is the value of TRACEPARENT for the processes of the run.
	Parent() string
	Task(t Task)
	Write(w Write)
	End(run Run)
}

// Recorder records runs while they happen, and puts them into its store when they have
// ended. It is safe for concurrent use. A nil Recorder records nothing.
type Recorder struct {
	store    *Store   // nil if runs are not kept
	observer Observer // nil for none

	mu      sync.Mutex
	running map[string]*Recording
	// events are the last events; first is the number of the first of them.
	events []Event
	first  uint64
	// more is closed when the next event is added.
	more chan struct{}
}

// NewRecorder returns a recorder for a store, which may be nil: then runs are not kept. o is
// notified of all runs, and may be nil.
func NewRecorder(s *Store, o Observer) *Recorder {
	now := time.Now
	if s != nil {
		now = s.now
	}
	// With the time as the first number, numbers of earlier processes are lower.
	return &Recorder{store: s, observer: o, running: map[string]*Recording{}, first: uint64(now().UnixMicro()), more: make(chan struct{})}
}

// Recording is a run in progress. A nil Recording records nothing.
type Recording struct {
	r   *Recorder
	run Run // guarded by the lock of r
	// observed is called under the lock of r; nil for none.
	observed Observed
	// text is how many bytes the messages of its tasks have, guarded by the lock of r.
	text int
}

// Begin records that a run begins. It returns nil if a run with that ID is in progress: the ID may come from a
// status, which others can write, and must not affect the run of another object.
func (r *Recorder) Begin(run Run) *Recording {
	if r == nil {
		return nil
	}
	x := &Recording{r: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[run.ID] != nil {
		return nil
	}
	if r.observer != nil {
		x.observed = r.observer.Begin(&run)
	}
	x.run = run
	r.running[run.ID] = x
	r.tell(Event{Kind: RunStarted, Run: run.Brief})
	return x
}

// Parent returns the value of TRACEPARENT for the processes of the run; empty if it is not traced.
func (x *Recording) Parent() string {
	if x == nil || x.observed == nil {
		return ""
	}
	return x.observed.Parent()
}

// TraceID returns the ID of the run's trace; empty if it is not traced or not sampled.
func (x *Recording) TraceID() string {
	if x == nil {
		return ""
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return x.run.TraceID
}

// Now sets the current task, and the counts of results.
func (x *Recording) Now(task TaskName, counts Counts) {
	if x == nil {
		return
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	x.run.Task, x.run.Counts = &task, counts
}

// Task adds a task that has ended.
func (x *Recording) Task(t Task) {
	if x == nil {
		return
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if len(x.run.Tasks) == MaxTasks {
		x.run.TasksLeftOut++
		return
	}
	if x.text+len(t.Message) > MaxText {
		t.Message = ""
	}
	x.text += len(t.Message)
	x.run.Tasks = append(x.run.Tasks, t)
	if x.observed != nil {
		x.observed.Task(t)
	}
	x.r.tell(Event{Kind: TaskEnded, Run: x.run.Brief, Number: len(x.run.Tasks) - 1, Task: &t})
}

// Write adds a write. End finds out which task has made it.
func (x *Recording) Write(w Write) {
	if x == nil {
		return
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if len(x.run.Writes) == MaxWrites {
		x.run.WritesLeftOut++
		return
	}
	w.Task = -1
	x.run.Writes = append(x.run.Writes, w)
	if x.observed != nil {
		x.observed.Write(w)
	}
	x.r.tell(Event{Kind: Wrote, Run: x.run.Brief, Number: len(x.run.Writes) - 1, Write: &w})
}

// End records that the run has ended, and puts it into the store. finish is called to complete the run.
func (x *Recording) End(finish func(*Run)) {
	if x == nil {
		return
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if x.r.running[x.run.ID] != x {
		return // it has ended already
	}
	delete(x.r.running, x.run.ID)
	run := x.run
	run.Tasks, run.Writes = slices.Clone(run.Tasks), slices.Clone(run.Writes)
	finish(&run)
	for i := range run.Writes {
		run.Writes[i].Task = taskAt(run.Tasks, run.Writes[i])
	}
	if x.observed != nil {
		x.observed.End(run)
	}
	if x.r.store != nil && !run.Idle {
		x.r.store.Add(run)
	}
	x.r.tell(Event{Kind: RunEnded, Run: run.Brief})
}

// Drop ends the recording without keeping the run, which goes on. With left, another process records it: clients that follow
// it here get the event RunLeft, because no end will come. Without, this process follows the run again.
func (x *Recording) Drop(left bool) {
	if x == nil {
		return
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if x.r.running[x.run.ID] == x {
		delete(x.r.running, x.run.ID)
		if x.observed != nil {
			x.observed.End(x.run)
		}
		if left {
			x.r.tell(Event{Kind: RunLeft, Run: x.run.Brief})
		}
	}
}

// taskAt returns the index of the task that was in progress when a write was answered, of
// several the one that was started last; -1 if there is none.
func taskAt(tasks []Task, w Write) int {
	found := -1
	for i, t := range tasks {
		if !w.At.Before(t.Started) && !w.At.After(t.Finished) && (found < 0 || !t.Started.Before(tasks[found].Started)) {
			found = i
		}
	}
	return found
}

// tell adds an event. The caller holds the lock.
func (r *Recorder) tell(e Event) {
	if len(r.events) == maxEvents {
		const dropped = maxEvents / 8
		r.events, r.first = slices.Delete(r.events, 0, dropped), r.first+dropped
	}
	r.events = append(r.events, e)
	close(r.more)
	r.more = make(chan struct{})
}

// Lead opens the history of runs when this process leads: see [Store.Lead]. It can be added to a
// manager as a runnable, and does not block.
func (r *Recorder) Lead(context.Context) error {
	if r != nil && r.store != nil {
		r.store.Lead()
	}
	return nil
}

// Cursor returns the number of the next event.
func (r *Recorder) Cursor() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first + uint64(len(r.events))
}

// Events returns some events from the number from on, and a channel that is closed when there are more, now or later. ok
// is false if not all of these events are kept any more, or from is in the future: then the client has to start from the
// current state.
func (r *Recorder) Events(from uint64) (events []Event, more <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from < r.first || from > r.first+uint64(len(r.events)) {
		return nil, r.more, false
	}
	events, more = r.events[from-r.first:], r.more
	if len(events) > maxBatch {
		events, more = events[:maxBatch], closed
	}
	return slices.Clone(events), more, true
}

// closed is a closed channel.
var closed = func() <-chan struct{} { //nolint:gochecknoglobals // it is never changed
	c := make(chan struct{})
	close(c)
	return c
}()

// Run returns a run in progress or a run that is kept: see [Store.Run].
func (r *Recorder) Run(id string) (Run, error) {
	runs, err := only(id, r.inProgress(id))
	if err != nil {
		return Run{}, err
	}
	if r.store == nil {
		return either(id, runs, Run{}, ErrNotFound)
	}
	kept, err := r.store.Run(id)
	return either(id, runs, kept, err)
}

// inProgress returns the runs in progress whose IDs begin with id.
func (r *Recorder) inProgress(id string) (runs []Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for is, x := range r.running {
		if strings.HasPrefix(is, id) {
			run := x.run
			run.Tasks, run.Writes = slices.Clone(run.Tasks), slices.Clone(run.Writes)
			runs = append(runs, run)
		}
	}
	return runs
}

// Running returns the runs in progress, in the order of their starts.
func (r *Recorder) Running() []Brief {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Brief
	for _, x := range r.running {
		all = append(all, x.run.Brief)
	}
	slices.SortFunc(all, func(a, b Brief) int { return a.Started.Compare(b.Started) })
	return all
}

// Runs returns runs that have ended: see [Store.Runs].
func (r *Recorder) Runs(q Query) ([]Brief, string, error) {
	if r.store == nil {
		return nil, "", nil
	}
	return r.store.Runs(q)
}
