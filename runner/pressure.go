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

// ErrMemory is wrapped by the error of a run that was stopped because hardly any
// memory was left, and the run used the most.
var ErrMemory = errors.New("the run took the memory that was left")

// ErrMemoryShared is an [ErrMemory] of a run that used no more than a quarter of the memory, when all runs together
// used more than half: it says nothing about the run itself.
var ErrMemoryShared = fmt.Errorf("%w, together with other runs", ErrMemory)

// ErrProcesses is wrapped by the error of a run that was stopped because hardly any
// more processes could be started, and the run had the most.
var ErrProcesses = errors.New("the run started too many processes")

// When less than a twentieth of the memory, or a tenth of the processes, is left, the run that uses the most is stopped
// if it uses more than a quarter, or if all runs together use more than half of the memory. Otherwise the kernel would
// kill the whole container, with the operator and all other runs.
const (
	memoryLeft    = 20
	processesLeft = 10
	mostShare     = 4
)

// If no limit of processes is visible, tooManyPerCPU for each CPU is assumed, but at least tooManyAtLeast. A container
// does not see the limit of its Pod (the kubelet's podPidsLimit), and without a limit a fork bomb takes all CPU. No limit
// is higher than one process per perProcess bytes of memory: a Python process takes half a MiB or more, and once memory
// is used up, all processes, including the operator, wait for the kernel to find some.
const (
	tooManyPerCPU  = 512
	tooManyAtLeast = 1024
	perProcess     = 1 << 20
)

func tooMany() int64 { return int64(max(tooManyPerCPU*runtime.GOMAXPROCS(0), tooManyAtLeast)) }

// pressureEvery is the time between two checks of memory and processes while there
// are runs; pressureOften is that time when more than half of either is in use.
const (
	pressureEvery = 100 * time.Millisecond
	pressureOften = 25 * time.Millisecond
)

// spareThreads is the number of threads reserved for the moment when none can be
// started; see [supervise.ReserveThreads].
const spareThreads = 16

// pressure checks how much memory and how many processes are left while there are
// runs, and stops the run that uses the most. It is safe for concurrent use.
type pressure struct {
	group limits.Group

	mu sync.Mutex
	// runs maps the IDs of the runs in progress to the functions that stop them.
	runs map[string]context.CancelCauseFunc
	// rest ends the goroutine that checks while there are runs.
	rest func()

	// looking is held by that goroutine, which alone uses the fields below.
	looking sync.Mutex
	// limits are the limits of the group, read again after limitsStale: they hardly ever change.
	limits      limits.Limits
	limitsStale time.Time
	// victim is the run that was stopped last. Until settled, no other run is stopped
	// for its memory: the victim's memory takes a while to come back.
	victim  string
	settled time.Time
	// harmless is a number of processes up to which the container is not frozen for another look: the last look found
	// no run with too many of them.
	harmless int64
	// fewUntil is when the processes of each run are counted again, unless there are more than harmless before.
	fewUntil time.Time
}

const (
	// limitsHold is how long limits are kept before they are read again.
	limitsHold = 10 * time.Second
	// settling is how long after a run no other run is stopped for its memory.
	settling = 3 * time.Second
	// loadShare is how many times as long as a check the pause after it is: there may be
	// many processes to look at. If no run uses much, the next look is after quietTime.
	loadShare = 5
	quietTime = 2 * time.Second
)

func newPressure() *pressure {
	supervise.ReserveThreads(spareThreads)
	return &pressure{group: limits.Find("/"), runs: map[string]context.CancelCauseFunc{}}
}

// begin adds a run, which stop ends. end has to be called when the run has ended.
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

// watch checks repeatedly until rest is called, which waits for the last check.
func (p *pressure) watch() (rest func()) {
	quit := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		p.looking.Lock() // an earlier goroutine may be about to end
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

// reading is what is in use, and the limits; a limit of memory of 0 is not known.
type reading struct {
	memory, memoryLimit       int64
	processes, processesLimit int64
	// assumed is true if the limit of processes was not read from the system.
	assumed bool
}

func (r reading) noMemory() bool {
	return r.memoryLimit > 0 && r.memoryLimit-r.memory < r.memoryLimit/memoryLeft
}

// noProcesses is also true if the memory is used up by many processes that use little each.
func (r reading) noProcesses() bool {
	return r.processesLimit-r.processes < r.processesLimit/processesLeft || r.noMemory() && r.processes > r.processesLimit/mostShare
}

// ofProcesses says, for messages, how many processes there are and how many there may be.
func (r reading) ofProcesses() string {
	text := fmt.Sprintf("%d of %d", r.processes, r.processesLimit)
	if r.assumed {
		text += fmt.Sprintf(", which is taken for the limit (%d for each CPU, at least %d, but no more than one for each MiB of memory)", tooManyPerCPU, tooManyAtLeast)
	}
	return text
}

// pause is how long to wait before the next reading.
func (r reading) pause() time.Duration {
	if r.memory > r.memoryLimit/2 || r.processes > r.processesLimit/2 {
		return pressureOften
	}
	return pressureEvery
}

// read returns the current reading.
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

// check stops a run if it uses too much, and returns how long to wait before the next check.
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

// relieve stops the run that uses the most memory, or processes if memory is false, if it uses too much.
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
		load.KillLargest() // it would use up the rest before the stop reaches it
	} else {
		load.KillYoungest(leaders)
	}
	return true
}

// culprit returns the function that stops the run that uses the most, what the run uses, and the reason to stop it;
// the reason is nil if no run is to be stopped. Until the last victim's memory has come back, only that run may be
// stopped for memory.
func (p *pressure) culprit(r reading, memory bool) (stop context.CancelCauseFunc, load supervise.Load, reason error) {
	p.mu.Lock()
	runs := maps.Clone(p.runs)
	p.mu.Unlock()
	loads := supervise.Loads(cookieName, memory, isServer)
	maps.DeleteFunc(loads, func(run string, _ supervise.Load) bool { return runs[run] == nil }) // a run of another operator
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

// greediest returns the run that uses the most memory, or processes if memory is false, and the reason to stop it; the
// reason is nil if the run does not use too much. If only is not empty, no other run is considered.
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
	tooMuch := ErrMemory
	if most <= r.memoryLimit/mostShare {
		tooMuch = ErrMemoryShared
	}
	switch {
	// Several runs may share the blame: the largest is stopped if all runs use more than everything else.
	case memory && (most > r.memoryLimit/mostShare || most > 0 && all > r.memoryLimit/2):
		return run, fmt.Errorf("%w: %d MiB, when %d of %d MiB were in use", tooMuch, most>>20, r.memory>>20, r.memoryLimit>>20)
	case !memory && most > r.processesLimit/mostShare:
		return run, fmt.Errorf("%w: %d, when there were %s", ErrProcesses, most, r.ofProcesses())
	}
	return run, nil
}

// isServer tells whether the value of a cookie belongs to a fork server.
func isServer(value string) bool { return strings.HasPrefix(value, warm.ServerPrefix) }

// leaders is the number of a run's first processes, which are spared because they report
// how the run ends: the run head of a forked run, and ansible-runner.
const leaders = 2

// shortage counts the processes of the control group that the kernel has killed
// because the memory was used up, and those that could not be started.
type shortage struct{ killed, refused int64 }

func (p *pressure) shortage() shortage {
	killed, refused := p.group.Exhausted()
	return shortage{killed, refused}
}

// since says which shortage may have killed a run that began at the count began; it is
// empty if memory and processes sufficed.
func (e shortage) since(began shortage) string {
	switch {
	case e.killed > began.killed:
		return fmt.Sprintf("since the run began, the kernel has killed %d processes of the container, because its memory was used up", e.killed-began.killed)
	case e.refused > began.refused:
		return "since the run began, the container reached its limit of processes"
	}
	return ""
}
