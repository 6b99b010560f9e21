package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Record is how a command ended, as its supervising process has written it,
// when nothing of the command was left any more or could be killed.
type Record struct {
	Exit Exit
	// NotStarted and Survivors are the texts of errors; empty if there are none.
	NotStarted, Survivors string
	// Started and Finished enclose the life of the tree.
	Started, Finished time.Time
}

// ReadRecord reads the record of a command. The error is [os.ErrNotExist] if
// there is none.
func ReadRecord(path string) (Record, error) {
	var r Record
	data, err := os.ReadFile(path)
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
	file, err := os.CreateTemp(filepath.Dir(path), ".record-")
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the record: %w", err), os.Remove(file.Name()))
	}
	return nil
}
