package supervise

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Load is what the processes of a command take.
type Load struct {
	// Memory is in bytes, what processes share in shares; 0 where it was not asked for.
	Memory int64
	// Tasks counts what a limit of processes counts: threads, and the dead that no one
	// has waited for.
	Tasks int64
	// Processes are those that live, the oldest first.
	Processes []Process
}

// Process is a process of a command.
type Process struct {
	identity
	memory int64
}

// Loads returns what each command of this machine takes whose cookie has the name,
// by the cookie's value. A process counts for the command of its parent, whatever its
// own environment says; one whose parent is the supervising process counts for that
// one's command. ignore names cookies that are no command's. weigh asks for memory
// too, which takes milliseconds for each process.
func Loads(name string, weigh bool, ignore func(value string) bool) map[string]Load {
	all, err := processes(0)
	if err != nil {
		return nil // out of file descriptors
	}
	slices.SortFunc(all, func(a, b process) int { // parents before their children
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	self, parents := os.Getpid(), make(map[int]int, len(all))
	for _, p := range all {
		parents[p.pid] = p.ppid
	}
	of := make(map[int]string, len(all))       // the command by pid
	supervised := make(map[int]string)         // that of a supervising process's children
	ignored := make(map[int]bool)              // fork servers, whose children are of many commands
	orphans := make([]process, 0, len(all))    // of no command, as far as is known
	loads := make(map[string]Load, len(all)/4) // a run has some processes
	add := func(p process, value string) {
		load := loads[value]
		load.Tasks += max(int64(p.threads), 1)
		if !p.zombie {
			one := Process{identity: p.identity}
			if weigh {
				one.memory = cmp.Or(weight([]identity{p.identity}), unsharedSize(p.pid))
			}
			load.Memory += one.memory
			load.Processes = append(load.Processes, one)
		}
		of[p.pid], loads[value] = value, load
	}
	for _, p := range all {
		value := of[p.ppid]
		if value == "" && parents[p.ppid] == self {
			value = supervised[p.ppid] // whose first child is the command; orphans come later, and say what they like
		}
		if value == "" {
			value = cookieOf(p.pid, name)
			if ignored[p.pid] = value != "" && ignore(value); ignored[p.pid] {
				continue
			}
			if value != "" && !ignored[p.ppid] && parents[p.ppid] == self {
				supervised[p.ppid] = value // and no stranger's, such as init's
			}
		}
		if value == "" {
			orphans = append(orphans, p)
			continue
		}
		add(p, value)
	}
	for _, p := range orphans { // with a cleared environment, and what descends from them
		if value := cmp.Or(supervised[p.ppid], of[p.ppid]); value != "" {
			add(p, value)
		}
	}
	return loads
}

// ResidentMemory reads the resident memory of a process of any user, and what of it
// the process shares with files, in bytes; 0 if that is not known.
func ResidentMemory(pid int) (all, files int64) {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm") // it has ended
	var size int64
	if _, err := fmt.Sscan(string(data), &size, &all, &files); err != nil {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	return all * page, files * page
}

// unsharedSize is the memory of a process that it shares with no file: what is known
// of one of another user.
func unsharedSize(pid int) int64 {
	all, files := ResidentMemory(pid)
	return max(all-files, 0)
}

// cookieOf is the value of a process's cookie with the name; empty without.
func cookieOf(pid int, name string) string {
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // it has ended, or is another user's
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
