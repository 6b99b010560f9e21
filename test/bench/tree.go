package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tree is the processes of a tree, the root among them.
type tree []process

// process is one of /proc (proc_pid_stat(5)).
type process struct {
	pid int
	// used is what the process has used, and those that it has waited for
	// with what is theirs.
	used share
}

// treeOf returns the processes below root, and root itself. To look only there
// costs little: it is part of what is measured.
func treeOf(root int) (tree, error) {
	p, err := readProcess(root)
	if err != nil {
		return nil, err
	}
	found := tree{p}
	for i := 0; i < len(found); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", found[i].pid))
		if err != nil {
			return nil, err
		}
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for _, field := range strings.Fields(string(text)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", list, err)
				}
				if p, err := readProcess(pid); err == nil { // it may have ended
					found = append(found, p)
				}
			}
		}
	}
	return found, nil
}

// readProcess reads one process.
func readProcess(pid int) (process, error) {
	p := process{pid: pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const ticks = 100 // USER_HZ, which is 100 on every Linux that Go runs on
	for index, sum := range map[int]*float64{7: &p.used.faults, 8: &p.used.faults, 11: &p.used.user, 12: &p.used.system, 13: &p.used.user, 14: &p.used.system} {
		n, err := strconv.ParseFloat(fields[index], 64)
		if err != nil {
			return p, err
		}
		if index > 8 {
			n /= ticks
		}
		*sum += n
	}
	return p, nil
}

// usedBy is what a tree has used so far, with the processes that have
// ended and were waited for.
func usedBy(root int) (share, error) {
	processes, err := treeOf(root)
	var sum share
	for _, p := range processes {
		sum = sum.plus(p.used)
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
