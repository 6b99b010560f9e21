package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/rolewright/rolewright/internal/limits"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
)

// ErrMemory is wrapped by the error of a run that was stopped because next to no
// memory was left, and the run took most of it.
var ErrMemory = errors.New("the run took the memory that was left")

// ErrProcesses is wrapped by the error of a run that was stopped because next to no
// further process could be started, and the run had most of them.
var ErrProcesses = errors.New("the run started too many processes")

// A run is stopped where a twentieth of the memory, or a tenth of the processes, is
// left, if no other run takes as much, and it takes a quarter of all: the kernel
// would kill the whole container, and the operator and other runs with it.
const (
	memoryLeft    = 20
	processesLeft = 10
	mostShare     = 4
)

// pressureEvery is how often memory and processes are looked at while there are
// runs, and pressureOften when half of them are in use.
const (
	pressureEvery = 250 * time.Millisecond
	pressureOften = 50 * time.Millisecond
)

// spareThreads are kept for the moment when no process can be started; see
// [supervise.ReserveThreads].
const spareThreads = 16

// pressure tells how much memory and how many processes are left, and chooses the
// run that is stopped. It is safe for concurrent use.
type pressure struct {
	group limits.Group

	mu   sync.Mutex
	last reading
	next time.Time
	// limits are those of the group, until limitsStale: they hardly ever change.
	limits      limits.Limits
	limitsStale time.Time
	// runs are those in progress, with what stops them.
	runs map[string]context.CancelCauseFunc
	// victim is the run that was stopped last, until settled: what it had takes a
	// while to come back.
	victim  string
	settled time.Time
	// looking is true while a goroutine looks at what the runs take, and quiet is the
	// time before which no one needs to.
	looking bool
	quiet   time.Time
}

const (
	// limitsHold is how long limits are taken for granted.
	limitsHold = 10 * time.Second
	// settling is how long no other run is stopped after one.
	settling = 3 * time.Second
	// loadShare is the part of the time that may be spent on what runs take: there may
	// be many processes. Where no run takes much, it is not looked at for quietTime.
	loadShare = 5
	quietTime = 2 * time.Second
)

func newPressure() *pressure {
	supervise.ReserveThreads(spareThreads)
	return &pressure{group: limits.Find("/"), runs: map[string]context.CancelCauseFunc{}}
}

// begin and end say that a run is in progress, which stop ends.
func (p *pressure) begin(id string, stop context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[id] = stop
}

func (p *pressure) end(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, id)
}

// reading is what is in use and what there is; nothing is known where that is 0.
type reading struct {
	memory, memoryLimit       int64
	processes, processesLimit int64
}

func (r reading) noMemory() bool {
	return r.memoryLimit > 0 && r.memoryLimit-r.memory < r.memoryLimit/memoryLeft
}

func (r reading) noProcesses() bool {
	return r.processesLimit > 0 && r.processesLimit-r.processes < r.processesLimit/processesLeft
}

// read returns the state of now, and when to look again.
func (p *pressure) read() (reading, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := time.Until(p.next); wait > 0 {
		return p.last, wait
	}
	if now := time.Now(); now.After(p.limitsStale) {
		p.limits, p.limitsStale = p.group.Limits(), now.Add(limitsHold)
	}
	r := reading{memoryLimit: p.limits.Memory, processesLimit: p.limits.Processes}
	r.memory, r.processes = p.group.Used()
	if r.memoryLimit == 0 {
		r.memoryLimit, r.memory = p.group.Machine()
	} else if r.memory > r.memoryLimit/2 {
		r.memory -= p.group.Cached()
	}
	if r.memory > r.memoryLimit/2 {
		r.memory -= p.group.Swap()
	}
	pause := pressureEvery
	if r.memory > r.memoryLimit/2 || r.processesLimit > 0 && r.processes > r.processesLimit/2 {
		pause = pressureOften
	}
	p.last, p.next = r, time.Now().Add(pause)
	return r, pause
}

// culprit returns what stops the run that takes most, what it takes, and the reason to
// stop it; no reason if none is to be stopped, or another goroutine is at it.
func (p *pressure) culprit(r reading) (stop context.CancelCauseFunc, load supervise.Load, reason error) {
	now := time.Now()
	p.mu.Lock()
	busy, victim, id := p.looking || now.Before(p.quiet), "", ""
	if now.Before(p.settled) {
		victim = p.victim
	}
	runs := maps.Clone(p.runs)
	p.looking = p.looking || !busy
	p.mu.Unlock()
	if busy {
		return nil, load, nil
	}
	loads := supervise.Loads(cookieName, r.noMemory(), isServer)
	for run, one := range loads {
		switch {
		case runs[run] == nil || victim != "" && run != victim:
		case r.noMemory() && one.Memory > max(load.Memory, r.memoryLimit/mostShare):
			id, load = run, one
			reason = fmt.Errorf("%w: %d MiB, when %d of %d MiB were in use", ErrMemory, one.Memory>>20, r.memory>>20, r.memoryLimit>>20)
		case r.noProcesses() && !errors.Is(reason, ErrMemory) && one.Tasks > max(load.Tasks, r.processesLimit/mostShare):
			id, load = run, one
			reason = fmt.Errorf("%w: %d, when there were %d of %d", ErrProcesses, one.Tasks, r.processes, r.processesLimit)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looking = false
	p.quiet = time.Now().Add(max(loadShare*time.Since(now), pressureOften))
	if reason != nil {
		p.victim, p.settled = id, time.Now().Add(settling)
	} else if victim == "" {
		p.quiet = time.Now().Add(quietTime)
	}
	return runs[id], load, reason
}

// check stops a run if it takes what is left, and returns when to look again.
func (p *pressure) check() time.Duration {
	now, pause := p.read()
	if !now.noMemory() && !now.noProcesses() {
		return pause
	}
	stop, load, reason := p.culprit(now)
	if reason == nil {
		return pause
	}
	stop(reason)
	if errors.Is(reason, ErrMemory) {
		load.KillLargest() // it would take the rest before it hears
	} else {
		load.KillYoungest(leaders)
	}
	return pause
}

// isServer tells that a cookie is that of a fork server.
func isServer(value string) bool { return strings.HasPrefix(value, warm.ServerPrefix) }

// leaders are the first processes of a run, which tell how it ends: the run head of
// a forked run, and ansible-runner.
const leaders = 2

// shortage counts the processes that the kernel has killed in the control group
// because its memory was used up, and those that could not be started.
type shortage struct{ killed, refused int64 }

func (p *pressure) shortage() shortage {
	killed, refused := p.group.Exhausted()
	return shortage{killed, refused}
}

// since says what a run may have died of that began at the earlier count; it is empty
// if memory and processes were enough.
func (e shortage) since(began shortage) string {
	switch {
	case e.killed > began.killed:
		return fmt.Sprintf("since it began, the kernel has killed %d processes of the container, because its memory was used up", e.killed-began.killed)
	case e.refused > began.refused:
		return "since it began, the container reached its limit of processes"
	}
	return ""
}
