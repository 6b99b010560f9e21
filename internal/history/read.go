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

// view reads the file; where it is not open, nothing is in it.
func (s *Store) view(read func(tx *bbolt.Tx) error) error {
	if db := s.db.Load(); db != nil {
		return db.View(read) // what read returns
	}
	return ErrNotFound
}

// ErrNotFound is in the chain of [Store.Run]'s error where the run is not kept, or not
// any more.
var ErrNotFound = errors.New("no such run is kept")

// ErrSeveral is in the chain of [Store.Run]'s error where the IDs of several runs begin so.
var ErrSeveral = errors.New("several IDs begin so; give more of it")

// Run returns a run by its ID, or by the beginning of its ID if no other begins so.
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

// only is the run whose ID begins so; an empty one if there is none.
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

// either is the run that was found first, if any, or the one that was found then, or the
// error of that. They may be the same run, which has gone on meanwhile.
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
	// Wants tells whether a run is one of them; nil for all. It may be called for runs
	// that are not returned.
	Wants func(Brief) bool
	// Namespace, Name and Result are those of all runs that Wants wants; empty where they differ.
	// What has others is passed over fast.
	Namespace, Name, Result string
	// Limit is how many are returned at most.
	Limit int
	// Before is what an earlier call has returned as next; empty to begin with the newest.
	Before string
}

// marks are what the stored form of each run has that q asks for.
func (q Query) marks() (marks [][]byte) {
	for _, is := range [][2]string{{"namespace", q.Namespace}, {"name", q.Name}, {"result", q.Result}} {
		if text, err := json.Marshal(is[1]); err == nil && is[1] != "" {
			marks = append(marks, append([]byte(`"`+is[0]+`":`), text...))
		}
	}
	return marks
}

// waiting are the runs that are not written yet, the newest first.
func (s *Store) waiting() []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := slices.Clone(s.pending)
	slices.Reverse(runs)
	return runs
}

// Runs returns runs, the newest first, and where to go on; empty at the end.
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
			if lacks(value) { // to decode all takes long
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
	if s.db.Load() == nil && before == "" {
		err = nil
	}
	return runs, next, err
}
