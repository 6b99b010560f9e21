package supervise

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// maxOrder bounds the length of a line, in bytes. The longest is the order, which
// consists mostly of the environment: the kernel accepts a few MiB.
const maxOrder = 8 << 20

// Argument is the only argument of a supervising process: see init.
const Argument = "rolewright-supervise"

// A program that imports this package also serves as its supervising process. It becomes one here, before most of its other
// packages are initialized, which takes most of the time and memory of its start: packages are initialized in the order of
// their paths, once the packages that they import are initialized (https://go.dev/ref/spec#Program_initialization).
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 2 && os.Args[1] == Argument {
		os.Exit(superviseMain(os.Stdin, os.Stderr)) //nolint:forbidigo // this is the main of that process
	}
}

// superviseMain is the main function of a supervising process: it reads a command
// from stdin, runs it, and writes its record when nothing of it is left. The command
// is stopped when the process that gave the order says so, ends, or is silent for
// five seconds (except for a service), and by SIGTERM, SIGINT and SIGHUP.
// superviseMain returns the exit code.
func superviseMain(stdin *os.File, stderr io.Writer) int {
	// The command gets a signal when the thread that starts it ends, which must not be before
	// this process ends.
	runtime.LockOSThread()
	ReserveThreads(spareThreads)
	if err := supervise(stdin); err != nil {
		fmt.Fprintf(stderr, "supervise: %v\n", err)
		return 1
	}
	return 0
}

func supervise(stdin *os.File) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	hurried, hurry := context.WithCancel(context.Background())
	defer hurry()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go func() {
		<-signals
		cancel(ReasonOrphan)
		hurry()
	}()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of the tree: %w", err)
	}
	in := bufio.NewReaderSize(stdin, 4096)
	line, err := readLine(in)
	if errors.Is(err, io.EOF) {
		return nil // there is no order
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if os.Getppid() != o.Parent {
		return fmt.Errorf("the operator is gone: %w", ReasonOrphan) // it ended before the kernel could be asked for a signal
	}
	go o.listen(in, cancel, hurry)
	o.hurried = hurried.Done()
	return o.carryOut(ctx)
}

// carryOut runs the command and writes its record.
func (o order) carryOut(ctx context.Context) error {
	o.alone, o.groups, o.nicer = true, o.Groups, o.Nicer
	if err := o.late(); err != nil {
		return newRecord(Exit{Code: -1}, err).write(o.Record) // nothing was begun
	}
	o.note("start", record{})
	failpoint.Hit("supervising.before-start")
	started := time.Now()
	exit, err := Run(ctx, o.Command)
	exit.Started, exit.Finished, exit.Reason = started, time.Now(), reasonOf(ctx, exit)
	r := newRecord(exit, err)
	// The next command for the same object may begin once the record exists and
	// this process has ended.
	failpoint.Hit("supervising.before-record")
	err = r.write(o.Record)
	failpoint.Hit("supervising.recorded")
	o.note("end", r)
	return err
}

// note records the start and the ends of a command for tests that check histories;
// the last end counts.
func (c Command) note(event string, r record) {
	failpoint.Note(filepath.Join(filepath.Dir(c.Record), "ticket.json"), map[string]any{
		"event": event, "run": c.Run, "reason": r.Exit.Reason, "code": r.Exit.Code, "signal": r.Exit.Signal, "stopped": r.Exit.Stopped,
		"killed": r.Exit.Killed, "notStarted": r.NotStarted, "survivors": r.Survivors,
	})
}

// reasonOf says why the command was stopped; empty if it was not.
func reasonOf(ctx context.Context, exit Exit) Reason {
	var why Reason
	if exit.Stopped {
		_ = errors.As(context.Cause(ctx), &why) // any other cause leaves it empty
	}
	return why
}

// readLine reads a line of bounded length.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for len(line) <= maxOrder {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	return nil, errors.New("it is too long")
}

// listen ends the command when the operator is gone or silent. Silence is counted in ticks of this process: a time in which
// the machine, or only this process, stood still counts as one tick, since nothing could be heard in it.
func (o order) listen(in io.Reader, cancel context.CancelCauseFunc, hurry func()) {
	const ticks = 10
	var missed atomic.Int32
	if !o.Service {
		go func() {
			for range time.Tick(silence / ticks) { // a late tick replaces the ticks that were missed
				if missed.Add(1) >= ticks {
					cancel(ReasonSilent)
					hurry()
					return
				}
			}
		}()
	}
	buffer := make([]byte, 64)
	for {
		n, err := in.Read(buffer)
		if err != nil {
			cancel(ReasonOrphan)
			hurry()
			return
		}
		if bytes.IndexByte(buffer[:n], sayStop) >= 0 {
			cancel(ReasonTold)
		}
		if bytes.IndexByte(buffer[:n], sayHurry) >= 0 {
			hurry()
		}
		missed.Store(0)
	}
}
