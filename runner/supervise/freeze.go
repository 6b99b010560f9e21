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

// firstPIDs is the machine's own PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const firstPIDs = "pid:[4026531836]"

// isContainer reports whether this process is the main program of a container with a PID namespace of its own: process 1, or
// the child of an init program that only starts it.
func isContainer() bool {
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || pids == firstPIDs || os.Getpid() != 1 && os.Getppid() != 1 {
		return false // a process of kubectl exec has no parent in the container
	}
	// Process 1 may also be the init of a whole system. The programs listed here only start the program of a container.
	name, err := os.ReadFile("/proc/1/comm")
	return os.Getpid() == 1 || err == nil && slices.Contains([]string{"tini", "docker-init", "dumb-init", "catatonit"}, strings.TrimSpace(string(name)))
}

// freezeLimit is how long Freeze stops the container at most. It must be shorter than silence, after which a supervising
// process ends its run.
const freezeLimit = 2 * time.Second

// Freeze stops all other processes of the container until thaw is called, for two seconds at most. The kernel stops them
// all at once, so that even a fork bomb stands still, which takes all CPU and forks faster than one can look at its
// processes one by one. Outside of a container, Freeze does nothing.
func Freeze() (thaw func()) {
	if !isContainer() {
		return func() {}
	}
	// A child that is being started must not be stopped before its execve: until then this process's thread that starts it
	// cannot be interrupted, and the next garbage collection would wait for that thread until the end of the freeze.
	syscall.ForkLock.RLock()
	err := unix.Kill(-1, unix.SIGSTOP)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return func() {}
	}
	goOn := sync.OnceFunc(func() { _ = unix.Kill(-1, unix.SIGCONT) }) // an error means that no process is left
	timer := time.AfterFunc(freezeLimit, goOn)
	return func() {
		timer.Stop()
		goOn()
	}
}
