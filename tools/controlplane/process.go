package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// spawner starts processes from one thread that lives as long as this program. The kernel sends the parent-death signal
// when the thread that started a process ends, and Go ends threads at will unless they are locked.
type spawner struct {
	calls chan func()
}

func newSpawner() spawner {
	s := spawner{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for call := range s.calls {
			call()
		}
	}()
	return s
}

// start is like cmd.Start, but the process gets SIGKILL when this program dies, however that happens. It also gets a process
// group of its own, so that Ctrl-C in a terminal only reaches this program, which knows the right order.
func (s spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan error)
	s.calls <- func() { done <- cmd.Start() }
	return <-done
}

// component is one program of the control plane.
type component struct {
	name string
	path string
	args []string

	cmd  *exec.Cmd
	log  string        // file with its output
	done chan struct{} // closed when it has ended
}

// start runs the component, and sends it to ended when it has ended.
func (c *component) start(s spawner, dir stateDir, ended chan<- *component) error {
	c.log = dir.join(c.name + ".log")
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	defer log.Close()
	c.cmd = exec.Command(c.path, c.args...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Dir = dir.path
	// No other variable: etcd and the Go runtime would take settings from them.
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir.path, "TMPDIR=" + dir.path}
	c.done = make(chan struct{})
	if err := s.start(c.cmd); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState says how it ended, the log why
		close(c.done)
		ended <- c
	}()
	return nil
}

// kill ends the component and waits until it is gone. A graceful end would be pointless: the data is removed with it.
func (c *component) kill() {
	if c.done == nil {
		return
	}
	select {
	case <-c.done: // its process ID may belong to another process by now
	default:
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it may have ended this moment
		<-c.done
	}
}

// endedError says that a component has ended that should be running, with the end of its log.
type endedError struct {
	name  string
	state string
	tail  []byte
}

func (e *endedError) Error() string {
	return fmt.Sprintf("%s ended by itself (%s); the end of its log:\n%s", e.name, e.state, e.tail)
}

func (c *component) failure() error {
	return &endedError{name: c.name, state: c.cmd.ProcessState.String(), tail: tail(c.log)}
}

// tailLines is what fits on a terminal page.
const tailLines = 20

// tail returns the end of a file for a message. If the file cannot be read, it returns the error.
func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n"))
}

// find looks a program up: first where the environment says, then in our own directory.
func find(name, assets string) (string, error) {
	dirs := []string{assets}
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		dirs = []string{dir, assets}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("find %s: %w", name, err)
		}
		if info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no program %s in %v: build it with `make cluster-tools`, or set KUBEBUILDER_ASSETS", name, dirs)
}
