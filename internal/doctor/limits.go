package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The memory and processes that an operator and its runs need, from
// docs/operations.md: the operator with a thousand objects, the fork server, a
// run with a cold start on the newer line of Ansible, and its supervisor. Each is
// the highest figure, because a forked run may have to be repeated with a cold
// start.
const (
	operatorMiB   = 60
	serverMiB     = 120
	supervisorMiB = 7
	runMiB        = 115 + supervisorMiB
	// A run is ansible-runner, ansible-playbook, a worker and a module, and the
	// threads of them; the operator itself has a dozen threads.
	runProcesses      = 12
	operatorProcesses = 24
)

// Limits are the limits of a control group; 0 is no limit.
type Limits struct {
	Memory    int64
	Processes int64
	CPUs      float64
}

// ReadLimits reads the limits of this process below root, which is "/" except in
// tests: those of cgroups version 2, else of version 1.
func ReadLimits(root string) Limits {
	groups := map[string]string{} // by controller; "" is the second version
	data, err := os.ReadFile(filepath.Join(root, "proc", "self", "cgroup"))
	if err != nil {
		return Limits{}
	}
	for line := range strings.Lines(string(data)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				groups[controller] = parts[2]
			}
		}
	}
	read := func(controller, name string) string {
		base := filepath.Join(root, "sys", "fs", "cgroup", controller)
		// In a container the group is the root of the mount, whatever its name
		// outside.
		for _, dir := range []string{filepath.Join(base, groups[controller]), base} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
		return ""
	}
	first := func(texts ...string) int64 {
		for _, text := range texts {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil && n > 0 && n < 1<<60 { // the first version's word for no limit is a large number
				return n
			}
		}
		return 0
	}
	l := Limits{
		Memory:    first(read("", "memory.max"), read("memory", "memory.limit_in_bytes")),
		Processes: first(read("", "pids.max"), read("pids", "pids.max")),
	}
	quota, period, _ := strings.Cut(read("", "cpu.max"), " ")
	if quota == "" {
		quota, period = read("cpu", "cpu.cfs_quota_us"), read("cpu", "cpu.cfs_period_us")
	}
	if q, p := first(quota), first(period); q > 0 && p > 0 {
		l.CPUs = float64(q) / float64(p)
	}
	return l
}

// CheckLimits compares limits with the needs of so many runs at the same time.
func CheckLimits(l Limits, runs int) []Finding {
	memory := Finding{Check: "memory", State: OK, Found: "no limit"}
	if l.Memory > 0 {
		have, need := l.Memory>>20, int64(operatorMiB+serverMiB+runMiB*runs)
		memory.Found = fmt.Sprintf("%d MiB; the operator with %s at a time takes about %d MiB", have, count(runs), need)
		if have < need {
			memory.State = Note
			memory.Remedy = "raise the limit, or lower --max-concurrent-reconciles; what a role itself needs comes on top"
			if have < operatorMiB+serverMiB+runMiB {
				memory.State = Failed
				memory.Remedy = fmt.Sprintf("raise the limit: one run at a time takes about %d MiB", operatorMiB+serverMiB+runMiB)
			}
		}
	}
	processes := Finding{Check: "processes", State: OK, Found: "no limit"}
	if l.Processes > 0 {
		need := int64(operatorProcesses + runProcesses*runs)
		processes.Found = fmt.Sprintf("%d; the operator with %s at a time takes about %d", l.Processes, count(runs), need)
		if l.Processes < need {
			processes.State, processes.Remedy = Note, "raise the limit (pids), or lower --max-concurrent-reconciles"
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
			cpus.Remedy = "a run keeps a CPU busy while it does not wait: raise the limit, or lower --max-concurrent-reconciles"
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
