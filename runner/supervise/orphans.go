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

// settled is how long a dead child must have been waited for in vain to be
// no one's: anyone who starts a process waits for it all the time.
const settled = time.Second

// ReapOrphans makes this process the one that the orphans among its descendants
// come to, as if it were process 1, and waits for those that have died until
// ctx ends. Without it, a supervising process that is killed leaves no one to
// know those of its daemons that have cleared their environment; and process 1
// of a container collects zombies.
//
// Anyone who starts processes beside it must wait for each of them from its start.
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

// reapDead waits for the dead children that were dead before, and returns the others.
func reapDead(before map[identity]bool) map[identity]bool {
	dead := map[identity]bool{}
	self, err := readProcess(os.Getpid())
	if err != nil {
		return before // out of file descriptors
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

// adopted returns a function that tells of a living process whether it has come
// to this one as an orphan of a command: whatever the command does, it descends
// from a session of its own, and is more expendable than this process. A
// supervising process, known by argv, may look like that for a moment. Where
// the score cannot be raised, no one is known.
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
