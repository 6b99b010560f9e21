package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Tail returns the end of a file, at most limit bytes of it, without escape
// sequences and as printable as [Result.Tail] promises. When the file is
// longer, the tail starts with a whole line if there is one. The file must be
// a regular one; links are not followed.
func Tail(name string, limit int64) (string, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	return tailOf(f, limit, nil)
}

// tailBelow is Tail of a file in the directory of a run, which may have put
// links there, with values hidden by mask, unless it is nil.
func tailBelow(dir, name string, limit int64, mask Masker) (string, error) {
	f, err := plainfile.OpenBelow(dir, name)
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	return tailOf(f, limit, mask)
}

// tailOf reads the tail of a file and closes it.
func tailOf(f *os.File, limit int64, mask Masker) (string, error) {
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	start := max(0, fi.Size()-limit)
	data, err := io.ReadAll(io.NewSectionReader(f, start, limit))
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	tail := string(data)
	if start > 0 {
		if _, rest, ok := strings.Cut(tail, "\n"); ok && rest != "" {
			tail = rest
		}
	}
	if visible, err := io.ReadAll(jobevent.CensoredReader(strings.NewReader(tail))); err == nil {
		tail = string(visible)
	}
	tail = text.Plain(tail)
	if mask != nil {
		tail = mask.MaskTail(tail)
	}
	return tail, nil
}

// Past is the private data directory of a run that was made some time.
type Past struct {
	// ID is the run's, and the name of the directory.
	ID string
	// Finished is when the last artifact was created, or, without one, when
	// the directory was completed.
	Finished time.Time
}

// Runs lists the private data directories in objectDir, which holds one for
// each run of an object, and, by their names, the remains of directories that
// were never completed or never removed whole, with the ID of the run each is
// of. What is neither, such as the link to the latest run, is not listed. That
// objectDir does not exist is no error.
func Runs(objectDir string) (runs []Past, remains map[string]string, err error) {
	root, err := plainfile.OpenDir(objectDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list runs: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, fmt.Errorf("list runs: %w", err)
	}
	remains = map[string]string{}
	for _, entry := range entries {
		id, partial := runID(entry.Name())
		if !entry.IsDir() || id == "" {
			continue
		}
		if partial {
			remains[entry.Name()] = id
		} else if finished, ok := finishTime(root, id); ok {
			runs = append(runs, Past{id, finished})
		}
	}
	return runs, remains, nil
}

// runID returns the ID of the run that a directory belongs to, and whether it
// is not complete, or not any more.
func runID(name string) (id string, partial bool) {
	id = name
	if inner, ok := strings.CutPrefix(name, "."); ok {
		if id, partial = strings.CutSuffix(inner, buildingSuffix); !partial {
			id, partial = strings.CutSuffix(inner, removingSuffix)
		}
		if !partial {
			return "", false
		}
	}
	if !idPattern.MatchString(id) {
		return "", false
	}
	return id, partial
}

// finishTime is not ok if the directory is no private data directory.
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

// removingSuffix ends the name of a directory that is being removed: what is
// left of it if that is cut short is not taken for a whole one.
const removingSuffix = ".removing"

// Remove removes a directory: that of a run, or that of an object with all its
// runs, or what is left of one. If it is a link, the link is removed; nothing
// outside is touched. What has another name is refused. That it does not exist
// is no error.
func Remove(dir string) error {
	if id, _ := runID(filepath.Base(dir)); id == "" {
		return fmt.Errorf("remove runs: %q is not a directory of a run", dir)
	}
	parent, err := plainfile.OpenDir(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	defer parent.Close()
	name := filepath.Base(dir)
	if _, partial := runID(name); !partial {
		// Where it cannot be renamed, on a file system that is full to the
		// last block, it may still be removed.
		if removing := "." + name + removingSuffix; parent.Rename(name, removing) == nil {
			name = removing
			failpoint.Hit("forget.half-removed")
		}
	}
	err = parent.RemoveAll(name)
	if errors.Is(err, fs.ErrPermission) {
		unlock(parent, name)
		err = parent.RemoveAll(name)
	}
	if err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	return nil
}

// unlock gives its owner back the directories that a playbook has closed.
func unlock(root *os.Root, dir string) {
	if fi, err := root.Lstat(dir); err != nil || !fi.IsDir() {
		return
	}
	// What does not work shows when it is removed.
	_ = root.Chmod(dir, dirMode)
	entries, _ := fs.ReadDir(root.FS(), dir)
	for _, entry := range entries {
		if entry.IsDir() {
			unlock(root, path.Join(dir, entry.Name()))
		}
	}
}

// Strip removes from the private data directory of a run that has ended, which
// has the run's ID for its name, what it was given and nothing needs any more:
// env with the extra vars and the environment, the home directory of a command, the environment in
// ansible-runner's artifacts "command" and "fact_cache", and the named files.
// Nothing outside dir is touched, whatever was put into it.
func Strip(dir string, files ...string) error {
	id := filepath.Base(dir)
	if !IsID(id) {
		return fmt.Errorf("strip private data dir: %.40q is not a run ID", id)
	}
	root, err := plainfile.OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("strip private data dir: %w", err)
	}
	defer root.Close()
	var errs []error
	for _, name := range append(files, "env", homeDir) {
		errs = append(errs, root.RemoveAll(name))
	}
	artifacts, err := root.OpenRoot(path.Join("artifacts", id))
	if err == nil { // else it leads outside, or there is none
		errs = append(errs, artifacts.RemoveAll("fact_cache"), stripCommand(artifacts), artifacts.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("strip private data dir: %w", err)
	}
	return nil
}

// commandLimit bounds the artifact "command", of which the environment is most.
const commandLimit = 8 << 20

// stripCommand leaves the command and the working directory in the artifact
// that names them, or nothing of it.
func stripCommand(artifacts *os.Root) error {
	const name = "command"
	var said struct {
		Command any `json:"command"`
		Cwd     any `json:"cwd"`
	}
	data, err := plainfile.ReadIn(artifacts, name, commandLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &said)
	}
	if err == nil {
		data, err = json.Marshal(said)
	}
	if err == nil {
		err = plainfile.ReplaceIn(artifacts, name, data)
	}
	if err != nil {
		return artifacts.RemoveAll(name)
	}
	return nil
}

// linkLatest makes artifacts/latest point to the run's artifacts, if it has
// any.
func linkLatest(dir, id string) error {
	root, err := plainfile.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	defer root.Close()
	if fi, err := root.Lstat(path.Join("artifacts", id)); err != nil || !fi.IsDir() {
		return nil
	}
	if err := root.Symlink(id, "artifacts/latest"); err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	return nil
}
