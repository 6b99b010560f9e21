package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
)

// view reads the file. If the file is not open, it returns ErrNotFound.
func (s *Store) view(read func(tx *bbolt.Tx) error) error {
	if db := s.db.Load(); db != nil {
		return s.guarded(db, func() error { return db.View(read) })
	}
	return ErrNotFound
}

// ErrNotFound is in the chain of [Store.Run]'s error if the run is not kept, or not
// any more.
var ErrNotFound = errors.New("no such run is kept")

// ErrSeveral is in the chain of [Store.Run]'s error if the IDs of several runs begin with the text.
var ErrSeveral = errors.New("several IDs start with this, give more characters")

// Run returns a run by its ID, or by the beginning of its ID if no other ID begins with it.
func (s *Store) Run(id string) (r Run, err error) {
	waits, err := only(id, s.waiting())
	if err != nil {
		return r, err
	}
	err = s.view(func(tx *bbolt.Tx) error {
		c := bucket(tx, ids).Cursor()
		is, key := c.Seek([]byte(id))
		if id == "" || !bytes.HasPrefix(is, []byte(id)) {
			return fmt.Errorf("run %.40q: %w", id, ErrNotFound)
		}
		if next, _ := c.Next(); len(is) > len(id) && bytes.HasPrefix(next, []byte(id)) {
			return fmt.Errorf("run %.40q: %w", id, ErrSeveral)
		}
		r, err = unpack(bucket(tx, details).Get(key))
		if err != nil {
			return fmt.Errorf("run %s: %w", is, err)
		}
		return nil
	})
	return either(id, waits, r, err)
}

// only returns the run whose ID begins with id; an empty Run if there is none. Several are an error.
func only(id string, runs []Run) (found Run, err error) {
	for _, r := range runs {
		switch {
		case id == "" || !strings.HasPrefix(r.ID, id):
		case found.ID != "":
			return Run{}, fmt.Errorf("run %.40q: %w", id, ErrSeveral)
		default:
			found = r
		}
	}
	return found, nil
}

// either combines the results of two searches: first, which is empty if nothing was found, and
// then with its error err. Both may be the same run, which has gone on meanwhile.
func either(id string, first, then Run, err error) (Run, error) {
	switch {
	case first.ID != "" && errors.Is(err, ErrNotFound):
		return first, nil
	case first.ID != "" && err == nil && first.ID != then.ID:
		return Run{}, fmt.Errorf("run %.40q: %w", id, ErrSeveral)
	}
	return then, err
}

// Query says which runs [Store.Runs] returns.
type Query struct {
	// Wants tells whether to return a run; nil means all. It may be called for runs that
	// are not returned.
	Wants func(Brief) bool
	// Namespace, Name and Result are the values that all runs that Wants accepts have; empty
	// if these differ. Runs with other values are skipped fast.
	Namespace, Name, Result string
	// Limit is how many runs are returned at most.
	Limit int
	// Before is what an earlier call has returned as next; empty to begin with the newest run.
	Before string
}

// marks returns the texts that the stored form of each run contains that q asks for.
func (q Query) marks() (marks [][]byte) {
	for _, is := range [][2]string{{"namespace", q.Namespace}, {"name", q.Name}, {"result", q.Result}} {
		if text, err := json.Marshal(is[1]); err == nil && is[1] != "" {
			marks = append(marks, append([]byte(`"`+is[0]+`":`), text...))
		}
	}
	return marks
}

// waiting returns the runs that are not written yet, the newest first.
func (s *Store) waiting() []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := slices.Clone(s.pending)
	slices.Reverse(runs)
	return runs
}

// Runs returns the runs of q, the newest first. next is Before for the runs after them; empty at the end.
func (s *Store) Runs(q Query) (runs []Brief, next string, err error) {
	seen, marks := map[string]bool{}, q.marks()
	lacks := func(value []byte) bool {
		return slices.ContainsFunc(marks, func(mark []byte) bool { return !bytes.Contains(value, mark) })
	}
	waiting, before := s.waiting(), q.Before
	for _, r := range waiting {
		seen[r.ID] = true
	}
	if seen[before] {
		waiting = waiting[1+slices.IndexFunc(waiting, func(r Run) bool { return r.ID == before }):]
		before = ""
	}
	for _, r := range waiting {
		if before != "" || q.Wants != nil && !q.Wants(r.Brief) {
			continue
		}
		if len(runs) >= q.Limit {
			return runs, runs[len(runs)-1].ID, nil
		}
		runs = append(runs, r.Brief)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		c := bucket(tx, briefs).Cursor()
		key, value := c.Last()
		if before != "" {
			at := bucket(tx, ids).Get([]byte(before))
			if at == nil {
				return fmt.Errorf("run %.40q: %w", before, ErrNotFound)
			}
			c.Seek(at)
			key, value = c.Prev()
		}
		for ; key != nil; key, value = c.Prev() {
			if lacks(value) { // decoding all of them would take long
				continue
			}
			var b Brief
			if err := json.Unmarshal(value, &b); err != nil {
				return fmt.Errorf("run %s: %w", key[8:], err)
			}
			if seen[b.ID] || q.Wants != nil && !q.Wants(b) {
				continue
			}
			if len(runs) >= q.Limit {
				next = runs[len(runs)-1].ID
				return nil
			}
			runs = append(runs, b)
		}
		return nil
	})
	if before == "" && errors.Is(err, ErrNotFound) { // the file is not open
		err = nil
	}
	return runs, next, err
}
