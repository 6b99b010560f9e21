package runner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rolewright/rolewright/internal/limits"
	"github.com/rolewright/rolewright/runner/supervise"
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

// pressure tells how much memory and how many processes are left. It is safe for
// concurrent use.
type pressure struct {
	group limits.Group

	mu   sync.Mutex
	last reading
	next time.Time
	// limits are those of the group, until limitsStale: they hardly ever change.
	limits      limits.Limits
	limitsStale time.Time
	// load is what the runs take, with their memory if it is weighed, until stale.
	load    map[string]supervise.Load
	weighed bool
	stale   time.Time
}

// limitsHold is how long limits are taken for granted.
const limitsHold = 10 * time.Second

// loadShare is the part of the time that may be spent on the loads of runs: there
// may be many processes.
const loadShare = 5

// loads returns what the runs take, with their memory if that is to be weighed.
func (p *pressure) loads(weigh bool) map[string]supervise.Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().After(p.stale) || weigh && !p.weighed {
		began := time.Now()
		p.load, p.weighed = supervise.Loads(cookieName, weigh), weigh
		p.stale = time.Now().Add(loadShare * time.Since(began))
	}
	return p.load
}

// reading is what is in use and what there is; nothing is known where that is 0.
type reading struct {
	memory, memoryLimit       int64
	processes, processesLimit int64
}

func newPressure() *pressure {
	supervise.ReserveThreads(spareThreads)
	return &pressure{group: limits.Find("/")}
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
		r.memory = max(r.memory-p.group.Cached(), 0)
	}
	pause := pressureEvery
	if r.memory > r.memoryLimit/2 || r.processesLimit > 0 && r.processes > r.processesLimit/2 {
		pause = pressureOften
	}
	p.last, p.next = r, time.Now().Add(pause)
	return r, pause
}

// checkPressure stops the run if it takes what is left, and returns when to look
// again.
func (g *guard) checkPressure() time.Duration {
	r, pause := g.pressure.read()
	memory := r.memoryLimit > 0 && r.memoryLimit-r.memory < r.memoryLimit/memoryLeft
	processes := r.processesLimit > 0 && r.processesLimit-r.processes < r.processesLimit/processesLeft
	if !memory && !processes {
		return pause
	}
	loads := g.pressure.loads(memory)
	own := loads[g.req.ID]
	for id, other := range loads {
		if id != g.req.ID {
			memory = memory && other.Memory <= own.Memory
			processes = processes && len(other.Processes) <= len(own.Processes)
		}
	}
	switch number := int64(len(own.Processes)); {
	case memory && own.Memory > r.memoryLimit/mostShare:
		g.cancel(fmt.Errorf("%w: %d MiB, when %d of %d MiB were in use", ErrMemory, own.Memory>>20, r.memory>>20, r.memoryLimit>>20))
		own.KillLargest() // it would take the rest before it hears
	case processes && number > r.processesLimit/mostShare:
		g.cancel(fmt.Errorf("%w: %d, when there were %d of %d", ErrProcesses, number, r.processes, r.processesLimit))
		own.KillYoungest(leaders)
	}
	return pause
}

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

// since is why a run may have died that began at the earlier count; nil if memory
// and processes were enough.
func (e shortage) since(began shortage) error {
	switch {
	case e.killed > began.killed:
		return fmt.Errorf("%w: the kernel has killed %d processes of the container meanwhile, because its memory was used up", ErrMemory, e.killed-began.killed)
	case e.refused > began.refused:
		return fmt.Errorf("%w: the container reached its limit of processes meanwhile", ErrProcesses)
	}
	return nil
}
