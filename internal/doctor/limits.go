package doctor

import (
	"fmt"
	"strconv"

	"github.com/rolewright/rolewright/internal/limits"
)

// The memory and the number of processes that an operator and its runs need, from
// docs/operations.md: the operator with a thousand objects, the fork server, a
// run with a cold start on the newer line of Ansible, and its supervisor. Each is
// the highest figure, because a forked run may have to be repeated with a cold
// start.
const (
	operatorMiB   = 60
	serverMiB     = 120
	supervisorMiB = 7
	runMiB        = 115 + supervisorMiB
	// A run consists of ansible-runner, ansible-playbook, a worker and a module, with
	// their threads and those of its supervisor. The operator itself has two dozen threads,
	// and the fork server two processes and a supervisor.
	runProcesses      = 20
	operatorProcesses = 44
)

// CheckLimits compares limits with the needs of this many runs at the same time.
func CheckLimits(l limits.Limits, runs int) []Finding {
	memory := Finding{Check: "memory", State: OK, Found: "no limit"}
	if l.Memory > 0 {
		have, need := l.Memory>>20, int64(operatorMiB+serverMiB+runMiB*runs)
		memory.Found = fmt.Sprintf("%d MiB; the operator with %s at a time takes up to %d MiB", have, count(runs), need)
		if l.Whole {
			memory.Found += "; at the limit, the kernel kills the whole container"
		}
		if have < need {
			memory.State = Note
			memory.Remedy = "raise the limit, or lower --max-concurrent-runs; what a role itself needs comes on top"
			if have < operatorMiB+serverMiB+runMiB {
				memory.State = Failed
				memory.Remedy = fmt.Sprintf("raise the limit: one run at a time takes up to %d MiB", operatorMiB+serverMiB+runMiB)
			}
		}
	}
	processes := Finding{Check: "processes", State: OK, Found: "no limit is visible here; a Pod may have one (podPidsLimit of the kubelet)"}
	if l.Processes > 0 {
		need := int64(operatorProcesses + runProcesses*runs)
		processes.Found = fmt.Sprintf("%d; the operator with %s at a time takes up to %d", l.Processes, count(runs), need)
		if l.Processes < need {
			processes.State, processes.Remedy = Note, "raise the limit (pids), or lower --max-concurrent-runs"
			if l.Processes < operatorProcesses+runProcesses {
				processes.State = Failed
			}
		}
	}
	cpus := Finding{Check: "CPUs", State: OK, Found: "no limit"}
	if l.CPUs > 0 {
		cpus.Found = fmt.Sprintf("%.2g, with %s at a time", l.CPUs, count(runs))
		if float64(runs) > 2*l.CPUs {
			cpus.State = Note
			cpus.Remedy = "a run keeps a CPU busy while it does not wait: raise the limit, or lower --max-concurrent-runs"
		}
	}
	return []Finding{memory, processes, cpus}
}

func count(runs int) string {
	if runs == 1 {
		return "1 run"
	}
	return strconv.Itoa(runs) + " runs"
}
