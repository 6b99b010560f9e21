// Package supervise owns the process tree of one command: it starts the
// command in a session of its own, stops it when the context ends, and returns
// only when nothing of the tree is left, daemonised children included.
//
// It knows /proc and signals, and nothing of Ansible. A process belongs to the
// tree when it descends from the command or carries the tree's cookie in its
// environment; it is identified by pid and start time, and signalled through a
// pidfd, so that a recycled pid never costs a stranger its life.
//
// A [Launcher] runs a command under a process of its own, which ends the tree
// when this process dies or freezes, and to which the orphans of the tree come.
// Without one, a process escapes that clears its environment and loses its
// parents between two samples.
//
// Linux only.
package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// ErrNotStarted is wrapped by the error of a command that never ran.
var ErrNotStarted = errors.New("command not started")

// ErrServer is wrapped, beside it, where that is the fork server's doing.
var ErrServer = errors.New("fork server")

// ErrLate is wrapped, beside both, where the server took longer than ForkTimeout.
var ErrLate = errors.New("the fork came late")

// ErrSurvivors is wrapped when processes of the tree could not be killed,
// because they run as a user that we may not signal, or the kernel does not end them.
var ErrSurvivors = errors.New("processes survived")

// ErrUnseen is wrapped when it is not known whether processes of the tree are left,
// since this machine's processes cannot be listed, most likely because no file descriptor is left.
var ErrUnseen = errors.New("processes cannot be listed")

// defaultGrace is the time between SIGTERM and SIGKILL of a [Command] that
// names none. ansible-runner needs up to its pexpect_timeout to notice a
// signal (1 s as Rolewright sets it) and some time to write its last files.
const defaultGrace = 5 * time.Second

// outputLimit bounds the output file. What is supervised writes its own log
// elsewhere; the file is there for tracebacks.
const outputLimit = 1 << 20

// sampleInterval is how often the tree is looked at while it runs. Only
// processes that clear their environment depend on it.
const sampleInterval = 250 * time.Millisecond

// serviceInterval is the same for a [Command.Service], whose dead orphans and output can wait.
const serviceInterval = time.Minute

// Memory is measured at the second of these looks, which most commands live to
// see, and then every four seconds: the kernel goes through the page tables for
// it, which takes milliseconds for each process of a run.
const (
	weighFirst = 1
	weighEvery = 16
)

// Command is one command to supervise.
type Command struct {
	// Path is the executable, Args its arguments without the name.
	Path string
	Args []string
	// Env is the complete environment, without the cookie.
	Env []string
	// Cookie is a NAME=value entry, unique to this command, that is added to
	// the environment and by which its descendants are known.
	Cookie string
	// Output is the path of a file that receives stdout and stderr. It is
	// created, must not exist, and starts again when it exceeds 1 MiB: it is a
	// file and no pipe, so that nothing has to be drained.
	Output string
	// Errors is as Output, for stderr alone; empty puts stderr into Output, too.
	Errors string
	// Dir is the working directory; empty for that of the process that starts the command.
	Dir string
	// Input is the path of a file that the command has as stdin; empty for none.
	Input string
	// Reports is the path of a file that exists, which the command has open for appending
	// as descriptor 3; empty for none. Such a command is no program that ends what it has
	// started: SIGTERM goes to its whole process group.
	Reports string
	// Grace is the time between Signal and SIGKILL; 0 means 5 seconds.
	Grace time.Duration
	// Signal stops the command; 0 means SIGTERM.
	Signal syscall.Signal
	// Hurry is closed where a command that is stopped gets no longer grace than 5 seconds
	// any more; nil for never. A command whose operator is gone has no longer one.
	Hurry <-chan struct{} `json:"-"`
	// Record is the path of the file that a supervising process writes at the
	// end; see [ReadExit].
	Record string
	// Run names the command and its control group. It is unique and fit to be the
	// name of a file.
	Run string

	// Server is the path of a fork server's socket. If it is set, the server is
	// asked to start the command by forking (see runner/warm), with Env as its
	// environment, in place of this process; else it is empty. Trace is a file to
	// which the server writes what becomes of the command's parts; empty for none.
	Server, Trace string
	// ForkTimeout is how long the server may take to fork; then the command is not
	// started, and never will be. 0 means 15 seconds.
	ForkTimeout time.Duration

	// Service is true for a command that does nothing by itself, and lasts. To supervise it
	// costs next to nothing: its memory is not measured, and no sign of life is given. So it
	// outlives this process being frozen, but not its end.
	Service bool
	// Until is the latest moment for the start of the command, by the clock of
	// [SinceBoot]; 0 is no limit. The supervising process looks right before the
	// start: the operator that ordered it may have been frozen since.
	Until time.Duration

	// groups is the directory in which the command gets a control group of its
	// own; empty means none.
	groups string
	// hurried is as Hurry, in a supervising process.
	hurried <-chan struct{}
	// alone is true in a supervising process: the command ends with it, and all
	// its children belong to the tree.
	alone bool
	// nicer is what the command of a supervising process is nicer than that.
	nicer int
}

// SinceBoot is a clock that all processes of a machine share. It runs while they
// are frozen, and no one sets it.
func SinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // which every kernel has
	return time.Duration(t.Nano())
}

// late is an error if the command may not be started any more.
func (c Command) late() error {
	if over := SinceBoot() - c.Until; c.Until > 0 && over >= 0 {
		return fmt.Errorf("%w: it is too late, by %s", ErrNotStarted, over)
	}
	return nil
}

func (c Command) grace() time.Duration {
	if c.Grace <= 0 {
		return defaultGrace
	}
	return c.Grace
}

func (c Command) signal() syscall.Signal { return cmp.Or(c.Signal, unix.SIGTERM) }

// Exit tells how a command ended.
type Exit struct {
	// Code is the exit code; -1 when a signal ended the command.
	Code int
	// Signal is that signal's name (SIGKILL); empty if there was none.
	Signal string
	// Stopped is true if the context ended first and the command was told to
	// stop.
	Stopped bool
	// Killed counts the processes that outlived the command and were killed.
	Killed int
	// Cut is true if the process that supervised the command, or led it, was killed
	// first, and the command with it: how it would have ended is not known.
	Cut bool `json:",omitempty"`
	// Notes are the lines that a fork server has noted of the command; empty if
	// it was not started by one.
	Notes string `json:",omitempty"`
	// Memory is the most that the processes of the tree were seen to take
	// together, in bytes, what they share with others in shares; 0 if the command
	// ended before anybody looked.
	Memory int64 `json:",omitempty"`
	// CPU is what the command has taken, with all of its descendants that were waited for.
	CPU time.Duration `json:",omitempty"`
	// Reason is why a supervising process has stopped the command; empty for one that
	// ended by itself. Started and Finished enclose the life of the tree; they are zero
	// where none has written a record.
	Reason            Reason `json:",omitempty"`
	Started, Finished time.Time
}

// Run runs the command and returns when its whole process tree is gone. When
// ctx ends, the command gets SIGTERM, after the grace period SIGKILL, and the
// rest of the tree SIGKILL until nothing is left.
//
// That a command fails or is stopped is no error; an error wraps
// [ErrNotStarted], [ErrSurvivors] or [ErrUnseen].
func Run(ctx context.Context, c Command) (Exit, error) {
	out, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: create output file: %w", ErrNotStarted, err)
	}
	defer out.Close()
	files, err := c.open(out)
	if err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	defer files.close()
	if c.Server != "" {
		return runForked(ctx, c, out)
	}

	var stopped atomic.Bool
	// Without a group, tree.kill finds the processes through /proc.
	group, _ := newCgroup(c.groups, c.Run)
	cmd, err := c.start(ctx, files, group, &stopped)
	if err != nil && group != "" && ctx.Err() == nil {
		// The system call that starts in a group may be forbidden.
		_ = group.remove()
		group = ""
		cmd, err = c.start(ctx, files, group, &stopped)
	}
	if err != nil {
		_ = group.remove()
		return Exit{Code: -1}, fmt.Errorf("%w: %w%s", ErrNotStarted, err, advice(err))
	}

	failpoint.Hit("supervising.started")
	defer c.limitGrace(cmd.Process)()
	t := newTree(cmd.Process.Pid, c.Cookie)
	t.reaper, t.group, t.service = c.alone, group, c.Service
	stopSampling := t.sampleUntilStopped(out, files.errors)
	// The error repeats what ProcessState says, or that ctx ended.
	_ = cmd.Wait()
	stopSampling()

	failpoint.Hit("supervising.ended")
	exit := exitOf(cmd.ProcessState)
	exit.Stopped, exit.Memory = stopped.Load(), t.memory
	exit.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	exit.Killed, err = t.kill()
	return exit, err
}

// start starts the command, in a control group if there is one.
func (c Command) start(ctx context.Context, files files, group cgroup, stopped *atomic.Bool) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = append(slices.Clip(c.Env), c.Cookie)
	files.give(cmd)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error {
		err := cmd.Process.Signal(c.signal())
		if err == nil && c.Reports != "" {
			_ = unix.Kill(-cmd.Process.Pid, c.signal()) // it leads a session of its own
		}
		stopped.Store(err == nil)
		return err
	}
	cmd.WaitDelay = c.grace()
	if group != "" {
		dir, err := os.Open(string(group))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if c.alone {
		cmd.SysProcAttr.Pdeathsig = unix.SIGTERM
		defer expendable()()
	}
	if err := c.late(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if c.alone {
		yielding(cmd.Process.Pid, c.nicer)
	}
	return cmd, nil
}

// limitGrace ends a process that is stopped with a long grace, once there is no time for
// that. The returned function is called when it has ended.
func (c Command) limitGrace(p *os.Process) (ended func()) {
	if c.hurried == nil || c.grace() <= defaultGrace {
		return func() {}
	}
	over := make(chan struct{})
	var waits sync.WaitGroup
	waits.Go(func() {
		select {
		case <-c.hurried:
		case <-over:
			return
		}
		select {
		case <-time.After(defaultGrace):
			_ = p.Kill()
		case <-over:
		}
	})
	return func() {
		close(over)
		waits.Wait()
	}
}

// advice says what to do about a command that cannot be started.
func advice(err error) string {
	switch {
	case errors.Is(err, unix.E2BIG):
		return "; its environment or an argument of it is too large for the kernel: make it smaller"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "; raise the limit of open files, or run less at a time"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return "; raise the limits of processes and memory, or run less at a time"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC):
		return "; install it, with the interpreter that its first line names, and make it executable"
	}
	return ""
}

func exitOf(state *os.ProcessState) Exit {
	if state == nil {
		return Exit{Code: -1}
	}
	exit := Exit{Code: state.ExitCode()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Signal = unix.SignalName(ws.Signal())
	}
	return exit
}

// sampleUntilStopped notes the tree's members and keeps the output file short
// until the returned function is called.
func (t *tree) sampleUntilStopped(outputs ...*os.File) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		every := sampleInterval
		if t.service {
			every = serviceInterval
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for look := 0; ; look++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				living := t.look()
				if !t.service && look%weighEvery == weighFirst {
					t.memory = max(t.memory, weight(living))
				}
				for _, out := range outputs {
					if fi, err := out.Stat(); err == nil && fi.Size() > outputLimit {
						// O_APPEND makes the writers go on at the new end. What
						// cannot be truncated is merely long.
						_ = out.Truncate(0)
					}
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
