package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// Tail returns the end of a file, at most limit bytes of it, without escape
// sequences and as printable as [Result.Tail] promises. When the file is
// longer, the tail starts with a whole line if there is one. The file must be
// a regular one; links are not followed.
func Tail(name string, limit int64) (string, error) {
	return maskedTail(name, limit, nil)
}

// maskedTail is Tail with values hidden by mask, unless it is nil.
func maskedTail(name string, limit int64, mask Masker) (string, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("read tail: %s is not a regular file", name)
	}
	start := max(0, fi.Size()-limit)
	data, err := io.ReadAll(io.NewSectionReader(f, start, limit))
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	text := string(data)
	if start > 0 {
		if _, rest, ok := strings.Cut(text, "\n"); ok && rest != "" {
			text = rest
		}
	}
	if visible, err := io.ReadAll(jobevent.CensoredReader(strings.NewReader(text))); err == nil {
		text = string(visible)
	}
	if mask != nil {
		text = mask.MaskTail(text)
	}
	return printable(text), nil
}

// Prune removes the private data directories of an object's past runs from
// objectDir, which holds one per run, named by the run's ID. The newest keep
// are kept; 0 keeps none and a negative number all. Live runs are kept and not
// counted; so is whatever is no private data directory, such as the link to
// the latest run. Remains of directories that were never completed go.
func Prune(objectDir string, keep int, live ...string) error {
	root, err := os.OpenRoot(objectDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prune runs: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("prune runs: %w", err)
	}

	type run struct {
		id       string
		finished time.Time
	}
	var runs []run
	var errs []error
	for _, entry := range entries {
		id, building := runID(entry.Name())
		if !entry.IsDir() || id == "" || slices.Contains(live, id) {
			continue
		}
		if building {
			errs = append(errs, root.RemoveAll(entry.Name()))
			continue
		}
		if finished, ok := finishTime(root, id); ok {
			runs = append(runs, run{id, finished})
		}
	}
	if keep >= 0 && len(runs) > keep {
		slices.SortFunc(runs, func(a, b run) int {
			return cmp.Or(b.finished.Compare(a.finished), strings.Compare(a.id, b.id))
		})
		for _, r := range runs[keep:] {
			errs = append(errs, root.RemoveAll(r.id))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prune runs: %w", err)
	}
	return nil
}

// runID returns the ID of the run that a directory belongs to, and whether it
// was never completed.
func runID(name string) (id string, building bool) {
	id = name
	if inner, ok := strings.CutPrefix(name, "."); ok {
		id, building = strings.CutSuffix(inner, buildingSuffix)
		if !building {
			return "", false
		}
	}
	if !idPattern.MatchString(id) {
		return "", false
	}
	return id, building
}

// finishTime returns when the last artifact of a run was created, or, if there
// is none, when its private data directory was completed. It is not ok if the
// directory is no private data directory.
func finishTime(root *os.Root, id string) (time.Time, bool) {
	artifacts, err := root.Lstat(path.Join(id, "artifacts"))
	if err != nil || !artifacts.IsDir() {
		return time.Time{}, false
	}
	if fi, err := root.Lstat(path.Join(id, "artifacts", id)); err == nil && fi.IsDir() {
		return fi.ModTime(), true
	}
	return artifacts.ModTime(), true
}

// Remove removes an object's directory with all runs in it. If it is a link,
// the link is removed; that it does not exist is no error.
func Remove(objectDir string) error {
	if err := os.RemoveAll(objectDir); err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	return nil
}

// linkLatest makes artifacts/latest point to the run's artifacts, if it has
// any.
func linkLatest(dir, id string) error {
	root, err := os.OpenRoot(filepath.Join(dir, "artifacts"))
	if err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(id); err != nil {
		return nil
	}
	if err := root.Symlink(id, "latest"); err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	return nil
}
