package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor runs commands, each under a process of its own: a command ends
// with this process then, however this process ends.
type Supervisor struct {
	// Argv is the command line that calls [Main].
	Argv []string
}

// heartbeat is how often a supervising process hears of this one, and silence
// how long it waits for that: a process that is frozen may be thought dead by
// others, who take over what it did.
const (
	heartbeat = time.Second
	silence   = 5 * time.Second
)

// patience is how long a supervising process may take beyond the grace before
// it is given up: to kill a tree takes milliseconds on a machine that is not
// choked.
const patience = 10 * time.Second

// order is what a supervising process is told, on one line of its standard
// input. Heartbeats follow, a byte each.
type order struct {
	Command
	// Parent is the process that gives the order.
	Parent int
}

// Run is as the function [Run], under a process of its own. The command's
// Record must be set.
//
// A supervising process that dies leaves nothing behind either: its tree is
// killed from here, and the exit says SIGKILL.
func (s Supervisor) Run(ctx context.Context, c Command) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	p, err := s.start(c)
	if err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: start the supervising process: %w", ErrNotStarted, err)
	}
	p.keep(ctx, c)
	record, err := ReadRecord(c.Record)
	if err == nil {
		return record.Exit, record.err()
	}
	// It is dead, and what it has left is an orphan.
	killed, killErr := p.tree.kill()
	exit := Exit{Code: -1, Signal: "SIGKILL", Stopped: ctx.Err() != nil, Killed: killed}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return exit, errors.Join(err, killErr)
}

// supervising is a supervising process.
type supervising struct {
	cmd   *exec.Cmd
	tree  *tree
	stdin *os.File
	ended chan struct{}
}

// start starts the supervising process and tells it what to run.
func (s Supervisor) start(c Command) (*supervising, error) {
	line, err := json.Marshal(order{Command: c, Parent: os.Getpid()})
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it is
	}
	defer theirs.Close()
	p := &supervising{stdin: ours, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: s.Argv[0], Args: s.Argv, Stdin: theirs,
		Env:         append(slices.Clip(c.Env), c.Cookie),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},
	}
	started := make(chan error)
	go func() {
		// The kernel takes the death of this thread for that of the parent.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // what it has to say is in the record
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p.tree = newTree(p.cmd.Process.Pid, c.Cookie)
	if _, err := ours.Write(append(line, '\n')); err != nil {
		p.kill()
		return nil, errors.Join(err, ours.Close())
	}
	return p, nil
}

// keep gives signs of life until the process has ended, and tells it to stop
// when ctx does.
func (p *supervising) keep(ctx context.Context, c Command) {
	defer p.stdin.Close()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	stop := ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case <-p.ended:
			return
		case <-tick.C:
			_, _ = p.stdin.Write([]byte{'.'}) // an error means that it has ended
		case <-stop:
			stop = nil
			_ = p.cmd.Process.Signal(unix.SIGTERM)
			giveUp = time.After(c.grace() + patience)
		case <-giveUp:
			p.kill()
			return
		}
	}
}

// kill ends the supervising process itself, and waits for it.
func (p *supervising) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
