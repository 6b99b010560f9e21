package campaign

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// failoverWorkload takes the lead away from one of two replicas ten times.
const failoverWorkload = "fail-overs"

// FailoverPlan returns the n-th plan with ten fail-overs.
func FailoverPlan(n int) plan.Plan {
	return plan.Plan{Name: fmt.Sprintf("%s-%d", failoverWorkload, n), Workload: failoverWorkload, Replicas: 2}
}

// HasReference tells whether a plan is compared with its workload without faults. Workloads
// that are long and bring their own faults are not.
func HasReference(p plan.Plan) bool {
	return p.Workload != failoverWorkload && p.Workload != soakWorkload
}

// failovers kills, ends or freezes the leader, or freezes it with all its processes,
// while it has a run in progress.
func failovers(a *actor) {
	busy := fake{"sleep": "3s", "tasks": int64(3), "daemons": int64(1)}
	a.create(kindThing, "o-0", "0", busy)
	slowest := time.Duration(0)
	for i := range 10 {
		a.update("o-0", strconv.Itoa(i+1), busy)
		a.running("o-0")
		before, err := a.e.leader(a.ctx)
		if err != nil {
			a.e.violate("driver", err.Error())
			return
		}
		leader := a.leading()
		began := time.Now()
		thaw := func() {}
		switch i % 4 {
		case 0:
			leader.signal(unix.SIGKILL)
		case 1:
			thaw = leader.freeze()
		case 2:
			leader.signal(unix.SIGTERM)
		case 3:
			leader.signal(unix.SIGSTOP)
			thaw = func() { leader.signal(unix.SIGCONT) }
		}
		err = poll(a.ctx, 2*step, func() error {
			after, err := a.e.leader(a.ctx)
			if err == nil && (after == "" || after == before) {
				err = errors.New("no other replica leads")
			}
			return err
		})
		if err != nil {
			a.e.violate("I8", fmt.Sprintf("fail-over %d: %v", i, err))
		}
		a.settled()
		slowest = max(slowest, time.Since(began))
		sleep(a.ctx, frozen-time.Since(began))
		thaw()
		a.settled()
	}
	a.e.report = fmt.Sprintf("10 fail-overs; from the fault to the end of the next run %s at most", slowest.Round(100*time.Millisecond))
}

// freeze stops the operator and all of its processes, like a machine that
// stands still. They go on when thaw is called.
func (r *replica) freeze() (thaw func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return func() {}
	}
	pid := r.cmd.Process.Pid
	pids := []int{pid}
	_ = unix.Kill(pid, unix.SIGSTOP)
	for stopped := map[int]bool{}; ; {
		again := false
		for child := range descendants(pid) {
			if !stopped[child] {
				stopped[child], again = true, true
				pids = append(pids, child)
				_ = unix.Kill(child, unix.SIGSTOP)
			}
		}
		if !again { // no process was forked in the meantime
			break
		}
	}
	r.e.driver.add(map[string]any{"event": "freeze", "replica": r.name, "pid": pid})
	return func() {
		r.e.driver.add(map[string]any{"event": "thaw", "replica": r.name, "pid": pid})
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed
		}
	}
}
