package history

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a point in time on CLOCK_BOOTTIME, to which all times are
// converted. Zero means that it is not known.
type Instant time.Duration

// Boot returns the current instant.
func Boot() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // a Linux without it is older than Go supports
	}
	return Instant(ts.Nano())
}

// Plus returns the instant d later.
func (i Instant) Plus(d time.Duration) Instant { return i + Instant(d) }

// Since returns the time from the instant earlier to i.
func (i Instant) Since(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// String returns seconds, in the form that the evidence shows.
func (i Instant) String() string { return fmt.Sprintf("%.3fs", time.Duration(i).Seconds()) }

// UnmarshalJSON reads nanoseconds, as supervisors write them, or
// seconds with a fraction, as scripts do. The size tells which, since no machine is up for 300 years.
func (i *Instant) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return fmt.Errorf("instant %s: it is neither seconds nor nanoseconds since boot", data)
	}
	const seconds = 1e10
	if n < seconds {
		*i = Instant(n * float64(time.Second))
		return nil
	}
	whole, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		whole = int64(n)
	}
	*i = Instant(whole)
	return nil
}

// History is what was recorded for one plan. [Load] reads one.
type History struct {
	Dir string
	// Requests are the answered requests of the audit log, in the order in which they were received.
	Requests []*Request
	// Runs are the runs in the ledgers and in the runs' own log, in order of their starts.
	Runs []*Run
	// Objects are the custom resources, by UID, in order of their first version.
	Objects    []*Object
	Operations []Operation
	Driver     []DriverEvent
	// End and Reference are nil if they were not recorded.
	End, Reference *End
	// Kept are the directories in the runner roots at the end: runs by
	// UID. It is nil if the roots are not in the history's directory.
	Kept map[string][]string
	// Leaks are the places where the canary occurs although it must not.
	Leaks []string
	// Notes say what could not be read, apart from a torn last line.
	Notes []string

	runs    map[string]*Run
	objects map[string]*Object
	// hindered are the times when a fault hit the operator, or ended, in order.
	hindered []Instant
}

// Run is one run, according to all sources.
type Run struct {
	ID, UID, Name string
	// Replica is the replica whose ledger contains the run; empty if unknown.
	Replica    string
	Generation int64
	// Value is the spec's value that the run got, according to the run itself.
	Value    string
	HasValue bool
	Deleting bool
	// Forked is true if a fork server started the run, and Dies if it kills itself.
	Forked, Dies bool
	// Begins is how often a process has begun as this run.
	Begins int

	// Begin is the time of the run's own first line, and LastSign of its last one, or when it was last
	// seen to have a process: it certainly lived between them.
	Begin, LastSign Instant
	// End is the run's own record of its end; nil if it was killed.
	End *TruthLine
	// LedgerStart and LedgerEnd are nil if the ledger has none. A line by a later operator that
	// looked for remains of the run is only used as LedgerEnd if there is no other.
	LedgerStart, LedgerEnd *LedgerLine
}

// onRecord returns when the run's own supervisor had recorded how the run
// ended; false if that is not known, or has not happened.
func (r *Run) onRecord() (Instant, bool) {
	if e := r.LedgerEnd; e != nil {
		return e.Boot, e.Reason != reasonAbandoned && e.Reason != reasonReaped && e.NotStarted == "" && e.Survivors == ""
	}
	if r.End == nil || r.LedgerStart != nil {
		return 0, false
	}
	return r.End.Boot.Plus(lostTolerance), true // there is no ledger
}

// Started returns when the run began to exist.
func (r *Run) Started() Instant {
	if r.LedgerStart != nil && (r.Begin == 0 || r.LedgerStart.Boot < r.Begin) {
		return r.LedgerStart.Boot
	}
	return r.Begin
}

// LastAlive returns the last instant at which the run is known to have existed.
func (r *Run) LastAlive() Instant {
	if r.LedgerEnd != nil {
		return max(r.LastSign, r.LedgerEnd.Boot)
	}
	return max(r.LastSign, r.Started())
}

// Proved returns what the operator should find out: whether everything that the run left
// behind proves a success.
func (r *Run) Proved() bool {
	if e := r.LedgerEnd; e != nil && e.Reason != reasonReaped && (e.Code != 0 || e.Signal != "") {
		return false
	}
	return r.End != nil && r.End.proves()
}

// Object is the life of one custom resource.
type Object struct {
	UID, Name, Resource string
	// Versions are in order of their resource versions.
	Versions []*Version
	// Deleted is when its deletion was requested, Gone when it was certainly removed,
	// and Going when the API server received the request that removed it; zero if never.
	Deleted, Going, Gone Instant
	// values are the spec's values by generation.
	values map[int64]string
}

// Version is an object as left by one write.
type Version struct {
	*Request

	ResourceVersion int64
	Generation      int64
	Deleting        bool
	Finalizers      []string
	Status          Status
}

// Status is what the operator wrote into an object.
type Status struct {
	ObservedGeneration int64
	Conditions         []Condition
	Ansible            struct {
		LastRun   *LastRun
		ActiveRun *ActiveRun
	}
}

// LastRun is status.ansible.lastRun.
type LastRun struct {
	ID, Cause, Result, Reason, Message string
	Generation                         int64
	Started, Finished                  string
	RequeueAfter                       string
	Attempts                           int64
}

// ActiveRun is status.ansible.activeRun.
type ActiveRun struct {
	ID, Cause  string
	Generation int64
}

// Condition is an entry of status.conditions.
type Condition struct {
	Type, Status, Reason string
	ObservedGeneration   int64
}

// condition returns the status of a condition; empty if there is none.
func (s Status) condition(kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// value returns the spec's value at a generation.
func (o *Object) value(generation int64) (string, bool) {
	v, ok := o.values[generation]
	return v, ok
}

// Run returns the run with that ID; nil if no source has it.
func (h *History) Run(id string) *Run { return h.runs[id] }

// events returns the driver's events of a kind.
func (h *History) events(kind string) []DriverEvent {
	var found []DriverEvent
	for _, e := range h.Driver {
		if e.Event == kind {
			found = append(found, e)
		}
	}
	return found
}
