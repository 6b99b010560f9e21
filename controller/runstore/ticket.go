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

// TicketFile is the file in a run's private data directory with the [Ticket] of the
// run, as JSON. It is the only evidence about a directory that another operator process
// has made.
const TicketFile = "ticket.json"

// Ticket says what a run was made for.
type Ticket struct {
	Run string
	// The object. Kind and name serve to find out whether it is gone.
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

// Ticket returns the ticket of a run that, by a status, was begun for an object. The
// status is not evidence enough: before anything is done to processes or files of the
// run, this disk must have a ticket for the same object and generation. If it does not,
// the error wraps [runner.ErrNoRecord].
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

// Tickets returns one ticket for each object of a kind that has a directory.
func (s *Store) Tickets(group, kind string) []Ticket {
	var found []Ticket
	objects, err := os.ReadDir(s.runs)
	if err != nil {
		return nil // nothing to remove can be found
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

// ticketIn returns the ticket of any of the runs in an object's directory.
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
