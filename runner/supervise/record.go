package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rolewright/rolewright/runner/plainfile"
)

// record is the file in which a supervising process says how its command ended, when
// nothing of the command is left any more or can be killed.
type record struct {
	Exit Exit
	// NotStarted and Survivors are the texts of errors; empty if there are none.
	NotStarted, Survivors string
	// Unseen is true if Survivors says only that there may be some.
	Unseen bool `json:",omitempty"`
	// Server is true if NotStarted is the fork server's doing, and Late if it took
	// too long.
	Server bool `json:",omitempty"`
	Late   bool `json:",omitempty"`
}

// Reason says why a command was stopped. It is the cause of a context's end.
type Reason string

// The reasons of an end. The last two are in no record: they are of commands whose
// supervising process had no time to write one.
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
	// ReasonReaped: a later operator has looked for what was left.
	ReasonReaped Reason = "reaped"
)

// Error implements error.
func (r Reason) Error() string { return string(r) }

// recordSpace is set aside for a record before the command starts: that it
// fills the disk must not hide how it ended. A record takes some hundred bytes,
// unless survivors are listed. recordLimit is more than any record has.
const (
	recordSpace = 4 << 10
	recordLimit = 1 << 20
)

// ReadExit returns what [Launcher.Run] has returned of a command, or would have,
// by the command's Record. The error is [os.ErrNotExist] if there is none.
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
	decoder.DisallowUnknownFields() // what another version has written may lack what counts
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("record of the supervising process %s: %w", path, err)
	}
	return r, nil
}

// WriteExit writes the record of what has ended in this process, for [ReadExit].
func WriteExit(path string, exit Exit) error { return newRecord(exit, nil).write(path) }

// newRecord is the record of what [Run] has returned.
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

// err is the error of [Run].
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

// write leaves a whole record or none. It is not synced: what a machine forgets
// that loses its power, it has forgotten the processes with.
func (r record) write(path string) error {
	data, _ := json.Marshal(r) // which are numbers and texts
	if err := plainfile.Replace(path, data); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}
