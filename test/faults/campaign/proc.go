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
	entries, _ := filepath.Glob("/proc/[0-9]*")
	up := uptime()
	for _, dir := range entries {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		const cookie = "ROLEWRIGHT_RUN="
		at := bytes.Index(environ, []byte("\x00"+cookie))
		if at < 0 {
			continue // the operator itself
		}
		run, _, _ := bytes.Cut(environ[at+1+len(cookie):], []byte{0})
		pid, _ := strconv.Atoi(filepath.Base(dir))
		m := member{pid: pid, run: string(run)}
		if fields := statFields(pid); len(fields) > 19 {
			m.state = fields[0][0]
			m.ppid, _ = strconv.Atoi(fields[1])
			ticks, _ := strconv.ParseFloat(fields[19], 64)
			m.age = up - time.Duration(ticks/100*float64(time.Second))
			found = append(found, m)
		}
	}
	return found
}

// zombies are the dead children of a process that no one has waited for.
func zombies(parent int) int {
	n := 0
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		fields := statFields(pid)
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			n++
		}
	}
	return n
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
