package campaign

import (
	"fmt"
	"maps"
	"syscall"
	"time"
)

// workload is what the client does while faults meet the operator.
type workload struct {
	replicas int
	// elects is true if a single operator elects itself.
	elects bool
	do     func(a *actor)
}

// Workloads returns the names of all workloads.
func Workloads() []string {
	return []string{
		"create", "create-several", "change", "change-back", "change-during-run", "back-during-run", "delete", "delete-during-run",
		"delete-plain", "recreate", "recreate-plain", "failing", "finalizer-failing", "bad-ends", "requeue", "period",
		"dependent", "ten", "daemons", "restart", "deleted-while-down", "elected", "leader-change", "leader-crash",
		"delete-long-run", "recreate-again", "timeout", "forged", "down", "delete-failing", "stolen-token", "finalizer-stuck",
	}
}

// The annotation and the value of a period; the value is the least that the operator accepts.
const (
	periodAnnotation = "ansible.sdk.operatorframework.io/reconcile-period"
	period           = "1s"

	timeoutAnnotation = "rolewright.dev/timeout"
)

// slow is a run that takes long enough for something to happen to it.
func slow() fake { return fake{"sleep": "700ms", "tasks": int64(3)} }

// workloads makes the workloads again for each plan, so that plans share nothing.
func workloads() map[string]workload {
	all := map[string]workload{
		"create":         {do: func(a *actor) { a.create(kindThing, "o-0", "A", nil); a.settled() }},
		"create-several": {do: func(a *actor) { several(a, 3); a.settled() }},
		"change": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", nil)
			a.settled()
			a.update("o-0", "B", nil)
			a.settled()
		}},
		"change-back": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", nil)
			a.settled()
			a.update("o-0", "B", nil)
			a.update("o-0", "A", nil)
			a.settled()
		}},
		"change-during-run": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.update("o-0", "B", slow())
			a.settled()
		}},
		"back-during-run": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", slow())
			a.running("o-0")
			a.update("o-0", "B", slow())
			a.update("o-0", "A", slow())
			a.settled()
		}},
	}
	for _, more := range []map[string]workload{deletions(), failures(), repeats(), cuts(), lives(), elections()} {
		maps.Copy(all, more)
	}
	return all
}

// deletions are the workloads in which an object is deleted.
func deletions() map[string]workload {
	return map[string]workload{
		"delete": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", nil)
			a.settled()
			a.remove("o-0")
			a.gone("o-0")
		}},
		"delete-during-run": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.remove("o-0")
			a.gone("o-0")
		}},
		"delete-plain": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", slow())
			a.running("o-0")
			a.remove("o-0")
			a.gone("o-0")
		}},
		"recreate": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.remove("o-0")
			a.create(kindThing, "o-0", "B", slow())
			a.settled()
		}},
		"recreate-plain": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", slow())
			a.running("o-0")
			a.remove("o-0")
			a.create(kindPlain, "o-0", "B", slow())
			a.settled()
		}},
	}
}

// failures are the workloads in which runs end badly.
func failures() map[string]workload {
	return map[string]workload{
		"failing": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", fake{"outcome": "failed"})
			a.failed("o-0")
			a.update("o-0", "B", nil)
			a.settled()
		}},
		"finalizer-failing": {do: func(a *actor) {
			failing := fake{"outcome": "unreachable"}
			a.create(kindThing, "o-0", "A", fake{"finalizer": map[string]any(failing)})
			a.settled()
			a.remove("o-0")
			a.failed("o-0")
			a.update("o-0", "A", fake{"finalizer": map[string]any{}})
			a.gone("o-0")
		}},
		"finalizer-stuck": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", fake{"finalizer": map[string]any{"outcome": "failed"}})
			a.settled()
			a.remove("o-0")
			a.triedAgain("o-0", 2)
			a.create(kindPlain, "o-1", "A", nil)
			a.triedAgain("o-0", 3)
			a.update("o-0", "A", fake{"finalizer": map[string]any{}})
			a.gone("o-0")
			a.settled()
		}},
		"bad-ends": {do: func(a *actor) {
			for i, outcome := range []string{"unreachable", "no-hosts", "no-stats", "no-rc", "died"} {
				a.create(kindPlain, fmt.Sprintf("o-%d", i), "A", fake{"outcome": outcome})
			}
			for i := range 5 {
				a.failed(fmt.Sprintf("o-%d", i))
			}
			for i := range 5 {
				a.update(fmt.Sprintf("o-%d", i), "B", nil)
			}
			a.settled()
		}},
		"delete-failing": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", fake{"failFirst": int64(50)})
			a.failed("o-0")
			a.remove("o-0")
			a.gone("o-0")
		}},
	}
}

// repeats are the workloads in which a run, time or another object asks for one more.
func repeats() map[string]workload {
	return map[string]workload{
		"requeue": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", fake{"requeueOnce": "1s"})
			a.ran("o-0", "requeue_after")
			a.settled()
		}},
		"period": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", nil)
			a.settled()
			a.annotate("o-0", periodAnnotation, period)
			a.ran("o-0", "period")
			a.noPeriod("o-0")
			a.settled()
		}},
		"dependent": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", nil)
			a.settled()
			a.removeMade("o-0")
			a.ran("o-0", "dependent")
			if a.e.settled(a.ctx) != nil {
				// An operator that was down did not see the deletion: then the period repairs it.
				a.annotate("o-0", periodAnnotation, period)
				a.ran("o-0", "period")
				a.noPeriod("o-0")
			}
			a.settled()
		}},
	}
}

// cuts are the workloads in which runs are cut short.
func cuts() map[string]workload {
	// Longer than any wait: it has to be stopped.
	endless := fake{"sleep": "5m", "tasks": int64(2)}
	return map[string]workload{
		"delete-long-run": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", endless)
			a.create(kindPlain, "o-1", "A", endless.with("ignoreTerm", true))
			a.running("o-0")
			a.running("o-1")
			a.remove("o-0")
			a.remove("o-1")
			a.gone("o-0")
			a.gone("o-1")
		}},
		"recreate-again": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", nil)
			a.create(kindPlain, "o-1", "A", nil)
			a.settled()
			a.remove("o-0")
			a.remove("o-1")
			a.create(kindThing, "o-0", "B", nil)
			a.create(kindPlain, "o-1", "B", nil)
			a.settled()
			a.remove("o-0")
			a.gone("o-0")
		}},
		"timeout": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", endless.with("ignoreTerm", true), timeoutAnnotation, "1s")
			a.failed("o-0")
			a.update("o-0", "B", nil)
			a.settled()
		}},
		"stolen-token": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", fake{"steal": true})
			a.settled()
			sleep(a.ctx, 2*time.Second) // a token may be good for a moment after its run
			a.update("o-0", "B", fake{"steal": true})
			a.settled()
		}},
		"forged": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", fake{"outcome": "no-stats", "forge": true})
			a.create(kindPlain, "o-1", "A", fake{"outcome": "failed", "forge": true})
			a.failed("o-0")
			a.failed("o-1")
			a.update("o-0", "B", nil)
			a.update("o-1", "B", nil)
			a.settled()
		}},
		"down": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", endless.with("daemons", int64(1)))
			a.running("o-0")
			a.down()
			a.nothingRuns()
			a.update("o-0", "B", slow())
			a.up()
			a.settled()
		}},
	}
}

// lives are the workloads with many objects, stubborn runs, and operators that end and start.
func lives() map[string]workload {
	return map[string]workload{
		soakWorkload:     {do: soak},
		failoverWorkload: {replicas: 2, do: failovers},
		"ten": {do: func(a *actor) {
			several(a, 10)
			a.settled()
			for i := range 10 {
				a.update(fmt.Sprintf("o-%d", i), "B", nil)
			}
			a.settled()
		}},
		"daemons": {do: func(a *actor) {
			does := slow().with("daemons", int64(2)).with("ignoreTerm", true)
			a.create(kindThing, "o-0", "A", does)
			a.running("o-0")
			a.update("o-0", "B", does)
			a.settled()
		}},
		"restart": {do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.signal(syscall.SIGTERM)
			a.update("o-0", "B", slow())
			a.settled()
		}},
		"deleted-while-down": {do: func(a *actor) {
			a.create(kindPlain, "o-0", "A", nil)
			a.create(kindThing, "o-1", "A", nil)
			a.settled()
			a.down()
			a.remove("o-0")
			a.remove("o-1")
			a.gone("o-0")
			a.up()
			a.gone("o-1")
			a.create(kindPlain, "o-2", "A", nil)
			a.settled()
		}},
	}
}

// elections are the workloads in which another operator becomes the leader.
func elections() map[string]workload {
	return map[string]workload{
		"elected": {elects: true, do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.settled()
			a.signal(syscall.SIGTERM)
			a.update("o-0", "B", slow())
			a.settled()
		}},
		"leader-change": {replicas: 2, do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.signal(syscall.SIGTERM)
			a.update("o-0", "B", slow())
			a.settled()
		}},
		"leader-crash": {replicas: 2, do: func(a *actor) {
			a.create(kindThing, "o-0", "A", slow())
			a.running("o-0")
			a.signal(syscall.SIGKILL)
			a.update("o-0", "B", slow())
			a.settled()
		}},
	}
}

// several creates n objects, of both kinds.
func several(a *actor, n int) {
	for i := range n {
		kind := kindThing
		if i%2 == 1 {
			kind = kindPlain
		}
		a.create(kind, fmt.Sprintf("o-%d", i), "A", nil)
	}
}
