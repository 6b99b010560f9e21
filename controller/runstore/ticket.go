package runstore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// TicketFile is the file of a run's private data directory that says what the
// run was made for, as the JSON of a [Ticket]. An operator that finds the directory
// of another one believes nothing else about it.
const TicketFile = "ticket.json"

// Ticket is what the status does not say of a run in progress.
type Ticket struct {
	Run string
	// The object: its kind and name are for finding out whether it is gone.
	Group, Version, Kind string
	Namespace, Name      string
	UID                  string

	Generation          int64
	Fingerprint, Inputs string
	// Deleting is true for a finalizer run.
	Deleting bool
	// Check is true for a run that changes nothing.
	Check bool
}

func readTicket(dir string) (Ticket, error) {
	var t Ticket
	data, err := plainfile.Read(filepath.Join(dir, TicketFile), noteLimit)
	if err != nil {
		return t, fmt.Errorf("read the ticket of a run: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("read the ticket of a run: %s: %w", filepath.Join(dir, TicketFile), err)
	}
	return t, nil
}

// Ticket is that of a run which a status says was begun for an object. The
// status is no evidence: before anything is done to processes or files of the
// run, this disk has to have its ticket, for the same object and generation.
// The error wraps [runner.ErrNoRecord].
func (s *Store) Ticket(uid string, lost status.Active) (Ticket, error) {
	dir, err := s.Dir(uid, lost.ID)
	if err != nil {
		return Ticket{}, fmt.Errorf("%w: %w", runner.ErrNoRecord, err)
	}
	t, err := readTicket(dir)
	if err != nil {
		return Ticket{}, fmt.Errorf("%w: %w", runner.ErrNoRecord, err)
	}
	if t.Run != lost.ID || t.UID != uid || t.Generation != lost.Generation {
		return Ticket{}, fmt.Errorf("%w: its ticket is for something else", runner.ErrNoRecord)
	}
	return t, nil
}

// Tickets are those of the objects of a kind that have directories, one each.
func (s *Store) Tickets(group, kind string) []Ticket {
	var found []Ticket
	objects, err := os.ReadDir(s.runs)
	if err != nil {
		return nil // there is nothing to remove that can be found
	}
	for _, object := range objects {
		if !object.IsDir() {
			continue
		}
		dir := filepath.Join(s.runs, object.Name())
		if t, ok := ticketIn(dir); ok && t.Group == group && t.Kind == kind && s.Object(t.UID) == dir {
			found = append(found, t)
		}
	}
	return found
}

// ticketIn is the ticket of any of the runs of an object.
func ticketIn(dir string) (Ticket, bool) {
	runs, err := os.ReadDir(dir)
	if err != nil {
		return Ticket{}, false
	}
	for _, run := range runs {
		if t, err := readTicket(filepath.Join(dir, run.Name())); err == nil {
			return t, true
		}
	}
	return Ticket{}, false
}
