// Package rundir knows the private data directories of runs on disk: which there are,
// how large they are, and how what is no longer needed is removed from them.
//
// It does not know how a run is made, and trusts nothing in a directory, since a run can
// write there.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Home is the home directory of a command, in the private data directory of its run.
const Home = "home"

// idPattern matches valid IDs of runs. An ID becomes an argument and the name
// of a directory.
var idPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)

// IsID tells whether a text can be the ID of a run, and thus the name of a
// directory and not a longer path.
func IsID(text string) bool { return idPattern.MatchString(text) }

// buildingSuffix ends the name of a directory that is not complete.
const buildingSuffix = ".building"

// Building is the path of the private data directory dir while it is not complete.
func Building(dir string) string {
	parent, base := filepath.Split(dir)
	return filepath.Join(parent, "."+base+buildingSuffix)
}

// Past is the complete private data directory of a run.
type Past struct {
	// ID is the ID of the run and the name of the directory.
	ID string
	// Finished is when the last artifact was created or, without artifacts,
	// when the directory was completed.
	Finished time.Time
}

// Runs lists the private data directories in objectDir, which holds one for
// each run of an object. remains maps the names of directories that were not
// completed, or not removed completely, to the IDs of their runs. Everything
// else, such as the link to the latest run, is left out. It is no error if
// objectDir does not exist.
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

// runID returns the ID of the run that a directory belongs to, empty if it is
// no directory of a run. partial tells that the directory is not yet complete,
// or is being removed.
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
	if !IsID(id) {
		return "", false
	}
	return id, partial
}

// finishTime returns [Past.Finished] of a run; it is not ok if the directory is
// no private data directory.
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

// removingSuffix ends the name of a directory that is being removed: if the
// removal is interrupted, the rest is not mistaken for a complete directory.
const removingSuffix = ".removing"

// Remove removes the directory of a run, the directory of an object with all
// its runs, or the remains of either. If dir is a link, only the link is
// removed. Other names are refused. It is no error if dir does not exist.
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
		// If the rename fails, as on a file system that is full to the last
		// block, the removal may still work.
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

// unlock gives the owner access again to directories whose mode a playbook has
// restricted.
func unlock(root *os.Root, dir string) {
	if fi, err := root.Lstat(dir); err != nil || !fi.IsDir() {
		return
	}
	// If this fails, so does the removal, which reports it.
	_ = root.Chmod(dir, 0o700)
	entries, _ := fs.ReadDir(root.FS(), dir)
	for _, entry := range entries {
		if entry.IsDir() {
			unlock(root, path.Join(dir, entry.Name()))
		}
	}
}

// Strip removes the inputs of an ended run, which nothing needs any more, from
// its private data directory dir, whose base name is the run's ID: env with the
// extra vars and the environment, the home directory of a command, the
// environment in ansible-runner's artifact "command", the artifact "fact_cache",
// and the named files. It follows no link out of dir.
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
	for _, name := range append(files, "env", Home) {
		errs = append(errs, root.RemoveAll(name))
	}
	artifacts, err := root.OpenRoot(path.Join("artifacts", id))
	if err == nil { // else it is a link to the outside, or does not exist
		errs = append(errs, artifacts.RemoveAll("fact_cache"), stripCommand(artifacts), artifacts.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("strip private data dir: %w", err)
	}
	return nil
}

// commandLimit bounds the size of the artifact "command", which consists mostly
// of the environment.
const commandLimit = 8 << 20

// stripCommand reduces the artifact "command" to the command and the working
// directory, or removes it.
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

// Usage returns the disk space of a directory and its contents, in bytes.
// What cannot be read does not count.
func Usage(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has gone, or is closed
		}
		if fi, err := entry.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				const block = 512 // independent of the file system: stat(2)
				sum += st.Blocks * block
			}
		}
		return nil
	})
	return sum
}

// Space returns the size of the file system of a directory, and how much of it is
// still available, in bytes.
func Space(dir string) (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}
