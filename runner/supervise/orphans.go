package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settled is how long a child must have been a zombie to count as an orphan:
// code that starts a process waits for it from the start, and would have reaped it.
const settled = time.Second

// ReapOrphans makes this process the parent of the orphans among its descendants,
// as if it were process 1, and reaps the dead ones until ctx ends. Without it, when
// a supervising process is killed, daemons that have cleared their environment could
// no longer be recognized; and process 1 of a container would accumulate zombies.
//
// All other code that starts processes must wait for each of them from its start.
func ReapOrphans(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	look := time.NewTimer(0) // some may have died already
	defer look.Stop()
	pending := true
	dead := map[identity]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-died:
			if !pending {
				look.Reset(settled)
			}
			pending = true
		case <-look.C:
			dead = reapDead(dead)
			if pending = len(dead) > 0; pending {
				look.Reset(settled)
			}
		}
	}
}

// reapDead reaps the zombies among the children that were in before, and returns the others.
func reapDead(before map[identity]bool) map[identity]bool {
	dead := map[identity]bool{}
	self, err := readProcess(os.Getpid())
	if err != nil {
		return before // no file descriptor is left
	}
	for _, child := range children(self.identity) {
		switch {
		case !child.zombie:
		case before[child.identity]:
			_, _ = unix.Wait4(child.pid, nil, unix.WNOHANG, nil)
		default:
			dead[child.identity] = true
		}
	}
	return dead
}

// adopted returns a function that tells whether a living process is an orphan of a
// command that has become a child of this process: whatever the command does, its
// processes are in another session, and have a higher oom_score_adj than this process.
// A supervising process may look like that for a moment; it is recognized by argv. If
// the score could not be raised, no orphan is recognized.
func adopted(argv []string) func(process) bool {
	self, err := readProcess(os.Getpid())
	score, ok := readScore("/proc/self/oom_score_adj")
	cmdline, err2 := os.ReadFile("/proc/self/cmdline")
	if err != nil || err2 != nil || !ok {
		return func(process) bool { return false }
	}
	supervising := []byte(strings.Join(argv, "\x00") + "\x00")
	return func(p process) bool {
		if p.ppid != self.pid || p.session == self.session {
			return false
		}
		dir := "/proc/" + strconv.Itoa(p.pid)
		its, ok := readScore(dir + "/oom_score_adj")
		line, err := os.ReadFile(dir + "/cmdline")
		return ok && err == nil && its > score && !bytes.Equal(line, supervising) && !bytes.Equal(line, cmdline)
	}
}
