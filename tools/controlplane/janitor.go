package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// janitor is a second process of this program that cleans up where the first one cannot: after SIGKILL. It sleeps on a
// pipe, and the kernel wakes it by closing the other end. The components need no janitor, because they die with the first
// process; the state directory, and the processes that the command of exec started, do need it.
type janitor struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// The messages to the janitor, one per line.
const (
	tellGroup = "group " // and the process group of the command
	tellDone  = "done"   // everything is cleaned up
)

func hireJanitor(dir stateDir) (janitor, error) {
	self, err := os.Executable()
	if err != nil {
		return janitor{}, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, "janitor", dir.path)
	cmd.Dir = "/"
	cmd.Env = []string{} // it needs nothing
	// A session of its own: neither Ctrl-C nor a closed terminal reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return janitor{}, fmt.Errorf("make the janitor's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return janitor{}, fmt.Errorf("start the janitor: %w", err)
	}
	return janitor{cmd: cmd, pipe: pipe}, nil
}

// watchGroup makes the janitor kill a process group when this process dies.
func (j janitor) watchGroup(group int) error {
	if _, err := fmt.Fprintf(j.pipe, "%s%d\n", tellGroup, group); err != nil {
		return fmt.Errorf("tell the janitor of the command: %w", err)
	}
	return nil
}

// dismiss ends the janitor without any clean-up.
func (j janitor) dismiss() error {
	_, _ = fmt.Fprintln(j.pipe, tellDone) // if the janitor is gone, Wait says so
	_ = j.pipe.Close()
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("dismiss the janitor: %w", err)
	}
	return nil
}

// sweep is what the janitor does: it waits for the end of input and cleans up, unless it was told that nothing is left.
func sweep(path string, input io.Reader) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	group := 0
	for lines := bufio.NewScanner(input); lines.Scan(); {
		line := lines.Text()
		if line == tellDone {
			return
		}
		if number, found := strings.CutPrefix(line, tellGroup); found {
			group, _ = strconv.Atoi(number) // 0, which is no group, if it is not a number
		}
	}
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL) // it may be gone already
	}
	removeDead(path)
	_ = removeControlGroups(path) // for a real node
}

// removeDead removes the directory of a dead control plane, unless a new one has claimed it. While the components are
// dying, they may still add files for a moment, and the lock may still look held.
func removeDead(path string) {
	for range 100 { // 5 seconds; SIGKILL takes milliseconds
		lock, err := lockDir(path)
		if err == nil {
			err = stateDir{path: path, lock: lock}.remove()
		}
		if err == nil {
			return
		}
		if _, missing := os.Lstat(path); os.IsNotExist(missing) {
			return
		}
		time.Sleep(pollInterval)
	}
}
