// Package filewatch reports which files of a project have changed.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is how long nothing must change before changes are reported: an editor writes
// a file in several steps, and git writes many files.
const quiet = 100 * time.Millisecond

// longest is how long reporting is delayed while changes do not stop.
const longest = time.Second

// maxDirectories limits how many directories are watched: each takes one of the kernel's
// watches, of which a user has some thousands.
const maxDirectories = 4096

// Watcher watches the files below a directory.
type Watcher struct {
	dir     string
	watcher *fsnotify.Watcher
	count   int
}

// New watches the files below dir, an absolute path, from now on. It leaves out hidden
// directories and those of other tools. Close the Watcher after use.
func New(dir string) (*Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &Watcher{dir: dir, watcher: watcher}
	if _, err := w.add(dir); err != nil {
		_ = watcher.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() error { return w.watcher.Close() }

// Next waits until files have changed and then stopped changing. It returns their paths,
// relative to the directory, sorted. They include files that were removed.
func (w *Watcher) Next(ctx context.Context) ([]string, error) {
	changed, created := map[string]bool{}, map[string]bool{}
	var rest, end <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event, ok := <-w.watcher.Events:
			if !ok {
				return nil, errors.New("the watch was closed")
			}
			paths, err := w.changed(event)
			if err != nil {
				return nil, err
			}
			for _, p := range paths {
				created[p] = created[p] || !changed[p] && event.Has(fsnotify.Create)
				changed[p] = true
			}
			if len(changed) > 0 {
				rest = time.After(quiet)
			}
			if end == nil && len(changed) > 0 {
				end = time.After(longest)
			}
			continue
		case err := <-w.watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil, fmt.Errorf("watch %s: %w", w.dir, err)
			}
			all, err := w.add(w.dir) // it is not known which files have changed
			if err != nil {
				return nil, err
			}
			for _, p := range all {
				changed[p] = true
			}
			if len(changed) > 0 {
				rest = time.After(quiet)
			}
			continue
		case <-rest:
		case <-end:
		}
		paths := make([]string, 0, len(changed))
		for p := range changed {
			// A file that was created and removed in between was a temporary file of some tool.
			if _, err := os.Lstat(filepath.Join(w.dir, p)); err == nil || !created[p] {
				paths = append(paths, p)
			}
		}
		if len(paths) == 0 {
			rest, end = nil, nil
			clear(changed)
			clear(created)
			continue
		}
		slices.Sort(paths)
		return paths, nil
	}
}

// changed returns the files that an event is about, including the files in a new directory.
func (w *Watcher) changed(event fsnotify.Event) ([]string, error) {
	if event.Op == fsnotify.Chmod || left(filepath.Base(event.Name)) {
		return nil, nil
	}
	if info, err := os.Stat(event.Name); err == nil && info.IsDir() {
		if !event.Has(fsnotify.Create) {
			return nil, nil
		}
		return w.add(event.Name)
	}
	return []string{w.relative(event.Name)}, nil
}

// add watches a directory and everything below it, and returns the files there.
func (w *Watcher) add(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was removed in the meantime
		case err != nil:
			return err
		case path != w.dir && left(entry.Name()) && entry.IsDir():
			return fs.SkipDir
		case !entry.IsDir():
			if !left(entry.Name()) {
				files = append(files, w.relative(path))
			}
			return nil
		}
		if w.count++; w.count > maxDirectories {
			w.count = len(w.watcher.WatchList()) + 1 // some of the counted ones may be gone
		}
		if w.count > maxDirectories {
			return fmt.Errorf("%s has more than %d directories: start in the directory of the project", w.dir, maxDirectories)
		}
		if err := w.watcher.Add(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return files, nil
}

func (w *Watcher) relative(path string) string {
	if rel, err := filepath.Rel(w.dir, path); err == nil {
		return filepath.ToSlash(rel)
	}
	return path
}

// left tells whether a file or directory is not part of the project's content: hidden files,
// editors' copies, and output of tools.
func left(name string) bool {
	switch name {
	case "__pycache__", "node_modules", "bin", "4913": // vim tries whether it may write with the last one
		return true
	}
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
		strings.HasSuffix(name, ".swp") || strings.HasSuffix(name, ".swx") || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".pyc")
}
