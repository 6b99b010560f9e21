package campaign

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/rolewright/rolewright/test/faults/history"
	"github.com/rolewright/rolewright/test/procs"
)

// member is a process of a plan's runs.
type member struct {
	pid, ppid int
	state     string
	run       string // from its environment
	age       time.Duration
}

func (m member) String() string {
	return fmt.Sprintf("process %d, run %s, state %s, %s old", m.pid, m.run, m.state, m.age.Round(10*time.Millisecond))
}

// members returns the processes that have a run's cookie and the mark of a plan in their environment.
func members(mark string) []member {
	var found []member
	up := time.Duration(history.Boot())
	for _, p := range processes() {
		environ := procs.Environ(p.PID)
		run := variable(environ, "ROLEWRIGHT_RUN")
		if run == "" || !bytes.Contains(environ, []byte(mark)) {
			continue // without a run it is the operator itself
		}
		if s, err := p.Stat(); err == nil {
			const tick = time.Second / 100 // USER_HZ
			found = append(found, member{pid: p.PID, ppid: s.PPID, run: run, state: s.State, age: up - time.Duration(s.Starttime)*tick})
		}
	}
	return found
}

// descendants returns the processes below a process, with their states.
func descendants(of int) map[int]string {
	states, children := map[int]string{}, map[int][]int{}
	for _, p := range processes() {
		if s, err := p.Stat(); err == nil {
			states[p.PID], children[s.PPID] = s.State, append(children[s.PPID], p.PID)
		}
	}
	found := map[int]string{}
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
		if state == "Z" {
			n++
		}
	}
	return n
}

// processes returns all processes of the machine.
func processes() procfs.Procs {
	all, _ := procfs.AllProcs()
	return all
}

// variable returns the value of an environment variable.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
