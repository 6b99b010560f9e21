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

// Options are the options of [Open].
type Options struct {
	// Path is the path of the file. It is created with mode 0600 in an existing directory.
	Path string
	// MaxRuns, MaxAge and MaxBytes bound what is kept; the oldest runs are removed first.
	// MaxAge 0 is no limit.
	MaxRuns  int
	MaxAge   time.Duration
	MaxBytes int64
	Log      logr.Logger
}

// Store is the file with the runs that have ended. One goroutine writes it, [Store.Serve].
// Its other methods may be called concurrently.
//
// It is safe to kill the process at any time: a run is in the file completely or not at all.
type Store struct {
	opts Options
	now  func() time.Time
	// db is nil until the file is open.
	db atomic.Pointer[bbolt.DB]
	// leads is true once this process may open the file.
	leads atomic.Bool
	// opening is held while the file is opened. It guards said, the last logged reason why the file
	// cannot be opened.
	opening sync.Mutex
	said    string

	// wake receives a value when Serve has something to do.
	wake chan struct{}

	mu sync.Mutex
	// pending are the runs that are not written yet, the oldest first, and waits is their size.
	pending []Run
	waits   int64

	// bytes is the size of all values, and count the number of runs. After an error, nothing is
	// written before retry. Only the goroutine that writes uses them.
	bytes int64
	count int
	retry time.Time
}

// The buckets of the file. Each run has a key, which orders runs by their ends. briefs has
// what lists show, details the whole run, both by the key, and ids the key of each ID.
const (
	briefs  = "briefs"
	details = "details"
	ids     = "ids"
	meta    = "meta"
	// format is in meta; a file with another format is moved aside.
	formatKey, format = "format", "1"
)

func bucket(tx *bbolt.Tx, name string) *bbolt.Bucket { return tx.Bucket([]byte(name)) }

// New returns a history whose file is opened by [Store.Lead].
func New(o Options) *Store { return &Store{opts: o, now: time.Now, wake: make(chan struct{}, 1)} }

// Open returns a history for a process that leads, and opens its file.
func Open(o Options) (*Store, error) {
	s := New(o)
	return s, s.begin()
}

// Lead says that this process makes the runs from now on, and opens the file. Of several replicas
// on one volume, only the leader has the history. If the previous leader still has it open, or the
// disk is full, [Store.Serve] tries again. The operator works even if the history cannot be
// opened.
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

// begin opens the file, or creates it. It moves a damaged file aside, but not after an error of the
// system, such as a full disk, which does not mean that the file is damaged.
func (s *Store) begin() error {
	err := s.open()
	if err == nil || errors.Is(err, errInUse) || errors.As(err, new(syscall.Errno)) {
		return err
	}
	if err := s.moveAside(err); err != nil {
		return err
	}
	return s.open()
}

func (s *Store) open() (err error) {
	var db *bbolt.DB
	// A truncated file causes a fault when its memory map is read.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("history of runs %s: damaged: %v", s.opts.Path, p)
		}
		switch {
		case err == nil:
			s.db.Store(db)
		case db != nil:
			_ = db.Close() // err matters more
		}
	}()
	if db, err = s.openFile(); err != nil {
		return err
	}
	if err = s.prepare(db); err == nil {
		err = errors.Join(s.measure(db), db.Close()) // closing it unmaps the file, all of which counts as the process's memory now
	}
	if err != nil {
		return fmt.Errorf("history of runs %s: %w", s.opts.Path, err)
	}
	db, err = s.openFile()
	return err
}

// prepare initializes a new file. It writes nothing to an existing one, so that this can be read
// even if the disk is full.
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

// measure reads the whole file, so that damage shows now, and sets bytes, count and retry.
func (s *Store) measure(db *bbolt.DB) error {
	s.bytes, s.count, s.retry = 0, 0, time.Time{}
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

// wakeUp makes Serve check what there is to do.
func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it was told already
	}
}

// writeInterval is how long a run waits to be written: the runs of one interval are written
// together. ageInterval is the time between two checks for runs that have become too old,
// if no runs end meanwhile. retryInterval is the time until runs that could not be written are
// packed and written again.
const (
	writeInterval = time.Second
	ageInterval   = time.Minute
	retryInterval = ageInterval / 2
)

// Serve writes runs until ctx ends. Then it writes those that still wait, and closes the file.
func (s *Store) Serve(ctx context.Context) error {
	defer func() {
		if db := s.db.Load(); db != nil {
			_ = db.Close() // everything is written
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
		if ending && s.db.Load() != nil { // as long as it is nil, the goroutine that opens it sets retry
			s.retry = time.Time{}
		}
		s.write()
		if ending {
			return nil
		}
	}
}

// write writes the runs that wait, and removes runs beyond the limits. Runs that cannot be written, for instance
// because the disk is full, go on waiting until there are too many.
func (s *Store) write() {
	db := s.db.Load()
	if db == nil || s.now().Before(s.retry) {
		return
	}
	s.mu.Lock()
	runs := slices.Clone(s.pending)
	s.mu.Unlock()
	bytes, count := s.bytes, s.count
	err := s.guarded(db, func() error {
		old := s.opts.MaxAge > 0 && s.now().After(s.oldest(db).Add(s.opts.MaxAge))
		if len(runs) == 0 && !old {
			return nil
		}
		return db.Update(func(tx *bbolt.Tx) error {
			for _, r := range runs {
				if err := s.put(tx, r); err != nil {
					return err
				}
			}
			return s.retain(tx)
		})
	})
	if err == nil && s.db.Load() != db {
		err = errors.New("a reader has moved the damaged file aside")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.bytes, s.count, s.retry = bytes, count, s.now().Add(retryInterval)
		s.opts.Log.Error(err, "Runs cannot be written to the history yet", "runs", len(runs))
		return
	}
	if len(runs) > 0 {
		last := slices.IndexFunc(s.pending, func(r Run) bool { return r.ID == runs[len(runs)-1].ID }) // -1 if all have been dropped meanwhile
		for _, r := range s.pending[:last+1] {
			s.waits -= size(r)
		}
		s.pending = slices.Delete(s.pending, 0, last+1)
	}
}

// oldest returns when the oldest run ended; now if there is none.
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

// keyOf returns the key of a run: the time of its end, followed by its ID, since several may end at one time.
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
	if err != nil { // only this run is lost; the others are written
		s.opts.Log.Error(err, "A run is missing in the history", "run", r.ID)
		return nil
	}
	key := keyOf(r)
	s.bytes, s.count = s.bytes+int64(len(brief)+len(detail)), s.count+1
	return errors.Join(bucket(tx, briefs).Put(key, brief), bucket(tx, details).Put(key, detail), bucket(tx, ids).Put([]byte(r.ID), key))
}

// retain removes the oldest runs until the rest is within the limits.
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
