package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
)

// Reasons for which a supervising process stops its command.
var (
	errTold   = errors.New("told to stop")
	errSilent = errors.New("the operator is silent")
	errOrphan = errors.New("the operator is gone")
)

// maxOrder bounds the line with the command, whose environment is most of it:
// the kernel takes a few MiB.
const maxOrder = 8 << 20

// Main is the supervising process: it reads a command from stdin, runs it, and
// writes its record when nothing of it is left. The command is stopped by
// SIGTERM or SIGINT, by the end of the process that gave the command, and if that
// says nothing for five seconds. It is to be called by main, at once, and
// returns the exit code.
func Main(stdin *os.File, stderr io.Writer) int {
	// The command is to be told of the death of this process, which is that of
	// the thread which starts it; and orphans of the tree come here.
	runtime.LockOSThread()
	if err := supervise(stdin); err != nil {
		fmt.Fprintf(stderr, "supervise: %v\n", err)
		return 1
	}
	return 0
}

func supervise(stdin *os.File) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go func() {
		<-signals
		cancel(errTold)
	}()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of the tree: %w", err)
	}
	in := bufio.NewReaderSize(stdin, 4096)
	line, err := readLine(in)
	if errors.Is(err, io.EOF) {
		return nil // nobody wants anything
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if os.Getppid() != o.Parent {
		return errOrphan // before the kernel was asked to say so
	}
	o.alone = true
	go listen(in, cancel)

	failpoint.Hit("supervising.before-start")
	r := Record{Started: time.Now()}
	var runErr error
	r.Exit, runErr = Run(ctx, o.Command)
	r.Finished = time.Now()
	switch {
	case errors.Is(runErr, ErrNotStarted):
		r.NotStarted = runErr.Error()
	case runErr != nil:
		r.Survivors = runErr.Error()
	}
	failpoint.Hit("supervising.before-record")
	err = r.write(o.Record)
	failpoint.Hit("supervising.recorded")
	return err
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
			return nil, err //nolint:wrapcheck // the caller says what was read
		}
	}
	return nil, errors.New("it is too long")
}

// listen ends the command when the operator is gone, or says nothing any more.
func listen(in io.Reader, cancel context.CancelCauseFunc) {
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	buffer := make([]byte, 64)
	for {
		if _, err := in.Read(buffer); err != nil {
			cancel(errOrphan)
			return
		}
		quiet.Reset(silence)
	}
}
