package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Subject is what a command is run for, as the caller names it.
type Subject struct {
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Deleting is true if the subject is about to go, and the command cleans
	// up after it.
	Deleting bool `json:"deleting,omitempty"`
}

// Event says which end of a command's life an [Entry] tells of.
type Event string

// The events of a ledger.
const (
	// EventStart is written before the command is started.
	EventStart Event = "start"
	// EventEnd is written after the record, when nothing of the command is left.
	EventEnd Event = "end"
)

// Reason says why a command was stopped.
type Reason string

// The reasons of an end; a command that ended by itself has none.
const (
	// ReasonTold: the operator wanted it.
	ReasonTold Reason = "told"
	// ReasonSilent: the operator has said nothing for five seconds.
	ReasonSilent Reason = "silent"
	// ReasonOrphan: the operator is gone, or a signal to the supervising process
	// says so.
	ReasonOrphan Reason = "orphan"
	// ReasonAbandoned: the supervising process was killed, and the operator
	// has killed the rest.
	ReasonAbandoned Reason = "abandoned"
	// ReasonReaped: a later operator has looked for what was left. This line
	// may follow another end of the same command, and need not follow a start.
	ReasonReaped Reason = "reaped"
)

// Error makes a reason the cause of a context's end.
func (r Reason) Error() string { return string(r) }

// Entry is one line of a ledger. A command may have several ends; the last one
// holds.
type Entry struct {
	Event Event     `json:"event"`
	Time  time.Time `json:"time"`
	// Boot is the time since the machine's start (CLOCK_BOOTTIME), in
	// nanoseconds: it compares between processes, and no one sets it.
	Boot int64 `json:"boot"`
	// Run is the command's.
	Run string `json:"run"`
	// PID is that of the supervising process; 0 if it is not known.
	PID int `json:"pid,omitempty"`
	Subject
	// End is nil at the start.
	*End
}

// End is how a command ended; see [Exit] and [Record].
type End struct {
	Code       int    `json:"code"`
	Signal     string `json:"signal,omitempty"`
	Stopped    bool   `json:"stopped,omitempty"`
	Killed     int    `json:"killed,omitempty"`
	NotStarted string `json:"notStarted,omitempty"`
	Survivors  string `json:"survivors,omitempty"`
	Reason     Reason `json:"reason,omitempty"`
}

// end is the End that a record tells of.
func (r Record) end(reason Reason) *End {
	return &End{
		Code: r.Exit.Code, Signal: r.Exit.Signal, Stopped: r.Exit.Stopped, Killed: r.Exit.Killed,
		NotStarted: clip(r.NotStarted), Survivors: clip(r.Survivors), Reason: reason,
	}
}

// clip bounds a text: a line of the ledger is short.
func clip(text string) string { return text[:min(len(text), 1<<10)] }

// note adds a line to the command's ledger, if it has one.
func (c Command) note(event Event, pid int, end *End) error {
	if c.Ledger == "" {
		return nil
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return fmt.Errorf("ledger: read the clock: %w", err)
	}
	line, err := json.Marshal(Entry{
		Event: event, Time: time.Now(), Boot: boot.Nano(), Run: c.Run, PID: pid, Subject: c.Subject, End: end,
	})
	if err == nil {
		err = appendLine(c.Ledger, append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// ledgerLimit is the size at which a ledger is set aside; one that was set
// aside before it goes. It holds some 7,000 runs.
const ledgerLimit = 4 << 20

// errLedgerInUse is what a ledger is that changes faster than it can be opened.
var errLedgerInUse = errors.New("it is rotated all the time")

// appendLine adds a line to a ledger, or nothing of it. Any number of processes
// may do so at once. It is not synced: see [Record].
func appendLine(path string, line []byte) error {
	file, size, err := openLedger(path, int64(len(line)))
	if err != nil {
		return err
	}
	n, err := file.Write(line)
	if err != nil && n > 0 {
		// The next line is to begin a line.
		err = errors.Join(err, file.Truncate(size))
	}
	return errors.Join(err, file.Close())
}

// openLedger opens a ledger that has room for a line, and locks it.
func openLedger(path string, room int64) (file *os.File, size int64, err error) {
	const enough = 100
	for range enough {
		// Whatever else may stand there is not opened, or does not block.
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, 0, err
		}
		locked := lock(file)
		opened, err := file.Stat()
		if err == nil && !opened.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file; remove it", path)
		}
		if err != nil {
			return nil, 0, errors.Join(err, file.Close())
		}
		named, err := os.Lstat(path)
		switch {
		case err != nil || !os.SameFile(opened, named):
			// Someone has set it aside meanwhile.
		case locked && opened.Size() > 0 && opened.Size()+room > ledgerLimit:
			if err := os.Rename(path, setAside(path)); err != nil {
				return nil, 0, errors.Join(err, file.Close())
			}
		default:
			return file, opened.Size(), nil
		}
		_ = file.Close() // nothing was written
	}
	return nil, 0, fmt.Errorf("%s: %w", path, errLedgerInUse)
}

// lock takes a ledger for this process and tells whether it could. It gives up
// after a second: anyone who holds it that long is frozen, and only the setting
// aside depends on it.
func lock(file *os.File) bool {
	const (
		tries = 100
		pause = 10 * time.Millisecond
	)
	for range tries {
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return true
		}
		time.Sleep(pause)
	}
	return false
}

// setAside is the path of the ledger before this one: ledger.1.jsonl.
func setAside(path string) string {
	extension := filepath.Ext(path)
	return strings.TrimSuffix(path, extension) + ".1" + extension
}

// ReadLedger reads a ledger from its beginning, that which was set aside
// included. There may be none, which is no error.
func ReadLedger(path string) ([]Entry, error) {
	var entries []Entry
	for _, name := range []string{setAside(path), path} {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		lines := bufio.NewScanner(file)
		for number := 1; lines.Scan() && err == nil; number++ {
			var e Entry
			if err = json.Unmarshal(lines.Bytes(), &e); err != nil {
				err = fmt.Errorf("%s:%d: %w", name, number, err)
			}
			entries = append(entries, e)
		}
		if err := errors.Join(err, lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
	}
	return entries, nil
}
