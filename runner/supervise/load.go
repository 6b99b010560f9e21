package supervise

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Load is what the processes of a command take.
type Load struct {
	// Memory is in bytes, what processes share in shares; 0 where it was not asked for.
	Memory int64
	// Processes are those of the command, the oldest first.
	Processes []Process
}

// Process is a process of a command.
type Process struct {
	identity
	memory int64
}

// Loads returns what each command of this machine takes whose cookie has the name,
// by the cookie's value. A process without a cookie counts for its parent's command.
// weigh asks for memory too, which takes milliseconds for each process.
func Loads(name string, weigh bool) map[string]Load {
	all, err := processes(0)
	if err != nil {
		return nil // out of file descriptors
	}
	of := make(map[int]string, len(all)) // the cookie's value by pid
	parents := make(map[int]int, len(all))
	for _, p := range all {
		of[p.pid], parents[p.pid] = cookieOf(p.pid, name), p.ppid
	}
	slices.SortFunc(all, func(a, b process) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	loads := map[string]Load{}
	for _, p := range all {
		value := ""
		for pid, steps := p.pid, 0; value == "" && pid > 1 && steps < len(all); steps++ {
			value, pid = of[pid], parents[pid]
		}
		if value == "" || p.zombie {
			continue
		}
		load, one := loads[value], Process{identity: p.identity}
		if weigh {
			one.memory = weight([]identity{p.identity})
		}
		load.Memory += one.memory
		load.Processes = append(load.Processes, one)
		loads[value] = load
	}
	return loads
}

// cookieOf is the value of a process's cookie with the name; empty without.
func cookieOf(pid int, name string) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return value
		}
	}
	return ""
}

// KillLargest kills the process that takes the most memory.
func (l Load) KillLargest() {
	if len(l.Processes) > 0 {
		largest := slices.MaxFunc(l.Processes, func(a, b Process) int { return cmp.Compare(a.memory, b.memory) })
		_ = sigkill(largest.identity) // it has ended, or the end of the run kills it
	}
}

// KillYoungest kills all processes but the n oldest.
func (l Load) KillYoungest(n int) {
	for _, p := range slices.Backward(l.Processes[min(n, len(l.Processes)):]) {
		_ = sigkill(p.identity) // as above
	}
}
