package supervise

import (
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// firstPIDs is the PID namespace of the machine (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const firstPIDs = "pid:[4026531836]"

// isContainer reports whether this process is the program of a container that has processes of its own: its first one, or the
// child of one that is there for that.
func isContainer() bool {
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || pids == firstPIDs || os.Getpid() != 1 && os.Getppid() != 1 {
		return false // what kubectl exec starts has no parent here
	}
	// Process 1 may be that of a whole system, too. These only start the program of a container.
	name, err := os.ReadFile("/proc/1/comm")
	return os.Getpid() == 1 || err == nil && slices.Contains([]string{"tini", "docker-init", "dumb-init", "catatonit"}, strings.TrimSpace(string(name)))
}

// freezeLimit is how long Freeze stops the container at most: a supervising process that hears nothing of the operator for the
// time of silence ends its run.
const freezeLimit = 2 * time.Second

// Freeze stops all other processes of the container until thaw is called, or for two seconds. The kernel does so at once, so
// that a fork bomb, which takes all CPU and is faster than what looks at its processes one by one, stands still. Outside of a
// container nothing happens.
func Freeze() (thaw func()) {
	if !isContainer() {
		return func() {}
	}
	// A process that this one is about to start must not be stopped before its execve: until then its parent's thread cannot be
	// interrupted, and the next garbage collection would wait for it, and it for the end of the freeze.
	syscall.ForkLock.RLock()
	err := unix.Kill(-1, unix.SIGSTOP)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return func() {}
	}
	goOn := sync.OnceFunc(func() { _ = unix.Kill(-1, unix.SIGCONT) }) // an error is that there is no process left
	timer := time.AfterFunc(freezeLimit, goOn)
	return func() {
		timer.Stop()
		goOn()
	}
}
