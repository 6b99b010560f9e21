package remote

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// write puts a file into the run's directory, completely or not at all.
func (s *Session) write(name string, data io.Reader) (err error) {
	building := path.Join(path.Dir(name), "."+path.Base(name)+".new")
	file, err := s.dir.OpenFile(building, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = s.dir.Rename(building, name)
	}
	if err != nil {
		_ = s.dir.Remove(building)
	}
	return err
}

// note keeps an error of the disk until the next successful write, or the error that the run has sent too much.
func (s *Session) note(err error) {
	disk, renaming := (*fs.PathError)(nil), (*os.LinkError)(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.As(err, &disk), errors.As(err, &renaming), errors.Is(err, errTooMuch): // other errors come from the container or the connection
		s.trouble = err
	case err == nil:
		s.trouble = nil
	}
}

// Trouble returns why the last data from the container could not be written; nil if it was written. The container sends the
// data again, unless the error is [runner.ErrTooLarge].
func (s *Session) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}
