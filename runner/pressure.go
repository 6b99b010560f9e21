package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
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
// left, if no other run takes as much, and it takes a quarter of all, or all runs take half of the memory: the kernel
// would kill the whole container, and the operator and other runs with it.
const (
	memoryLeft    = 20
	processesLeft = 10
	mostShare     = 4
)

// Where no limit of processes is seen, this is taken for it: so many for each CPU, and no fewer than the least. In a
// container the limit of its Pod (the kubelet's podPidsLimit) is not seen, and without one a fork bomb takes all CPU.
// A process of Python takes half a MiB or more. No limit is above one process for each perProcess of memory: where memory
// is used up first, all processes wait for the kernel to find some, the operator too.
const (
	tooManyPerCPU  = 512
	tooManyAtLeast = 1024
	perProcess     = 1 << 20
)

func tooMany() int64 { return int64(max(tooManyPerCPU*runtime.GOMAXPROCS(0), tooManyAtLeast)) }

// pressureEvery is how often memory and processes are looked at while there are
// runs, and pressureOften when half of them are in use.
const (
	pressureEvery = 100 * time.Millisecond
	pressureOften = 25 * time.Millisecond
)

// spareThreads are kept for the moment when no process can be started; see
// [supervise.ReserveThreads].
const spareThreads = 16

// pressure looks at how much memory and how many processes are left while there are
// runs, and stops the run that takes most. It is safe for concurrent use.
type pressure struct {
	group limits.Group

	mu sync.Mutex
	// runs are those in progress, with what stops them.
	runs map[string]context.CancelCauseFunc
	// rest ends the goroutine that looks while there are runs.
	rest func()

	// looking is held by that goroutine, which alone uses what follows.
	looking sync.Mutex
	// limits are those of the group, until limitsStale: they hardly ever change.
	limits      limits.Limits
	limitsStale time.Time
	// victim is the run that was stopped last, until settled: its memory takes a
	// while to come back.
	victim  string
	settled time.Time
	// harmless is up to how many processes the container is not frozen for another look: many runs were found to have them.
	harmless int64
	// fewUntil is until when it is not looked again at which run has many processes: none has.
	fewUntil time.Time
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

// begin says that a run is in progress, which stop ends, until end is called.
func (p *pressure) begin(id string, stop context.CancelCauseFunc) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[id] = stop; len(p.runs) == 1 {
		p.rest = p.watch()
	}
	return func() {
		p.mu.Lock()
		rest := func() {}
		if delete(p.runs, id); len(p.runs) == 0 {
			rest = p.rest
		}
		p.mu.Unlock()
		rest()
	}
}

// watch checks again and again until rest is called, which waits for the last check.
func (p *pressure) watch() (rest func()) {
	quit := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		p.looking.Lock() // an earlier one may be about to end
		defer p.looking.Unlock()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-timer.C:
				timer.Reset(p.check())
			}
		}
	})
	return func() {
		close(quit)
		group.Wait()
	}
}

// reading is what is in use and what there is; nothing is known where that is 0.
type reading struct {
	memory, memoryLimit       int64
	processes, processesLimit int64
	// assumed is true if the limit of processes is not one that is seen.
	assumed bool
}

func (r reading) noMemory() bool {
	return r.memoryLimit > 0 && r.memoryLimit-r.memory < r.memoryLimit/memoryLeft
}

// noProcesses is also true where many processes have used the memory up: each takes little of it.
func (r reading) noProcesses() bool {
	return r.processesLimit-r.processes < r.processesLimit/processesLeft || r.noMemory() && r.processes > r.processesLimit/mostShare
}

// ofProcesses says how many processes there are, and how many there may be.
func (r reading) ofProcesses() string {
	text := fmt.Sprintf("%d of %d", r.processes, r.processesLimit)
	if r.assumed {
		text += fmt.Sprintf(", which is taken for the limit (%d for each CPU, at least %d, but no more than one for each MiB of memory)", tooManyPerCPU, tooManyAtLeast)
	}
	return text
}

// pause is how long nothing has to be read again.
func (r reading) pause() time.Duration {
	if r.memory > r.memoryLimit/2 || r.processes > r.processesLimit/2 {
		return pressureOften
	}
	return pressureEvery
}

// read returns the state of now.
func (p *pressure) read() reading {
	if now := time.Now(); now.After(p.limitsStale) {
		p.limits, p.limitsStale = p.group.Limits(), now.Add(limitsHold)
	}
	r := reading{memoryLimit: p.limits.Memory, processesLimit: cmp.Or(p.limits.Processes, tooMany())}
	r.memory, r.processes = p.group.Used()
	if r.memoryLimit == 0 {
		r.memoryLimit, r.memory = p.group.Machine()
	} else if r.memory > r.memoryLimit/2 {
		r.memory -= p.group.Cached()
	}
	if r.memory > r.memoryLimit/2 {
		r.memory -= p.group.Swap()
	}
	if most := r.memoryLimit / perProcess; most > 0 {
		r.processesLimit = min(r.processesLimit, most)
	}
	r.assumed = r.processesLimit != p.limits.Processes
	return r
}

// check stops a run if it takes what is left, and returns when to look again.
func (p *pressure) check() time.Duration {
	now, began := p.read(), time.Now()
	if !now.noProcesses() && began.After(p.fewUntil) {
		p.harmless = 0
	}
	if !now.noMemory() && !now.noProcesses() {
		return now.pause()
	}
	if now.noProcesses() && (began.After(p.fewUntil) || now.processes > p.harmless) && !p.relieve(now, false) {
		p.fewUntil = began.Add(quietTime)
	}
	if now.noMemory() && !p.relieve(now, true) && began.After(p.settled) {
		return quietTime
	}
	return max(loadShare*time.Since(began), pressureOften)
}

// relieve stops the run that takes most of the memory, or else of the processes, if one takes too much.
func (p *pressure) relieve(r reading, memory bool) bool {
	if !memory && r.processes > p.harmless {
		defer supervise.Freeze()()
	}
	stop, load, reason := p.culprit(r, memory)
	if reason == nil {
		if !memory {
			p.harmless = r.processes + r.processes/2
		}
		return false
	}
	stop(reason)
	if memory {
		load.KillLargest() // it would take the rest before it hears
	} else {
		load.KillYoungest(leaders)
	}
	return true
}

// culprit returns what stops the run that takes most, what it takes, and the reason to
// stop it; no reason if none is to be stopped. Until the memory of the last one has come back, that is
// the only one that is stopped for memory.
func (p *pressure) culprit(r reading, memory bool) (stop context.CancelCauseFunc, load supervise.Load, reason error) {
	p.mu.Lock()
	runs := maps.Clone(p.runs)
	p.mu.Unlock()
	loads := supervise.Loads(cookieName, memory, isServer)
	maps.DeleteFunc(loads, func(run string, _ supervise.Load) bool { return runs[run] == nil }) // of another operator
	only := ""
	if memory && time.Now().Before(p.settled) {
		only = p.victim
	}
	victim, reason := r.greediest(loads, memory, only)
	if reason != nil {
		p.victim, p.settled = victim, time.Now().Add(settling)
	}
	return runs[victim], loads[victim], reason
}

// greediest is the run that takes most of the memory, or else of the processes, and the reason to stop it; nil if it takes too
// little to be what the container lacks. Unless empty, only is the one that may be stopped.
func (r reading) greediest(loads map[string]supervise.Load, memory bool, only string) (run string, reason error) {
	var most, all int64
	for id, load := range loads {
		takes := load.Tasks
		if memory {
			takes = load.Memory
		}
		if all += takes; takes > most && (only == "" || id == only) {
			run, most = id, takes
		}
	}
	switch {
	// Several runs may take as much: then it is the largest, if they take more than all else.
	case memory && (most > r.memoryLimit/mostShare || most > 0 && all > r.memoryLimit/2):
		return run, fmt.Errorf("%w: %d MiB, when %d of %d MiB were in use", ErrMemory, most>>20, r.memory>>20, r.memoryLimit>>20)
	case !memory && most > r.processesLimit/mostShare:
		return run, fmt.Errorf("%w: %d, when there were %s", ErrProcesses, most, r.ofProcesses())
	}
	return run, nil
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
