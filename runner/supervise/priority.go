package supervise

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// moreExpendable is what a command's oom_score_adj has more than that of
	// the process that starts it: half of the memory there is, so that the
	// kernel takes the command and not the operator, which is small.
	moreExpendable = 500
	// maxScore is the largest oom_score_adj (proc(5)).
	maxScore = 1000
	// lessUrgentOutside is what a command is nicer: enough for the operator to come
	// first where both want the processor, little enough to be nothing else.
	lessUrgentOutside = 2
	// lessUrgentInside is the same in a container, which is nicer to no other one: the operator gets nine times the share
	// of a process of a fork bomb, and stops it in time.
	lessUrgentInside = 10
)

// lessUrgent is what the commands of this operator are nicer than it is.
func lessUrgent() int {
	if isContainer() {
		return lessUrgentInside
	}
	return lessUrgentOutside
}

// expendable raises the oom_score_adj of this process until restore is called:
// a child that is started meanwhile has it from its beginning, as has
// everything that descends from it, whatever it does with its environment.
// Where that is not possible, nothing happens.
func expendable() (restore func()) {
	const own = "/proc/self/oom_score_adj"
	score, ok := readScore(own)
	raised := strconv.Itoa(min(score+moreExpendable, maxScore))
	if !ok || os.WriteFile(own, []byte(raised), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(own, []byte(strconv.Itoa(score)), 0) }
}

// readScore reads an oom_score_adj.
func readScore(path string) (score int, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	score, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return score, err == nil
}

// yielding gives a process that has just started a lower priority than this one
// has: by so much.
func yielding(pid, nicer int) {
	const kernelBias = 20 // the system call returns 20 less the niceness
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, pid, kernelBias-own+nicer)
	}
}
