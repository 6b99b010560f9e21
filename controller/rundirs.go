package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/runner"
)

// rundirs lays out the private data directories below the runner root:
//
//	.runs/<uid>/<run ID>                     one per run
//	<group>/<version>/<Kind>/<namespace>/<name>   link to an object's latest run
//
// The links are ansible-operator's documented paths. What decides about a
// directory is the object's UID and the run's ID, never a name.
type rundirs struct {
	root string
	log  logr.Logger
	// archive knows the finished runs.
	archive *archive
}

const runsDir = ".runs"

func newRundirs(opts *Options, log logr.Logger) (*rundirs, error) {
	root, err := filepath.Abs(opts.RunnerRoot)
	if err != nil {
		return nil, fmt.Errorf("runner root: %w", err)
	}
	runs := filepath.Join(root, runsDir)
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return nil, fmt.Errorf("create the runner root %s: %w; choose a writable directory with --runner-root", root, err)
	}
	if err := checkOwners(runs); err != nil {
		return nil, err
	}
	info, err := os.Lstat(runs)
	if err != nil {
		return nil, fmt.Errorf("runner root: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory; remove it or choose another --runner-root", runs)
	}
	if err := os.Chmod(runs, 0o700); err != nil {
		return nil, fmt.Errorf("%s belongs to another user: %w; choose another --runner-root", runs, err)
	}
	return &rundirs{root: root, log: log, archive: newArchive(runs, opts.ArtifactsMaxBytes, opts.Metrics, log)}, nil
}

// checkOwners refuses a path of which another user may have prepared a part:
// below a directory in which everybody may create files, such as /tmp, each
// part of the path must belong to us or to root, be it a directory or a link.
func checkOwners(path string) error {
	exposed := false
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		part := path[:i]
		info, err := os.Lstat(part)
		if err != nil {
			return fmt.Errorf("runner root: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && exposed && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to the user %d and stands where everybody may create files; "+
				"remove it or choose another --runner-root", part, st.Uid)
		}
		if info.IsDir() && info.Mode().Perm()&0o002 != 0 {
			exposed = true
		}
	}
	return nil
}

// object is the directory of all runs of one object.
func (d *rundirs) object(uid types.UID) string {
	name := string(uid)
	if !runner.IsID(name) {
		sum := sha256.Sum256([]byte(uid))
		name = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(d.root, runsDir, name)
}

// run is the directory of one run. What is no ID of a run has none.
func (d *rundirs) run(uid types.UID, id string) (string, error) {
	if !runner.IsID(id) {
		return "", fmt.Errorf("%.40q is no ID of a run", id)
	}
	return filepath.Join(d.object(uid), id), nil
}

// create makes room for a run and returns the path of its private data
// directory, which does not exist yet. Until finish is called, nothing is
// removed of it.
func (d *rundirs) create(uid types.UID, runID string) (string, error) {
	dir, err := d.run(uid, runID)
	if err != nil {
		return "", err
	}
	object := filepath.Dir(dir)
	d.archive.begin(filepath.Base(object), runID)
	if err := d.withRoom(func() error { return os.MkdirAll(object, 0o700) }); runner.IsNoSpace(err) {
		return "", fmt.Errorf("%w: create the directory of the object's runs: %w", runner.ErrNoSpace, err)
	} else if err != nil {
		return "", fmt.Errorf("create the directory of the object's runs: %w", err)
	}
	return dir, nil
}

// finish is called when the end of a run is in the status.
func (d *rundirs) finish(uid types.UID, runID string, keep retention) {
	if runner.IsID(runID) {
		d.archive.finish(filepath.Base(d.object(uid)), runID, keep)
	}
}

// settled is called when no run of the object is in progress or unrecorded.
func (d *rundirs) settled(uid types.UID, keep retention) {
	d.archive.settled(filepath.Base(d.object(uid)), keep)
}

// link points the documented path of an object to one of its runs. A path that
// cannot be had costs a log line, not the run.
func (d *rundirs) link(gvk schema.GroupVersionKind, key types.NamespacedName, dir string) {
	path := d.documented(gvk, key)
	if path == "" {
		return
	}
	if err := d.replaceLink(path, dir); err != nil {
		d.log.Info("Documented runner path cannot be linked", "path", path, "error", err.Error())
	}
}

// documented is ansible-operator's path for an object; empty if its names do not
// make a path.
func (d *rundirs) documented(gvk schema.GroupVersionKind, key types.NamespacedName) string {
	path := d.root
	for _, part := range []string{gvk.Group, gvk.Version, gvk.Kind, key.Namespace, key.Name} {
		if part == "" {
			continue
		}
		if !filepath.IsLocal(part) || filepath.Base(part) != part || part == "." {
			return ""
		}
		path = filepath.Join(path, part)
	}
	return path
}

func (d *rundirs) replaceLink(path, dir string) error {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if path, err = filepath.Rel(d.root, path); err != nil {
		return err
	}
	parent := filepath.Dir(path)
	target, err := filepath.Rel(filepath.Join(d.root, parent), dir)
	if err != nil {
		return err
	}
	if info, err := root.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSymlink {
		return errors.New("something else stands there; remove it")
	}
	tmp := path + "%new" // no object has a percent sign in its name
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	// A parent may go at the same time with the last of its objects.
	const tries = 3
	for range tries {
		if err = root.MkdirAll(parent, 0o700); err == nil {
			err = root.Symlink(target, tmp)
		}
		if err == nil {
			return root.Rename(tmp, path)
		}
	}
	return err
}

// remove removes everything of an object that is gone.
func (d *rundirs) remove(gvk schema.GroupVersionKind, key types.NamespacedName, uid types.UID) error {
	dir := d.object(uid)
	if path := d.documented(gvk, key); path != "" {
		// Another object may have taken over the name, and the link with it.
		if target, err := filepath.EvalSymlinks(path); err != nil || filepath.Dir(target) == dir {
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSymlink {
				if err := os.Remove(path); err != nil {
					return fmt.Errorf("remove the link of a deleted object: %w", err)
				}
				for dir := filepath.Dir(path); dir != d.root && os.Remove(dir) == nil; {
					dir = filepath.Dir(dir) // which other objects have no need of
				}
			}
		}
	}
	return d.archive.forget(filepath.Base(dir))
}
