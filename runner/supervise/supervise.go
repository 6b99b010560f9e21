// Package supervise owns the process tree of one command: it starts the
// command in a session of its own, stops it when the context ends, and returns
// only when nothing of the tree is left, daemonised children included.
//
// It knows /proc and signals, and nothing of Ansible. A process belongs to the
// tree if it descends from the command or has the tree's cookie in its
// environment. It is identified by pid and start time, and signalled through a
// pidfd, so that a reused pid never gets a stranger killed.
//
// A [Launcher] runs a command under a process of its own, the supervisor, which
// ends the tree when this process dies or freezes, and becomes the parent of the
// tree's orphans. Without it, a process escapes if it clears its environment and
// loses its parents between two samples.
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

// ErrServer is wrapped together with [ErrNotStarted] if the fork server was the cause.
var ErrServer = errors.New("fork server")

// ErrLate is wrapped together with both if the server took longer than ForkTimeout.
var ErrLate = errors.New("the fork came late")

// ErrSurvivors is wrapped if processes of the tree could not be killed,
// because they belong to a user that we may not signal, or the kernel does not end them.
var ErrSurvivors = errors.New("processes survived")

// ErrUnseen is wrapped if it is not known whether processes of the tree are left, because
// the machine's processes cannot be listed. Most likely no file descriptor is left.
var ErrUnseen = errors.New("processes cannot be listed")

// defaultGrace is used if Grace of a [Command] is 0. ansible-runner needs up to
// its pexpect_timeout to notice a signal (1 s as Rolewright sets it) and some time
// to write its last files.
const defaultGrace = 5 * time.Second

// outputLimit bounds the output file, in bytes. The command writes its own log
// elsewhere; the file is for tracebacks.
const outputLimit = 1 << 20

// sampleInterval is the time between two looks at the tree while it runs. It
// matters only for finding processes that clear their environment.
const sampleInterval = 250 * time.Millisecond

// serviceInterval is the same for a [Command.Service], whose dead orphans and output can wait.
const serviceInterval = time.Minute

// Memory is measured at the second of these looks, before which few commands end,
// and then every four seconds: the kernel walks the page tables for it, which takes
// milliseconds for each process of a run.
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
	// the environment and identifies its descendants.
	Cookie string
	// Output is the path of a file that receives stdout and stderr. It must not
	// exist; it is created, and truncated when it exceeds 1 MiB. It is a file and
	// not a pipe, so that nothing has to be drained.
	Output string
	// Errors is like Output, for stderr alone; empty puts stderr into Output, too.
	Errors string
	// Dir is the working directory; empty for that of the process that starts the command.
	Dir string
	// Input is the path of a file for the command's stdin; empty for none.
	Input string
	// Reports is the path of an existing file that the command has open for appending as
	// descriptor 3; empty for none. A command with reports is not expected to stop the
	// processes that it has started: Signal goes to its whole process group.
	Reports string
	// Grace is the time between Signal and SIGKILL; 0 means 5 seconds.
	Grace time.Duration
	// Signal stops the command; 0 means SIGTERM.
	Signal syscall.Signal
	// Hurry is closed when a command that is stopped gets no more than 5 seconds of grace;
	// nil for never. A command whose operator is gone gets no more either.
	Hurry <-chan struct{} `json:"-"`
	// Record is the path of the file that a supervising process writes at the
	// end; see [ReadExit].
	Record string
	// Run names the command and its control group. It is unique and a valid file
	// name.
	Run string

	// Server is the path of the socket of a fork server (see runner/warm) that forks
	// the command, with the environment Env; if it is empty, this process starts the
	// command. Trace is a file to which the server writes how the parts of the command
	// were executed; empty for none.
	Server, Trace string
	// ForkTimeout is how long the server may take to fork; after that the command is
	// not started, and never will be. 0 means 15 seconds.
	ForkTimeout time.Duration

	// Service is true for a long-lived command that does nothing by itself. Its
	// supervision is cheap: its memory is not measured, and this process gives no signs of
	// life. So it survives if this process is frozen, but not if this process ends.
	Service bool
	// Until is the latest moment for the start of the command, on the clock of
	// [SinceBoot]; 0 is no limit. The supervising process checks it right before the
	// start: the operator that gave the order may have been frozen since.
	Until time.Duration

	// groups is the directory in which the command gets a control group of its
	// own; empty means none.
	groups string
	// hurried is like Hurry, in a supervising process.
	hurried <-chan struct{}
	// alone is true in a supervising process: the command ends with it, and all
	// its children belong to the tree.
	alone bool
	// nicer is how much higher the command's niceness is than its supervising process's.
	nicer int
}

// SinceBoot returns the time on a clock that all processes of a machine share. The
// clock goes on while they are frozen, and cannot be set.
func SinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel has it
	return time.Duration(t.Nano())
}

// late returns an error if it is too late to start the command.
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
	// Code is the exit code; -1 if a signal ended the command.
	Code int
	// Signal is the name of the signal (SIGKILL) that ended the command; empty if none did.
	Signal string
	// Stopped is true if the context ended first and the command was told to
	// stop.
	Stopped bool
	// Killed counts the processes that outlived the command and were killed.
	Killed int
	// Cut is true if the supervisor or the run head was killed first, and the command with
	// it: it is not known how the command would have ended.
	Cut bool `json:",omitempty"`
	// Notes are the lines that a fork server has noted about the command; empty if
	// none started it.
	Notes string `json:",omitempty"`
	// Memory is the highest measured memory of all processes of the tree together, in
	// bytes, with shared memory divided among its users; 0 if the command ended before
	// the first measurement.
	Memory int64 `json:",omitempty"`
	// CPU is the CPU time of the command and of all its descendants that were waited for.
	CPU time.Duration `json:",omitempty"`
	// Reason is why a supervising process stopped the command; empty if the command
	// ended by itself. Started and Finished enclose the life of the tree; they are zero
	// if no supervising process has written a record.
	Reason            Reason `json:",omitempty"`
	Started, Finished time.Time
}

// Run runs the command and returns when its whole process tree is gone. When
// ctx ends, the command gets its Signal and, after the grace period, SIGKILL; the
// rest of the tree gets SIGKILL until nothing is left.
//
// It is no error if a command fails or is stopped; an error wraps
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
		// The system call that starts a process in a group may be forbidden.
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
	// Its error only repeats what ProcessState says, or that ctx ended.
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
		sent := c.signal()
		if c.Reports != "" {
			sent = 0 // its group gets the signal, and many programs end at once at a second one
		}
		err := cmd.Process.Signal(sent)
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

// limitGrace kills the process 5 seconds after c.hurried is closed, if its grace is longer.
// The caller calls ended when the process has ended.
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

// sampleUntilStopped samples the tree's members and their memory, and keeps the
// output files short, until stop is called.
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
						// With O_APPEND the writers go on at the new end. If the
						// truncation fails, the file is only longer.
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
