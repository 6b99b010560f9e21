package supervise

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rolewright/rolewright/runner/plainfile"
)

// Record is how a command ended, as its supervising process has written it,
// when nothing of the command was left any more or could be killed.
type Record struct {
	Exit Exit
	// NotStarted and Survivors are the texts of errors; empty if there are none.
	NotStarted, Survivors string
	// Server is true if NotStarted is the fork server's doing.
	Server bool `json:",omitempty"`
	// Started and Finished enclose the life of the tree.
	Started, Finished time.Time
}

// recordSpace is set aside for a record before the command starts: that it
// fills the disk must not hide how it ended. A record takes some hundred bytes,
// unless survivors are listed. recordLimit is more than any record has.
const (
	recordSpace = 4 << 10
	recordLimit = 1 << 20
)

// ReadRecord reads the record of a command. The error is [os.ErrNotExist] if
// there is none.
func ReadRecord(path string) (Record, error) {
	var r Record
	data, err := plainfile.Read(path, recordLimit)
	if err != nil {
		return r, fmt.Errorf("record of the supervising process: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("record of the supervising process %s: %w", path, err)
	}
	return r, nil
}

// err is the error of [Run].
func (r Record) err() error {
	switch {
	case r.Server:
		return fmt.Errorf("%w: %w: %s", ErrNotStarted, ErrServer, r.NotStarted)
	case r.NotStarted != "":
		return fmt.Errorf("%w: %s", ErrNotStarted, r.NotStarted)
	case r.Survivors != "":
		return fmt.Errorf("%w: %s", ErrSurvivors, r.Survivors)
	}
	return nil
}

// write leaves a whole record or none. It is not synced: what a machine forgets
// that loses its power, it has forgotten the processes with.
func (r Record) write(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	if err := plainfile.Replace(path, data); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}
