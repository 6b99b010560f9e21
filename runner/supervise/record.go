package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rolewright/rolewright/runner/plainfile"
)

// record is the file in which a supervising process says how its command ended. It is
// written when nothing of the command is left, or what is left cannot be killed.
type record struct {
	Exit Exit
	// NotStarted and Survivors are the texts of errors; empty if there are none.
	NotStarted, Survivors string
	// Unseen is true if Survivors says only that there may be survivors.
	Unseen bool `json:",omitempty"`
	// Server is true if the fork server caused NotStarted, and Late if it took too
	// long.
	Server bool `json:",omitempty"`
	Late   bool `json:",omitempty"`
}

// Reason says why a command was stopped. It is the cause with which its context ended.
type Reason string

// The reasons. The last two are in no record: they are for commands whose supervising
// process could not write one.
const (
	// ReasonTold: the operator told the supervising process to stop the command.
	ReasonTold Reason = "told"
	// ReasonSilent: the operator was silent for five seconds.
	ReasonSilent Reason = "silent"
	// ReasonOrphan: the operator is gone, or the supervising process got a signal
	// to end.
	ReasonOrphan Reason = "orphan"
	// ReasonAbandoned: the supervising process was killed, and the operator
	// killed the rest.
	ReasonAbandoned Reason = "abandoned"
	// ReasonReaped: a later operator killed what was left.
	ReasonReaped Reason = "reaped"
)

// Error implements error.
func (r Reason) Error() string { return string(r) }

// recordSpace is the number of bytes reserved for a record before the command
// starts: if the command fills the disk, it must still be known how it ended. A
// record has a few hundred bytes, unless survivors are listed. recordLimit is more
// bytes than any record has.
const (
	recordSpace = 4 << 10
	recordLimit = 1 << 20
)

// ReadExit returns what [Launcher.Run] has returned for a command, or would have
// returned, from the command's Record. The error wraps [os.ErrNotExist] if there is
// no record.
func ReadExit(path string) (Exit, error) {
	r, err := readRecord(path)
	if err != nil {
		return Exit{Code: -1}, err
	}
	return r.Exit, r.err()
}

func readRecord(path string) (r record, err error) {
	data, err := plainfile.Read(path, recordLimit)
	if err != nil {
		return r, fmt.Errorf("record of the supervising process: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields() // a record of another version may mean something else
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("record of the supervising process %s: %w", path, err)
	}
	return r, nil
}

// ReserveExit reserves the space for [WriteExit], so that it succeeds even if the disk is full by then.
func ReserveExit(path string) error { return plainfile.Reserve(path, recordSpace) }

// WriteExit writes the record of a function that ran in this process, for [ReadExit].
func WriteExit(path string, exit Exit) error { return newRecord(exit, nil).write(path) }

// newRecord returns the record of what [Run] has returned.
func newRecord(exit Exit, err error) record {
	r := record{Exit: exit, Server: errors.Is(err, ErrServer), Late: errors.Is(err, ErrLate)}
	switch {
	case errors.Is(err, ErrNotStarted):
		r.NotStarted = err.Error()
	case err != nil:
		r.Survivors, r.Unseen = err.Error(), errors.Is(err, ErrUnseen) && !errors.Is(err, ErrSurvivors)
	}
	return r
}

// err returns the error of [Run] that the record contains.
func (r record) err() error {
	switch {
	case r.Late:
		return fmt.Errorf("%w: %w: %w: %s", ErrNotStarted, ErrServer, ErrLate, r.NotStarted)
	case r.Server:
		return fmt.Errorf("%w: %w: %s", ErrNotStarted, ErrServer, r.NotStarted)
	case r.NotStarted != "":
		return fmt.Errorf("%w: %s", ErrNotStarted, r.NotStarted)
	case r.Unseen:
		return fmt.Errorf("%w: %s", ErrUnseen, r.Survivors)
	case r.Survivors != "":
		return fmt.Errorf("%w: %s", ErrSurvivors, r.Survivors)
	}
	return nil
}

// write writes a complete record or none. It does not sync the file: if a power
// failure loses the record, it has also ended the processes.
func (r record) write(path string) error {
	data, _ := json.Marshal(r) // it consists of numbers and texts
	if err := plainfile.Replace(path, data); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}
