package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Options are those of [Open].
type Options struct {
	// Path is the file. It is created with mode 0600 in a directory that exists.
	Path string
	// MaxRuns, MaxAge and MaxBytes bound what is kept; the oldest runs go first.
	MaxRuns  int
	MaxAge   time.Duration
	MaxBytes int64
	Log      logr.Logger
}

// Store is the file with the runs that have ended. One goroutine writes it, [Store.Serve].
// Its other methods may be called concurrently.
//
// It is safe to kill the process at any time: a run is in the file whole or not at all.
type Store struct {
	opts Options
	now  func() time.Time
	// db is nil until the file is open.
	db atomic.Pointer[bbolt.DB]
	// leads is true once the file is this process's to open.
	leads atomic.Bool
	// opening is held while the file is opened; it guards said, which is why that fails, as the log
	// says.
	opening sync.Mutex
	said    string

	// wake has something when there is something to do.
	wake chan struct{}

	mu sync.Mutex
	// pending are the runs that are not written yet, the oldest first.
	pending []Run

	// bytes are those of all values, and count is how many runs there are. They belong to
	// the goroutine that writes.
	bytes int64
	count int
}

// Each run has a key, by which runs are in the order of their ends. briefs has what lists
// show, details the rest, and ids the key of each run.
const (
	briefs  = "briefs"
	details = "details"
	ids     = "ids"
	meta    = "meta"
	// format is in meta; a file of another one is begun again.
	formatKey, format = "format", "1"
)

func bucket(tx *bbolt.Tx, name string) *bbolt.Bucket { return tx.Bucket([]byte(name)) }

// maxPending is how many runs wait to be written.
const maxPending = 1000

// New returns a history whose file is opened by [Store.Lead].
func New(o Options) *Store { return &Store{opts: o, now: time.Now, wake: make(chan struct{}, 1)} }

// Open returns a history of a process that leads, whose file is open.
func Open(o Options) (*Store, error) {
	s := New(o)
	return s, s.begin()
}

// Lead says that this process makes the runs from now on, and opens the file. Of several
// replicas on one volume, only the one that leads has the history; where the one before has it
// open still, or the disk is full, [Store.Serve] tries again. A history that cannot be opened
// keeps no operator from its work.
func (s *Store) Lead() {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.leads.Store(true)
	if s.db.Load() != nil {
		return
	}
	err := s.begin()
	if err == nil || errors.Is(err, errInUse) {
		s.wakeUp() // runs may wait to be written, or the other process may end
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	switch {
	case said == s.said:
	case err == nil:
		s.opts.Log.Info("The history of runs is open", "path", s.opts.Path)
	case errors.Is(err, errInUse):
		s.opts.Log.Info("The history of runs is in use by another process, as a replica or an operator with the same --runner-root; this one has no earlier runs until that ends", "path", s.opts.Path)
	default:
		s.opts.Log.Error(err, "The history of runs cannot be opened, which is tried again each minute; until then runs are kept in memory", "runs", maxPending)
	}
	s.said = said
}

// errInUse is the error of open if another process has the file open.
var errInUse = errors.New("another process has it open")

// begin opens the history, or begins it. One that is damaged is moved aside. An error of the
// system, as of a full disk, says nothing of the file.
func (s *Store) begin() error {
	err := s.open()
	if err == nil || errors.Is(err, errInUse) || errors.As(err, new(syscall.Errno)) {
		return err
	}
	aside := s.opts.Path + ".damaged"
	if moved := os.Rename(s.opts.Path, aside); moved != nil {
		return errors.Join(err, moved)
	}
	s.opts.Log.Error(err, "The history of runs cannot be read, and begins again", "kept", aside)
	return s.open()
}

func (s *Store) open() (err error) {
	var db *bbolt.DB
	// A file that was cut short faults where it is mapped into memory.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("history of runs %s: damaged: %v", s.opts.Path, p)
		}
		switch {
		case err == nil:
			s.db.Store(db)
		case db != nil:
			_ = db.Close() // the error is at hand
		}
	}()
	if db, err = s.openFile(); err != nil {
		return err
	}
	if err = s.prepare(db); err == nil {
		err = errors.Join(s.measure(db), db.Close()) // all of the file is in the process's memory now
	}
	if err != nil {
		return fmt.Errorf("history of runs %s: %w", s.opts.Path, err)
	}
	db, err = s.openFile()
	return err
}

// prepare makes what a new file lacks. It writes nothing to another one, so that it can be read
// where the disk is full.
func (s *Store) prepare(db *bbolt.DB) error {
	var is string
	err := db.View(func(tx *bbolt.Tx) error {
		if m := bucket(tx, meta); m != nil {
			is = string(m.Get([]byte(formatKey)))
		}
		return nil
	})
	switch {
	case err != nil || is == format:
		return err
	case is != "":
		return fmt.Errorf("format %q is none of this version", is)
	}
	return db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{briefs, details, ids, meta} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return bucket(tx, meta).Put([]byte(formatKey), []byte(format))
	})
}

func (s *Store) openFile() (*bbolt.DB, error) {
	db, err := bbolt.Open(s.opts.Path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = errInUse
	}
	if err != nil {
		return nil, fmt.Errorf("history of runs %s: %w", s.opts.Path, err)
	}
	return db, nil
}

// measure reads all of the file, so that what is damaged shows now.
func (s *Store) measure(db *bbolt.DB) error {
	s.bytes, s.count = 0, 0
	return db.View(func(tx *bbolt.Tx) error {
		return bucket(tx, briefs).ForEach(func(key, value []byte) error {
			detail := bucket(tx, details).Get(key)
			s.count, s.bytes = s.count+1, s.bytes+int64(len(value)+len(detail))
			if len(key) <= 8 || !bytes.Equal(bucket(tx, ids).Get(key[8:]), key) {
				return fmt.Errorf("run %x has no ID", key)
			}
			_, err := unpack(detail)
			return err
		})
	})
}

// Add hands over a run that has ended. It does not wait: where runs end faster than they
// can be written, the oldest are lost.
func (s *Store) Add(r Run) {
	s.mu.Lock()
	var missing string
	if len(s.pending) == maxPending {
		missing = s.pending[0].ID
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	s.pending = append(s.pending, r)
	s.mu.Unlock()
	s.wakeUp()
	if missing != "" && s.db.Load() != nil {
		s.opts.Log.Info("A run is missing in the history: too many wait to be written", "job", missing)
	}
}

// wakeUp has Serve look what there is to do.
func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it will
	}
}

// writeInterval is the longest time for which a run waits to be written: those of one
// interval are written together. ageInterval is how often runs are looked for that have
// become too old while there are no others.
const (
	writeInterval = time.Second
	ageInterval   = time.Minute
)

// Serve writes until ctx ends, then what is still there, and closes the file.
func (s *Store) Serve(ctx context.Context) error {
	defer func() {
		if db := s.db.Load(); db != nil {
			_ = db.Close() // all of it is written
		}
	}()
	tick := time.NewTicker(ageInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-s.wake:
			select {
			case <-ctx.Done():
			case <-time.After(writeInterval):
			}
		}
		ending := ctx.Err() != nil
		if s.leads.Load() && s.db.Load() == nil {
			s.Lead()
		}
		s.write()
		if ending {
			return nil
		}
	}
}

// write writes the runs that wait, and removes what is too much. Runs that cannot be written, as on a full disk,
// wait on, until they are too many.
func (s *Store) write() {
	db := s.db.Load()
	if db == nil {
		return
	}
	s.mu.Lock()
	runs := slices.Clone(s.pending)
	s.mu.Unlock()
	bytes, count := s.bytes, s.count
	old := s.opts.MaxAge > 0 && s.now().After(s.oldest(db).Add(s.opts.MaxAge))
	if len(runs) == 0 && !old {
		return
	}
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, r := range runs {
			if err := s.put(tx, r); err != nil {
				return err
			}
		}
		return s.retain(tx)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.bytes, s.count = bytes, count
		s.opts.Log.Error(err, "Runs cannot be written to the history yet", "runs", len(runs))
		return
	}
	if len(runs) > 0 {
		last := slices.IndexFunc(s.pending, func(r Run) bool { return r.ID == runs[len(runs)-1].ID }) // -1 if all have been dropped meanwhile
		s.pending = slices.Delete(s.pending, 0, last+1)
	}
}

// oldest is when the oldest run has ended; now if there is none.
func (s *Store) oldest(db *bbolt.DB) time.Time {
	at := s.now()
	_ = db.View(func(tx *bbolt.Tx) error { // it cannot fail
		if key, _ := bucket(tx, briefs).Cursor().First(); key != nil {
			at = timeOf(key)
		}
		return nil
	})
	return at
}

// keyOf is the key of a run: its end, and its ID where two have the same.
func keyOf(r Run) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.Finished.UnixNano())), r.ID...)
}

func timeOf(key []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(key)))
}

func (s *Store) put(tx *bbolt.Tx, r Run) error {
	if bucket(tx, ids).Get([]byte(r.ID)) != nil {
		return nil // its end was recorded twice, as after a restart
	}
	brief, err := json.Marshal(r.Brief)
	var detail []byte
	if err == nil {
		detail, err = pack(r)
	}
	if err != nil { // of this run; the others are written
		s.opts.Log.Error(err, "A run is missing in the history", "run", r.ID)
		return nil
	}
	key := keyOf(r)
	s.bytes, s.count = s.bytes+int64(len(brief)+len(detail)), s.count+1
	return errors.Join(bucket(tx, briefs).Put(key, brief), bucket(tx, details).Put(key, detail), bucket(tx, ids).Put([]byte(r.ID), key))
}

// retain removes the oldest runs while there is too much.
func (s *Store) retain(tx *bbolt.Tx) error {
	b, d := bucket(tx, briefs), bucket(tx, details)
	for {
		key, value := b.Cursor().First()
		tooOld := key != nil && s.opts.MaxAge > 0 && s.now().Sub(timeOf(key)) > s.opts.MaxAge
		if key == nil || s.count <= s.opts.MaxRuns && s.bytes <= s.opts.MaxBytes && !tooOld {
			return nil
		}
		s.bytes, s.count = s.bytes-int64(len(value)+len(d.Get(key))), s.count-1
		id := bytes.Clone(key[8:])
		if err := errors.Join(d.Delete(key), bucket(tx, ids).Delete(id), b.Delete(key)); err != nil {
			return err
		}
	}
}

func pack(r Run) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(r), w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(packed []byte) (r Run, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return r, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}
