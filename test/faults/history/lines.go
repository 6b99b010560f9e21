package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// TruthLine is a line of the log that the (fake) runs keep themselves. Its events are begin;
// beat, 20 times a second while a process of the run lives; end; and dies, before a run
// kills itself.
type TruthLine struct {
	Event, Run, UID, Name string
	Generation            int64
	Deleting, Forked      bool
	Value                 *string
	Boot                  Instant
	Time                  time.Time

	// The following fields are for end: the exit code, and what was written as artifacts, including the genuine statistics.
	RC                    int
	Status, Verdict       string
	Failures, Unreachable int
	Stats                 *bool
	NoHosts               bool
	Processed             *int
	RequeueAfter          string
	Replica               string
	PID                   int
}

// proves tells whether the artifacts prove a success (I4).
func (l *TruthLine) proves() bool {
	return l.RC == 0 && (l.Status == "" || l.Status == "successful") && (l.Verdict == "" || l.Verdict == "ok") &&
		(l.Stats == nil || *l.Stats) && l.Failures == 0 && l.Unreachable == 0 && !l.NoHosts
}

// LedgerLine is a line that a run's supervisor writes, in a program built with the tag
// failpoint.
type LedgerLine struct {
	Event, Run, UID string
	Generation      int64
	Deleting        bool
	Boot            Instant
	Time            time.Time
	Code            int
	Signal          string
	Stopped         bool
	Killed          int
	// NotStarted and Survivors are texts of errors.
	NotStarted, Survivors string
	// Reason is empty if the run ended by itself.
	Reason string
}

// Reasons of ends that another process than the supervisor recorded.
const (
	reasonAbandoned = "abandoned"
	reasonReaped    = "reaped"
)

// Operation is one request of the client. An operation with an error is
// indeterminate: it may have been carried out.
type Operation struct {
	Op, Name, UID string
	Generation    int64
	Value         string
	Finalizer     bool
	// Invoked and Completed are the times before and after the operation.
	Invoked, Completed Instant
	Error              string
}

// DriverEvent is what the driver did to the operator, or observed about it.
type DriverEvent struct {
	// Event is start, exit, signal, kill (of one of the operator's processes), freeze and thaw (of the operator with all of
	// its processes), quiet, stable, unstable, survivor, zombie, leftover, steady-begin, steady-end.
	Event, Replica, Signal, Detail string
	PID, Code                      int
	Boot                           Instant
	Time                           time.Time
	// LeaderElect, RenewDeadline, RetryMin and Finalizers (by resource) are set for start.
	LeaderElect             bool
	RenewDeadline, RetryMin string
	Finalizers              map[string]string
	// Invariant names the invariant that an event of the kind "violation" violates.
	Invariant string
}

// Forwarded is a line of the fault proxy: when the operator sent the request that the audit log
// has under the same ID.
type Forwarded struct {
	AuditID             string
	Sent                Instant
	Replica, Verb, Path string
	Fault               string
}

// Seen is when a run was last seen to have a process, in a check of all processes
// of the machine.
type Seen struct {
	Run  string
	Last Instant
}

// End is the state of the cluster at the end.
type End struct {
	Objects []json.RawMessage
	// Owned are the dependents.
	Owned []Dependent
	// Events are the Events in the namespace.
	Events []json.RawMessage
	Stable *bool
	// Want is what the client wanted last.
	Want map[string]Want
}

// Want is the last wish for an object.
type Want struct {
	Value   string
	Deleted bool
	// Result is the expected status.ansible.lastRun.result; empty for any.
	Result string
}

// Dependent is an object that a run made.
type Dependent struct {
	Metadata struct {
		Name, UID         string
		OwnerReferences   []struct{ Kind, Name, UID string }
		DeletionTimestamp *string
	}
	Data map[string]string
}

// maxLine limits a line: twice the API server's limit for an object, and some more.
const maxLine = 16 << 20

// eachLine calls do for every complete line of a file, and returns the offset behind
// them. It leaves out a last line without a newline, which is being written, or was
// when its writer was killed. A file that does not exist is like an empty one.
func eachLine(path string, from int64, do func(number int, line []byte) error) (int64, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return from, nil
	}
	if err != nil {
		return from, fmt.Errorf("read the history: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return from, fmt.Errorf("read the history: %s: %w", path, err)
	}
	in := bufio.NewReaderSize(file, 1<<20)
	var long []byte
	for number := 1; ; {
		part, err := in.ReadSlice('\n')
		long = append(long, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLine:
			continue
		case errors.Is(err, io.EOF):
			return from, nil
		case err != nil:
			return from, fmt.Errorf("read the history: %s:%d: %w", path, number, err)
		}
		from += int64(len(long))
		if line := bytes.TrimSpace(long); len(line) > 0 {
			if err := do(number, line); err != nil {
				return from, err
			}
		}
		long = long[:0]
		number++
	}
}

// readLines decodes a file of JSON lines. An invalid line becomes a note:
// two writers may have torn each other's lines, and the rest is still valid.
func readLines[T any](h *History, path string, take func(T)) error {
	_, err := eachLine(path, 0, func(number int, line []byte) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			h.Notes = append(h.Notes, fmt.Sprintf("%s:%d: %v", path, number, err))
			return nil
		}
		take(v)
		return nil
	})
	return err
}
