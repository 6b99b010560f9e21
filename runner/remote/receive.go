package remote

import (
	"archive/tar"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/runner"
)

// hearing is the body of a Pod's request. Each piece that arrives counts as a sign of life.
type hearing struct {
	io.Reader
	s *Session
}

// Read implements [io.Reader].
func (h hearing) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if n > 0 {
		h.s.hear()
	}
	return n, err
}

// receive puts files where they belong. Each is written completely or not at all.
func (s *Session) receive(body io.Reader) error {
	files := tar.NewReader(body)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if parts := reportsName.FindStringSubmatch(header.Name); parts != nil && header.Typeflag == tar.TypeReg {
			err := s.report(parts[1], header.Size, files)
			s.tell("")
			if err != nil {
				return err
			}
			continue
		}
		place, counter, ok := s.place(header.Name)
		if !ok || header.Typeflag != tar.TypeReg || isSparse(header) {
			return errRefused
		}
		// The container states the size. Even a small file uses some space. A file that is sent again replaces the one
		// before, but both exist meanwhile.
		size, before := taken(min(header.Size, math.MaxInt64/2)), int64(0)
		if is, err := s.dir.Lstat(place); err == nil {
			before = taken(is.Size())
		}
		if s.limit > 0 && (header.Size < 0 || size > s.limit-s.bytes) {
			s.over = true
			return errTooMuch
		}
		if err := s.write(place, files); err != nil {
			return err // the container sends it again
		}
		s.tell(path.Base(place))
		s.bytes += size - before
		s.have = max(s.have, counter)
		if place == runner.OutcomeFile {
			s.over = true
			close(s.Done)
			return nil
		}
	}
}

// tell announces an event, by its name, or with an empty name new reports.
func (s *Session) tell(name string) {
	select {
	case s.Told <- name:
	default: // Told is full: its reader will list the directory
	}
}

// isSparse tells whether an entry of an archive is a sparse file: a few hundred bytes of it could expand to as many as a
// run may leave, again and again. This program never sends one.
func isSparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// report adds a piece of a command's reports. The piece may begin with bytes that were already received.
func (s *Session) report(offset string, size int64, piece io.Reader) error {
	from, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || s.reports < from || size < 0 || size > reportsLimit-from {
		return errRefused
	}
	if size <= s.reports-from {
		return nil
	}
	if _, err := io.CopyN(io.Discard, piece, s.reports-from); err != nil {
		return err
	}
	file, err := s.dir.OpenFile(s.artifact(runner.ReportsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, piece)
	s.reports += n
	return errors.Join(err, file.Close())
}

// artifact returns the path of an artifact in the run's directory.
func (s *Session) artifact(name string) string { return path.Join("artifacts", s.id, name) }

// place returns where a file from a container belongs in the run's directory, and the counter of an event, else 0. ok is
// false for a file that does not belong to a run.
func (s *Session) place(name string) (place string, counter int, ok bool) {
	artifacts, private := lastFiles()
	if event, is := strings.CutPrefix(name, eventsDir); is {
		n, ok := counterOf(event)
		return s.artifact(name), n, ok
	}
	switch {
	case slices.Contains(artifacts, name):
		return s.artifact(name), 0, true
	case slices.Contains(private, name), name == runner.OutcomeFile:
		return name, 0, true
	}
	return "", 0, false
}
