package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Launcher runs commands, each under a process of its own: a command ends
// with this process then, however this process ends. It is safe for concurrent
// use.
type Launcher struct {
	argv []string
	// groups is the directory in which commands get control groups; empty if
	// they get none.
	groups func() string

	mu     sync.Mutex
	closed bool
	// spare waits for an order, so that the next command does not wait for a
	// process to start; expiry ends it.
	spare     *supervisorProcess
	expiry    *time.Timer
	preparing sync.WaitGroup
}

// NewLauncher returns a Launcher whose processes are this program, whatever has become of its file since it was started.
func NewLauncher() *Launcher {
	return &Launcher{argv: []string{"/proc/self/exe", Argument}, groups: sync.OnceValue(func() string {
		dir, err := delegated()
		if err != nil {
			return "" // tree.kill finds the processes through /proc
		}
		return dir
	})}
}

// spareLife is how long a process waits for an order: commands come in swarms,
// and between them memory is worth more than the start of a process.
const spareLife = time.Minute

// Close ends the process that waits for an order, if there is one. No command
// is run after it.
func (s *Launcher) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.preparing.Wait()
	s.discard()
}

// discard ends the spare process.
func (s *Launcher) discard() {
	if p := s.takeSpare(); p != nil {
		p.kill()
		_ = p.stdin.Close()
	}
}

// takeSpare is the spare process, which is it no more; nil if there is none.
func (s *Launcher) takeSpare() *supervisorProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.spare
	s.spare = nil
	if s.expiry != nil {
		s.expiry.Stop()
	}
	return p
}

// prepare starts the spare process. It waits for nothing.
func (s *Launcher) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.preparing.Go(func() {
		p, err := s.start()
		if err != nil {
			return // the next command will say why
		}
		s.mu.Lock()
		kept := s.spare == nil
		if kept {
			s.spare, s.expiry = p, time.AfterFunc(spareLife, s.discard)
		}
		s.mu.Unlock()
		if !kept {
			p.kill()
			_ = p.stdin.Close()
		}
	})
}

// take returns a supervisor that waits for an order.
func (s *Launcher) take() (*supervisorProcess, error) {
	if p := s.takeSpare(); p != nil {
		select {
		case <-p.ended:
			_ = p.stdin.Close() // someone has killed it
		default:
			return p, nil
		}
	}
	return s.start()
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

// What a supervising process hears after its order, a byte each.
const (
	sayAlive = '.'
	sayStop  = 's'
	sayHurry = 'h'
)

// order is what a supervising process is told, on one line of its standard
// input.
type order struct {
	Command
	// Parent is the process that gives the order.
	Parent int
	// Groups is the command's groups.
	Groups string
	// Nicer is what the command is nicer than the supervising process, which does not see whether its parent is a container's.
	Nicer int
}

// Run is as the function [Run], under a process of its own. The command's
// Record must be set.
//
// A supervising process that dies leaves nothing behind either: its tree is
// killed from here, and the exit says SIGKILL.
func (s *Launcher) Run(ctx context.Context, c Command) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	if err := plainfile.Reserve(c.Record, recordSpace); err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: record of the supervising process: %w", ErrNotStarted, err)
	}
	p, err := s.take()
	if err == nil {
		c.groups = s.groups()
		failpoint.Hit("supervisor.before-order")
		err = p.order(c)
	}
	if err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: start the supervising process: %w%s", ErrNotStarted, err, advice(err))
	}
	s.prepare()
	failpoint.Hit("supervisor.ordered")
	p.keep(ctx, c)
	failpoint.Hit("supervisor.ended")
	var unread error
	if state := p.cmd.ProcessState; state != nil && state.Success() {
		r, err := readRecord(c.Record)
		if err == nil {
			return r.Exit, r.err()
		}
		if !errors.Is(err, os.ErrNotExist) {
			unread = err
		}
	}
	exit, err := s.abandoned(ctx, p, c)
	_ = os.Remove(c.Record) // if there is one, it may have been forged by what has ended the process
	return exit, errors.Join(unread, err)
}

// abandoned ends what a supervising process has left that has written no record, or none that counts.
func (s *Launcher) abandoned(ctx context.Context, p *supervisorProcess, c Command) (Exit, error) {
	t := newOrphans(c.Cookie)
	t.root.start, t.adopted = p.since, adopted(s.argv)
	t.group, _ = cgroupOf(c.groups, c.Run)
	exit := Exit{Code: -1, Signal: "SIGKILL", Stopped: ctx.Err() != nil, Cut: ctx.Err() == nil, Reason: ReasonAbandoned}
	var err error
	exit.Killed, err = t.kill()
	c.note("end", newRecord(exit, err))
	return exit, err
}

// Reap kills what is left of a command that another process has run on this
// machine, and returns when nothing is. Of the command, it is enough to know
// Cookie and Run.
func (s *Launcher) Reap(c Command) error {
	t := newOrphans(c.Cookie)
	t.group, _ = cgroupOf(s.groups(), c.Run)
	killed, err := t.kill()
	c.note("end", newRecord(Exit{Code: -1, Killed: killed, Reason: ReasonReaped}, err))
	return err
}

// supervisorProcess is a supervisor.
type supervisorProcess struct {
	cmd   *exec.Cmd
	stdin *os.File
	ended chan struct{}
	// since is when it started, in clock ticks since boot; nothing of its
	// command is older.
	since uint64
}

// start starts a supervising process, which then waits for an order.
func (s *Launcher) start() (*supervisorProcess, error) {
	// A socket: a pipe could be written to by any process of this user, through /proc/PID/fd.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(pair[0]), "orders"), os.NewFile(uintptr(pair[1]), "orders")
	defer theirs.Close()
	p := &supervisorProcess{stdin: ours, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: s.argv[0], Args: s.argv, Stdin: theirs, Stderr: os.Stderr,
		Env:         environ(), // the command's is in the order
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},
	}
	started := make(chan error)
	go func() {
		// The kernel takes the death of this thread for that of the parent.
		runtime.LockOSThread()
		err := p.cmd.Start()
		if err == nil {
			if own, err := readProcess(p.cmd.Process.Pid); err == nil {
				p.since = own.start
			}
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // what it has to say is in the record
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return p, nil
}

// environ is the environment of a supervising process: nothing but what failpoints and the race detector read.
func environ() []string {
	environ := failpoint.Environ()
	if options, ok := os.LookupEnv("GORACE"); ok {
		environ = append(environ, "GORACE="+options)
	}
	return environ
}

// order tells the process what to run.
func (p *supervisorProcess) order(c Command) error {
	line, err := json.Marshal(order{Command: c, Parent: os.Getpid(), Groups: c.groups, Nicer: lessUrgent()})
	if err == nil {
		_, err = p.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		p.kill()
		return errors.Join(fmt.Errorf("tell it what to run: %w", err), p.stdin.Close())
	}
	return nil
}

// keep gives signs of life, but for a service, until the process has ended, and tells it to stop
// when ctx does.
func (p *supervisorProcess) keep(ctx context.Context, c Command) {
	defer p.stdin.Close()
	var beat <-chan time.Time
	if !c.Service {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		beat = tick.C
	}
	stop, hurry := ctx.Done(), c.Hurry
	var giveUp <-chan time.Time
	for {
		select {
		case <-p.ended:
			return
		case <-beat:
			_, _ = p.stdin.Write([]byte{sayAlive}) // an error means that it has ended
		case <-stop:
			stop = nil
			_, _ = p.stdin.Write([]byte{sayStop}) // as above
			giveUp = time.After(c.grace() + patience)
		case <-hurry:
			hurry = nil
			_, _ = p.stdin.Write([]byte{sayHurry}) // as above
			giveUp = time.After(defaultGrace + patience)
		case <-giveUp:
			p.kill()
			return
		}
	}
}

// kill ends the supervising process itself, and waits for it.
func (p *supervisorProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
