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
)

// Launcher runs commands, each under a supervising process of its own, so that the
// commands end when this process ends in any way. It is safe for concurrent use.
type Launcher struct {
	argv []string
	// groups returns the directory in which commands get control groups; empty if
	// they get none.
	groups func() string

	mu     sync.Mutex
	closed bool
	// spare waits for an order, so that the next command need not wait for a
	// process to start; expiry ends it. It is nil if there is none.
	spare     *supervisorProcess
	expiry    *time.Timer
	preparing sync.WaitGroup
}

// NewLauncher returns a Launcher whose supervising processes execute this program, even if its file was replaced since.
func NewLauncher() *Launcher {
	return &Launcher{argv: []string{"/proc/self/exe", Argument}, groups: sync.OnceValue(func() string {
		dir, err := delegated()
		if err != nil {
			return "" // tree.kill finds the processes through /proc
		}
		return dir
	})}
}

// spareLife is how long a spare process waits for an order: commands come in
// bursts, and between these its memory is worth more than a faster start.
const spareLife = time.Minute

// Close ends the spare process, if there is one. The Launcher must not be used
// after that.
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

// takeSpare removes and returns the spare process; nil if there is none.
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

// prepare starts the spare process in the background.
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

// take returns a supervising process that waits for an order: the spare one, or a new one.
func (s *Launcher) take() (*supervisorProcess, error) {
	if p := s.takeSpare(); p != nil {
		select {
		case <-p.ended:
			_ = p.stdin.Close() // it was killed
		default:
			return p, nil
		}
	}
	return s.start()
}

// heartbeat is the time between two signs of life to a supervising process, and
// silence how long that process waits for one before it ends the command: others
// may take a frozen operator for dead, and take over its work.
const (
	heartbeat = time.Second
	silence   = 5 * time.Second
)

// patience is how long a supervising process may take beyond the grace before it
// is killed: killing a tree takes milliseconds unless the machine is overloaded.
const patience = 10 * time.Second

// The messages to a supervising process after its order, one byte each.
const (
	sayAlive = '.'
	sayStop  = 's'
	sayHurry = 'h'
)

// order is the order to a supervising process, on one line of its standard input.
type order struct {
	Command
	// Parent is the pid of the process that gives the order.
	Parent int
	// Groups is groups of the command.
	Groups string
	// Nicer is nicer of the command. The supervising process itself cannot tell whether its parent is a container's program.
	Nicer int
}

// Run is like the function [Run], under a supervising process. The command's
// Record must be set.
//
// If the supervising process dies, nothing is left behind either: this process
// kills its tree, and the Exit says SIGKILL.
func (s *Launcher) Run(ctx context.Context, c Command) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	if err := ReserveExit(c.Record); err != nil {
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
	_ = os.Remove(c.Record) // if it exists, what killed the supervising process may have forged it
	return exit, errors.Join(unread, err)
}

// abandoned kills what is left of a supervising process that ended without a valid record.
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
// machine, and returns when nothing is left. Only Cookie and Run of the command
// need be set.
func (s *Launcher) Reap(c Command) error {
	t := newOrphans(c.Cookie)
	t.group, _ = cgroupOf(s.groups(), c.Run)
	killed, err := t.kill()
	c.note("end", newRecord(Exit{Code: -1, Killed: killed, Reason: ReasonReaped}, err))
	return err
}

// supervisorProcess is a supervising process, as its parent sees it.
type supervisorProcess struct {
	cmd   *exec.Cmd
	stdin *os.File
	ended chan struct{}
	// since is when it started, in clock ticks since boot; no process of its
	// command is older.
	since uint64
}

// start starts a supervising process, which then waits for an order.
func (s *Launcher) start() (*supervisorProcess, error) {
	// Not a pipe: any process of this user could write to it through /proc/PID/fd.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(pair[0]), "orders"), os.NewFile(uintptr(pair[1]), "orders")
	defer theirs.Close()
	p := &supervisorProcess{stdin: ours, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: s.argv[0], Args: s.argv, Stdin: theirs, Stderr: os.Stderr,
		Env:         environ(), // the command's environment is in the order
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},
	}
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when this thread ends, so the thread must live as long as the child.
		runtime.LockOSThread()
		err := p.cmd.Start()
		if err == nil {
			if own, err := readProcess(p.cmd.Process.Pid); err == nil {
				p.since = own.start
			}
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the result is in the record
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return p, nil
}

// environ is the environment of a supervising process: only the variables of failpoints and the race detector.
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

// keep gives signs of life, except for a service, until the process has ended, and tells it to stop
// when ctx ends.
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
			p.say(sayAlive)
		case <-stop:
			stop = nil
			p.say(sayStop)
			giveUp = time.After(c.grace() + patience)
		case <-hurry:
			hurry = nil
			p.say(sayHurry)
			giveUp = time.After(defaultGrace + patience)
		case <-giveUp:
			p.kill()
			return
		}
	}
}

// say sends a word to the process. It does not wait: if the process stands still and reads nothing, it has to be killed
// in time.
func (p *supervisorProcess) say(word byte) {
	// An error means that it has ended, or reads nothing.
	_ = unix.Send(int(p.stdin.Fd()), []byte{word}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// kill ends the supervising process itself, and waits for it.
func (p *supervisorProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
