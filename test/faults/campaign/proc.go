package campaign

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// member is a process of a plan's runs.
type member struct {
	pid, ppid int
	state     byte
	run       string // by its environment
	age       time.Duration
}

func (m member) String() string {
	return fmt.Sprintf("process %d, run %s, state %c, %s old", m.pid, m.run, m.state, m.age.Round(10*time.Millisecond))
}

// members are the processes that carry a run's cookie and the mark of a plan.
func members(mark string) []member {
	var found []member
	up := uptime()
	for _, pid := range processes() {
		environ := environOf(pid)
		run := variable(environ, "ROLEWRIGHT_RUN")
		if run == "" || !bytes.Contains(environ, []byte(mark)) {
			continue // without a run it is the operator itself
		}
		if fields := statFields(pid); len(fields) > 19 {
			m := member{pid: pid, run: run, state: fields[0][0]}
			m.ppid, _ = strconv.Atoi(fields[1])
			ticks, _ := strconv.ParseFloat(fields[19], 64)
			m.age = up - time.Duration(ticks/100*float64(time.Second))
			found = append(found, m)
		}
	}
	return found
}

// descendants are the processes below a process, with their states.
func descendants(of int) map[int]byte {
	states, children := map[int]byte{}, map[int][]int{}
	for _, pid := range processes() {
		if fields := statFields(pid); len(fields) > 1 {
			ppid, _ := strconv.Atoi(fields[1])
			states[pid], children[ppid] = fields[0][0], append(children[ppid], pid)
		}
	}
	found := map[int]byte{}
	for next := children[of]; len(next) > 0; next = next[1:] {
		if _, seen := found[next[0]]; !seen {
			found[next[0]] = states[next[0]]
			next = append(next, children[next[0]]...)
		}
	}
	return found
}

// zombies counts the dead descendants of a process that their parents have not
// waited for.
func zombies(of int) int {
	n := 0
	for _, state := range descendants(of) {
		if state == 'Z' {
			n++
		}
	}
	return n
}

// processes are all of the machine.
func processes() []int {
	var pids []int
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		pids = append(pids, pid)
	}
	return pids
}

// environOf is the environment of a process; empty if it has ended.
func environOf(pid int) []byte {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return environ
}

// variable is the value of a variable.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// processState is the letter of proc_pid_stat(5); 0 if there is no such process.
func processState(pid int) byte {
	fields := statFields(pid)
	if len(fields) == 0 {
		return 0
	}
	return fields[0][0]
}

// statFields are the fields of proc_pid_stat(5) from the state on.
func statFields(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

func uptime() time.Duration {
	text, _ := os.ReadFile("/proc/uptime")
	first, _, _ := strings.Cut(string(text), " ")
	s, _ := strconv.ParseFloat(first, 64)
	return time.Duration(s * float64(time.Second))
}
