package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
)

// guarded calls use, which uses the open file db. If that panics, or the memory map cannot be read, the file is
// damaged or its disk has failed: it is moved aside, and [Store.Serve] opens a new one. The runs that wait are
// written to that.
func (s *Store) guarded(db *bbolt.DB, use func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err = fmt.Errorf("history of runs %s: damaged: %v", s.opts.Path, p)
		s.opening.Lock()
		defer s.opening.Unlock()
		// The file is not closed: that would wait for locks that are held for ever after some panics.
		if s.db.CompareAndSwap(db, nil) {
			err = cmp.Or(s.moveAside(err), err)
			s.wakeUp()
		}
	}()
	return use()
}

// moveAside renames the file, which is damaged, and logs why. If it cannot, it returns an error with both reasons.
func (s *Store) moveAside(why error) error {
	aside := s.opts.Path + ".damaged"
	if err := os.Rename(s.opts.Path, aside); err != nil {
		return errors.Join(why, err)
	}
	s.opts.Log.Error(why, "The history of runs cannot be read, and begins again", "kept", aside)
	return nil
}
