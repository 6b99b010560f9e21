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

// Load is what the processes of a command use.
type Load struct {
	// Memory is in bytes, with shared memory divided among its users; 0 if it was not asked for.
	Memory int64
	// Tasks counts what a limit of processes counts: threads, and zombies.
	Tasks int64
	// Processes are the living processes, the oldest first.
	Processes []Process
}

// Process is a process of a command.
type Process struct {
	identity
	memory int64
}

// Loads returns the loads of all commands on this machine whose cookies have the name,
// by the value of the cookie. A process belongs to the command of its parent, whatever
// its own environment says; a child of a supervising process belongs to the command that
// this process supervises. ignore tells which values belong to no command. With weigh,
// memory is measured, too, which takes milliseconds for each process.
func Loads(name string, weigh bool, ignore func(value string) bool) map[string]Load {
	all, err := processes(0)
	if err != nil {
		return nil // no file descriptor is left
	}
	slices.SortFunc(all, func(a, b process) int { // parents before their children
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	self, parents := os.Getpid(), make(map[int]int, len(all))
	for _, p := range all {
		parents[p.pid] = p.ppid
	}
	of := make(map[int]string, len(all))       // the command of each pid
	supervised := make(map[int]string)         // the command of each supervising process
	ignored := make(map[int]bool)              // fork servers, whose children belong to many commands
	orphans := make([]process, 0, len(all))    // of no known command
	loads := make(map[string]Load, len(all)/4) // a run has several processes
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
			value = supervised[p.ppid] // its first child is the command; orphans come later, with any environment
		}
		if value == "" {
			value = cookieOf(p.pid, name)
			if ignored[p.pid] = value != "" && ignore(value); ignored[p.pid] {
				continue
			}
			if value != "" && !ignored[p.ppid] && parents[p.ppid] == self {
				supervised[p.ppid] = value // only for our own children, not for init and the like
			}
		}
		if value == "" {
			orphans = append(orphans, p)
			continue
		}
		add(p, value)
	}
	for _, p := range orphans { // processes with a cleared environment, and their descendants
		if value := cmp.Or(supervised[p.ppid], of[p.ppid]); value != "" {
			add(p, value)
		}
	}
	return loads
}

// ResidentMemory returns the resident memory of a process of any user, and the part of
// it that is mapped from files, in bytes; 0 if they are not known.
func ResidentMemory(pid int) (all, files int64) {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm") // an error means that it has ended
	var size int64
	if _, err := fmt.Sscan(string(data), &size, &all, &files); err != nil {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	return all * page, files * page
}

// unsharedSize is the memory of a process that is not mapped from files. More is not
// known of a process of another user.
func unsharedSize(pid int) int64 {
	all, files := ResidentMemory(pid)
	return max(all-files, 0)
}

// cookieOf returns the value of a process's cookie with the name; empty if it has none.
func cookieOf(pid int, name string) string {
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // an error means that it has ended, or is another user's
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return value
		}
	}
	return ""
}

// KillLargest kills the process that uses the most memory.
func (l Load) KillLargest() {
	if len(l.Processes) > 0 {
		largest := slices.MaxFunc(l.Processes, func(a, b Process) int { return cmp.Compare(a.memory, b.memory) })
		_ = sigkill(largest.identity) // if it fails, the process has ended, or is killed at the end of the run
	}
}

// KillYoungest kills all processes but the n oldest.
func (l Load) KillYoungest(n int) {
	for _, p := range slices.Backward(l.Processes[min(n, len(l.Processes)):]) {
		_ = sigkill(p.identity) // as above
	}
}
