package supervise

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// defaultForkTimeout is used if ForkTimeout of a [Command] is 0. A fork takes
// milliseconds, and seconds on an overloaded machine.
const defaultForkTimeout = 15 * time.Second

// latest is how long the fork server may take to report the end after the run head
// has ended, and the run head to end after it was told to kill the command. Then
// the process is considered frozen.
const latest = 5 * time.Second

// forkRequest is the request to a fork server. Its length precedes it in four
// bytes, big endian, and the descriptor of the output file is sent along with the
// length.
type forkRequest struct {
	Args   []string          `json:"args"`
	Env    map[string]string `json:"env"`
	Cookie string            `json:"cookie"`
	Grace  float64           `json:"grace"` // seconds
	Trace  string            `json:"trace"`
	Group  string            `json:"group"` // the directory of its control group; empty for none
}

// forkAnswer is one line of a fork server's answer. The first says whether it is
// ready to start the command, the second how the command ended, when nothing is
// left of it.
type forkAnswer struct {
	PID       int    `json:"pid"`
	Refused   string `json:"refused"`
	Code      *int   `json:"code"`
	Signal    int    `json:"signal"`
	Killed    int    `json:"killed"`
	Survivors []int  `json:"survivors"`
	Notes     string `json:"notes"`
	// CPU is in milliseconds.
	CPU uint32 `json:"cpu"`
}

// runForked is [Run] for a command with a Server.
//
// The command does not descend from this process. The server forks a process
// that leads it, the run head: the reaper of all the command's descendants. The
// head ends the command when this process is gone, kills what the command leaves
// behind, and ends when it has no more children. The server closes the connection
// after the head has ended and, if the head was killed, what the head left behind
// has ended, too: the end of the connection is the end of the tree. A frozen
// server closes no connection; then the end of the head counts, and this process
// kills what the head left behind.
func runForked(ctx context.Context, c Command, out *os.File) (Exit, error) {
	group, _ := newCgroup(c.groups, c.Run) // without one, tree.kill finds the processes through /proc
	f, err := fork(ctx, c, out, group)
	if err != nil {
		_ = group.remove()
		if told(ctx) { // that says nothing about the server
			return Exit{Code: -1}, fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
	if errors.Is(err, ErrNotStarted) {
		return Exit{Code: -1}, err // too late for a cold start, too
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrLate, err)
	}
	if err != nil {
		return Exit{Code: -1}, fmt.Errorf("%w: %w: %w", ErrNotStarted, ErrServer, err)
	}
	defer f.conn.Close()
	failpoint.Hit("forked.started")
	t := newTree(f.head.pid, c.Cookie)
	t.group = group
	stopSampling := t.sampleUntilStopped(out)
	var stopped atomic.Bool
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if f.head.wait() == nil {
			_ = f.conn.SetReadDeadline(time.Now().Add(latest))
		}
	})
	wg.Go(func() { f.stopAfter(ctx, c.grace(), ended, &stopped) })
	answer, err := f.wait()
	failpoint.Hit("forked.ended")
	close(ended)
	_ = f.head.Close() // ends f.head.wait
	wg.Wait()
	stopSampling()

	exit := Exit{Code: -1, Signal: "SIGKILL", Stopped: stopped.Load(), Cut: answer.Code == nil && !stopped.Load()}
	if answer.Code != nil {
		exit.Code, exit.Signal, exit.Killed, exit.Notes = *answer.Code, "", answer.Killed, answer.Notes
		exit.CPU = time.Duration(answer.CPU) * time.Millisecond
		if answer.Signal != 0 {
			exit.Signal = unix.SignalName(unix.Signal(answer.Signal))
		}
	}
	if len(answer.Survivors) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: it cannot kill %v", ErrSurvivors, answer.Survivors))
	}
	killed, killErr := t.kill()
	exit.Killed += killed
	exit.Memory = t.memory
	return exit, errors.Join(err, killErr)
}

// forked is a command that a fork server has started.
type forked struct {
	conn  *net.UnixConn
	lines *bufio.Reader
	head  head
}

// stopAfter stops the command when ctx ends first, and sets stopped if the command
// could be told.
func (f *forked) stopAfter(ctx context.Context, grace time.Duration, ended <-chan struct{}, stopped *atomic.Bool) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_, err := f.conn.Write([]byte{'T'})
	stopped.Store(err == nil)
	select {
	case <-ended:
		return
	case <-time.After(grace):
		_, _ = f.conn.Write([]byte{'K'}) // an error means that it has ended
	}
	select {
	case <-ended:
	case <-time.After(latest):
		f.head.kill() // it is frozen
	}
}

// head is the pidfd of a run head, the process that leads a command.
type head struct {
	*os.File
	pid int
}

// findHead opens the process that has the pid now.
func findHead(pid int) (head, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return head{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	return head{os.NewFile(uintptr(fd), "pidfd"), pid}, nil
}

// wait returns nil when the process has ended, and an error when the head is closed.
func (h head) wait() error {
	raw, err := h.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil
	})
}

// kill kills the process. If it fails, the process has ended.
func (h head) kill() {
	raw, err := h.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}

// told tells whether the operator has told to stop the command. After another end of
// ctx, a command that is forked late is started and stopped at once, so that its record
// says why.
func told(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ReasonTold) }

// fork makes the server start the command, in a control group if there is one.
// After an error the command has not been started and will not be. If the command is
// to stop, fork does not wait for the server.
func fork(ctx context.Context, c Command, out *os.File, group cgroup) (_ *forked, err error) {
	message, err := c.forkRequest(group)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Server, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(cmp.Or(c.ForkTimeout, defaultForkTimeout))); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		if told(ctx) {
			_ = conn.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	length := binary.BigEndian.AppendUint32(nil, uint32(len(message)))
	if _, _, err := conn.WriteMsgUnix(length, unix.UnixRights(int(out.Fd())), nil); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	if _, err := conn.Write(message); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	f := &forked{conn: conn, lines: bufio.NewReader(conn)}
	answer, err := f.answer()
	switch {
	case err != nil:
		return nil, fmt.Errorf("hear the answer: %w", err)
	case answer.Refused != "":
		return nil, fmt.Errorf("it refuses: %s", answer.Refused)
	case answer.PID <= 0:
		return nil, errors.New("it answers no process")
	}
	if err := c.late(); err != nil {
		return nil, err
	}
	if stop(); told(ctx) {
		return nil, ReasonTold
	}
	// The head waits for our message, so the pid is still its own.
	if f.head, err = findHead(answer.PID); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{'G'}); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), f.head.Close())
	}
	// From here on, the command counts as started.
	_ = conn.SetDeadline(time.Time{})
	return f, nil
}

// forkRequest encodes the command for a fork server.
func (c Command) forkRequest(group cgroup) ([]byte, error) {
	request := forkRequest{
		Args:   append([]string{c.Path}, c.Args...),
		Env:    make(map[string]string, len(c.Env)),
		Cookie: c.Cookie,
		Grace:  c.grace().Seconds(),
		Trace:  c.Trace,
		Group:  string(group),
	}
	for _, entry := range c.Env {
		if !utf8.ValidString(entry) {
			return nil, errors.New("the environment is not valid UTF-8")
		}
		name, value, _ := strings.Cut(entry, "=")
		request.Env[name] = value
	}
	return json.Marshal(request)
}

// answer reads one line of the server's answer.
func (f *forked) answer() (forkAnswer, error) {
	var a forkAnswer
	line, err := readLine(f.lines)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(line, &a)
}

// wait returns the last answer when the connection has ended or its deadline is
// reached. The answer has no Code if the head was killed before it could give one.
func (f *forked) wait() (forkAnswer, error) {
	answer, err := f.answer()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded) {
		return forkAnswer{}, nil
	}
	if err != nil {
		return forkAnswer{}, fmt.Errorf("hear of the end: %w", err)
	}
	_, _ = io.Copy(io.Discard, f.lines) // any error, including the deadline, counts as the end
	return answer, nil
}
