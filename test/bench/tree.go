package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tree is the processes of a tree, the root among them.
type tree []process

// process is one of /proc (proc_pid_stat(5)).
type process struct {
	pid, parent int
	// cpu is the CPU time of the process, and of those that it has waited for
	// with theirs.
	cpu time.Duration
}

// treeOf returns the processes below root, and root itself.
func treeOf(root int) (tree, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]process{}
	var found tree
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		p := process{}
		if p.pid, err = strconv.Atoi(filepath.Base(filepath.Dir(file))); err != nil {
			return nil, err
		}
		if p.parent, err = strconv.Atoi(fields[1]); err != nil {
			return nil, err
		}
		const ticks = 100                     // USER_HZ, which is 100 on every Linux that Go runs on
		for _, field := range fields[11:15] { // utime, stime, cutime, cstime
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return nil, err
			}
			p.cpu += time.Duration(n) * time.Second / ticks
		}
		if p.pid == root {
			found = append(found, p)
		}
		children[p.parent] = append(children[p.parent], p)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found, nil
}

// cpuOf is the CPU time of a tree so far, with that of the processes that have
// ended and were waited for.
func cpuOf(root int) (time.Duration, error) {
	processes, err := treeOf(root)
	var sum time.Duration
	for _, p := range processes {
		sum += p.cpu
	}
	return sum, err
}

// footprint is the memory of processes in MiB: what they have to themselves, and
// that with their shares of what they share.
type footprint struct{ private, proportional float64 }

func (f footprint) less(g footprint) footprint {
	return footprint{f.private - g.private, f.proportional - g.proportional}
}

// footprintOf is the memory of a tree without its root (proc_pid_smaps(5)).
func footprintOf(root int) (footprint, error) {
	var sum footprint
	processes, err := treeOf(root)
	if err != nil {
		return sum, err
	}
	for _, p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
		if p.pid == root || err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue
			}
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				continue // the line of the addresses
			}
			switch fields[0] {
			case "Pss:":
				sum.proportional += kib / 1024
			case "Private_Clean:", "Private_Dirty:":
				sum.private += kib / 1024
			}
		}
	}
	return sum, nil
}
