package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

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
// The links are the incumbent's documented paths. What decides about a
// directory is the object's UID and the run's ID, never a name.
type rundirs struct {
	root string
	log  logr.Logger
}

const runsDir = ".runs"

func newRundirs(root string, log logr.Logger) (*rundirs, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("runner root: %w", err)
	}
	runs := filepath.Join(root, runsDir)
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return nil, fmt.Errorf("create the runner root %s: %w; choose a writable directory with --runner-root", root, err)
	}
	info, err := os.Lstat(runs)
	if err != nil {
		return nil, fmt.Errorf("runner root: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory; remove it or choose another --runner-root", runs)
	}
	if err := os.Chmod(runs, 0o700); err != nil {
		return nil, fmt.Errorf("%s belongs to somebody else: %w; choose another --runner-root", runs, err)
	}
	return &rundirs{root: root, log: log}, nil
}

// object is the directory of all runs of one object.
func (d *rundirs) object(uid types.UID) string {
	name := string(uid)
	if !regexp.MustCompile(`^[0-9A-Za-z-]{8,64}$`).MatchString(name) {
		sum := sha256.Sum256([]byte(uid))
		name = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(d.root, runsDir, name)
}

// create makes room for a run and returns the path of its private data
// directory, which does not exist yet.
func (d *rundirs) create(uid types.UID, runID string) (string, error) {
	dir := d.object(uid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the directory of the object's runs: %w", err)
	}
	return filepath.Join(dir, runID), nil
}

// link points the documented path of an object to one of its runs. A path that
// cannot be had costs a log line, not the run.
func (d *rundirs) link(gvk schema.GroupVersionKind, key types.NamespacedName, dir string) {
	path := d.documented(gvk, key)
	if path == "" {
		return
	}
	if err := replaceLink(path, dir); err != nil {
		d.log.Info("Documented runner path cannot be linked", "path", path, "error", err.Error())
	}
}

// documented is the incumbent's path for an object; empty if its names do not
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

func replaceLink(path, dir string) error {
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	target, err := filepath.Rel(parent, dir)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSymlink {
		return errors.New("something else stands there; remove it")
	}
	tmp := path + "%new" // no object has a percent sign in its name
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// prune removes the oldest runs of an object beyond keep; less than 0 keeps all.
func (d *rundirs) prune(uid types.UID, keep int) error {
	return runner.Prune(d.object(uid), keep)
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
			}
		}
	}
	return runner.Remove(dir)
}
