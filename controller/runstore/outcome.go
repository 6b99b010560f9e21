package runstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/rundir"
)

// outcomeFile is the file in a run's private data directory that says how the run
// ended. It is written before the status, so that an end that the API server does not
// take can be written later, even by another process.
const outcomeFile = "outcome.json"

// noteLimit limits the size of ticket.json, outcome.json and spec.json.
const noteLimit = 256 << 10

// outcome is the content of outcome.json.
type outcome struct {
	UID string
	// Deleting is true for a finalizer run.
	Deleting bool
	// Bytes is the size of the directory on the disk.
	Bytes int64
	Run   status.Run
	// Written is true once the outcome was written into the status.
	Written bool `json:",omitempty"`
}

func readOutcome(dir string) (outcome, error) {
	var o outcome
	data, err := plainfile.Read(filepath.Join(dir, outcomeFile), noteLimit)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return outcome{}, fmt.Errorf("read the outcome of a run: %w", err)
	}
	return o, nil
}

// Record notes how a run ended, if it has a directory.
func (s *Store) Record(uid string, deleting bool, run status.Run) error {
	dir, err := s.Dir(uid, run.ID)
	if err != nil {
		return err
	}
	return s.note(dir, outcome{UID: uid, Deleting: deleting, Bytes: rundir.Usage(dir), Run: run})
}

func (s *Store) note(dir string, o outcome) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode the outcome of a run: %w", err)
	}
	err = s.withRoom(func() error { return plainfile.Replace(filepath.Join(dir, outcomeFile), data) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note the outcome of a run: %w", err)
	}
	return nil
}

// NoteWritten notes that the end of a run was written into the status.
func (s *Store) NoteWritten(uid, run string) {
	dir, err := s.Dir(uid, run)
	if err != nil {
		return
	}
	o, err := readOutcome(dir)
	if err != nil || o.UID != uid || o.Run.ID != run || o.Written {
		return // there is nothing to note
	}
	o.Written = true
	if err := s.note(dir, o); err != nil {
		s.log.Error(err, "A status that is restored from before the end of the run will have it again", "directory", dir)
	}
}

// Recorded returns how an earlier process's run ended; nil if that process has not noted it for
// this object, generation and purpose. written reports whether the end of the run was written
// into the status, by [Store.NoteWritten].
func (s *Store) Recorded(uid string, deleting bool, lost status.Active) (run *status.Run, written bool) {
	dir, err := s.Dir(uid, lost.ID)
	if err != nil {
		return nil, false
	}
	o, err := readOutcome(dir)
	if err != nil || o.UID != uid || o.Deleting != deleting || o.Run.ID != lost.ID || o.Run.Generation != lost.Generation {
		return nil, o.Written
	}
	switch o.Run.Result {
	case status.Succeeded, status.Failed, status.Interrupted:
		return &o.Run, o.Written
	}
	return nil, o.Written
}

// withRoom calls do, which needs space on the disk. While the disk is full, it removes
// old runs and tries again.
func (s *Store) withRoom(do func() error) error {
	for {
		err := do()
		if !runner.IsNoSpace(err) || !s.MakeRoom() {
			return err
		}
	}
}
