// Package limits reads the limits and the usage of this process's control group,
// from cgroups version 2 or else version 1 (cgroups(7)).
package limits

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits are the limits of a control group, memory in bytes; 0 means no limit.
type Limits struct {
	Memory    int64
	Processes int64
	CPUs      float64
	// Whole is true if the kernel kills all processes of the group when its memory is
	// exhausted: memory.oom.group, which kubelets set for containers.
	Whole bool
}

// Group is the control group of this process.
type Group struct {
	root string
	dirs map[string]string // by controller; "" is version 2
}

// Find finds the control group below root, which is "/" except in tests.
func Find(root string) Group {
	g := Group{root: root, dirs: map[string]string{}}
	data, err := os.ReadFile(filepath.Join(root, "proc", "self", "cgroup"))
	if err != nil {
		return g
	}
	for line := range strings.Lines(string(data)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				g.dirs[controller] = parts[2]
			}
		}
	}
	return g
}

// read returns the text of a file of the group; empty if there is none.
func (g Group) read(controller, name string) string {
	base := filepath.Join(g.root, "sys", "fs", "cgroup", controller)
	// In a container the group is the root of the mount, whatever its name
	// outside.
	for _, dir := range []string{filepath.Join(base, g.dirs[controller]), base} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}

// first returns the first valid number; 0 if there is none.
func first(texts ...string) int64 {
	for _, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil && n > 0 && n < 1<<60 { // version 1 represents no limit by a large number
			return n
		}
	}
	return 0
}

// Limits reads the limits of the group.
func (g Group) Limits() Limits {
	l := Limits{
		Memory:    first(g.read("", "memory.max"), g.read("memory", "memory.limit_in_bytes")),
		Processes: first(g.read("", "pids.max"), g.read("pids", "pids.max")),
		Whole:     g.read("", "memory.oom.group") == "1",
	}
	quota, period, _ := strings.Cut(g.read("", "cpu.max"), " ")
	if quota == "" {
		quota, period = g.read("cpu", "cpu.cfs_quota_us"), g.read("cpu", "cpu.cfs_period_us")
	}
	if q, p := first(quota), first(period); q > 0 && p > 0 {
		l.CPUs = float64(q) / float64(p)
	}
	return l
}

// Used reads the memory in bytes, and the number of processes, that the group uses now; 0 means
// not known. The memory includes what the kernel can reclaim at any time, see [Group.Cached].
func (g Group) Used() (memory, processes int64) {
	return first(g.read("", "memory.current"), g.read("memory", "memory.usage_in_bytes")),
		first(g.read("", "pids.current"), g.read("pids", "pids.current"))
}

// Taken reads how much memory is used, without what the kernel can reclaim, in
// bytes; 0 means not known.
func (g Group) Taken() int64 {
	used, _ := g.Used()
	return max(used-g.Cached(), 0)
}

// Cached reads how much of the used memory the kernel can reclaim if needed,
// mostly contents of files, in bytes.
func (g Group) Cached() int64 {
	if stat := g.read("", "memory.stat"); stat != "" {
		return field(stat, "inactive_file ") + field(stat, "active_file ") + field(stat, "slab_reclaimable ")
	}
	stat := g.read("memory", "memory.stat")
	return field(stat, "total_inactive_file ") + field(stat, "total_active_file ")
}

// Exhausted counts the processes of the group that the kernel has killed because
// memory was exhausted, and those that could not be started because there were too many.
func (g Group) Exhausted() (killed, refused int64) {
	killed = max(field(g.read("", "memory.events"), "oom_kill "), field(g.read("memory", "memory.oom_control"), "oom_kill "))
	return killed, max(field(g.read("", "pids.events"), "max "), field(g.read("pids", "pids.events"), "max "))
}

// Machine reads the memory of the machine, and how much of it is in use, in bytes.
func (g Group) Machine() (total, used int64) {
	total = g.meminfo("MemTotal:")
	return total, max(total-g.meminfo("MemAvailable:"), 0)
}

// Swap reads how much swap the group may still use, in bytes.
func (g Group) Swap() int64 {
	free := g.meminfo("SwapFree:")
	if limit := g.read("", "memory.swap.max"); limit == "0" {
		return 0
	} else if n := first(limit); n > 0 {
		return min(free, max(n-first(g.read("", "memory.swap.current")), 0))
	}
	return free
}

// meminfo returns a field of /proc/meminfo in bytes; 0 if it is not known.
func (g Group) meminfo(name string) int64 {
	const kibi = 1 << 10
	data, _ := os.ReadFile(filepath.Join(g.root, "proc", "meminfo"))
	return field(string(data), name) * kibi
}

// field returns the number after a name at the beginning of a line; 0 if there is none.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return first(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		}
	}
	return 0
}
