package supervise

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// moreExpendable is how much higher a command's oom_score_adj is than that of
	// the process that starts it. It weighs as much as half of all memory, so that
	// the kernel kills the command and not the operator, which is small.
	moreExpendable = 500
	// maxScore is the largest oom_score_adj (proc(5)).
	maxScore = 1000
	// lessUrgentOutside is how much higher a command's niceness is than the operator's:
	// enough for the operator to come first when both want the processor, and no more.
	lessUrgentOutside = 2
	// lessUrgentInside is the same in a container, where niceness has no effect on other containers: the operator gets nine
	// times the share of a process of a fork bomb, and stops the bomb in time.
	lessUrgentInside = 10
)

// lessUrgent returns how much higher the niceness of this operator's commands is than its own.
func lessUrgent() int {
	if isContainer() {
		return lessUrgentInside
	}
	return lessUrgentOutside
}

// expendable raises the oom_score_adj of this process until restore is called:
// a child that is started meanwhile has the higher score from its beginning, and
// so do all its descendants, whatever they do with their environment. If the score
// cannot be raised, nothing happens.
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

// yielding sets the niceness of a process that has just started to that of this
// process plus nicer.
func yielding(pid, nicer int) {
	const kernelBias = 20 // the system call returns 20 minus the niceness
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, pid, kernelBias-own+nicer)
	}
}
