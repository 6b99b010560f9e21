// Package collection has the Ansible collections that come with Rolewright:
// rolewright.operator, and those modules of operator_sdk.util that roles of
// ansible-operator use, for projects that have not installed the original.
//
// The package puts their files where Ansible finds them after all collections of the
// user. It does not know what the modules do: the controller handles their requests.
package collection

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/runner/internal/lockeddir"
)

//go:embed ansible_collections
var files embed.FS

// Dir is a directory with the collections; nil means none. It is safe for concurrent use.
type Dir struct{ dir *lockeddir.Dir }

// prefix begins the names of the directories.
const prefix = "rolewright-collections-"

// Install writes the collections into a new directory below parent, which other users
// may share, and removes the directories of processes that no longer exist.
func Install(parent string) (*Dir, error) {
	dir, err := lockeddir.Make(parent, prefix)
	if err != nil {
		return nil, fmt.Errorf("make the directory for the collection rolewright.operator: %w", err)
	}
	d := &Dir{dir: dir}
	if err := d.Ensure(); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return d, nil
}

// Modules returns the full names of the modules that come with Rolewright, sorted.
func Modules() []string {
	paths, _ := fs.Glob(files, "ansible_collections/*/*/plugins/modules/*.py") // the pattern is valid
	var names []string
	for _, path := range paths {
		part := strings.Split(strings.TrimSuffix(path, ".py"), "/")
		names = append(names, part[1]+"."+part[2]+"."+part[5])
	}
	return names
}

// Ensure writes missing files again: a cleaner of temporary files may have removed them.
func (d *Dir) Ensure() error {
	if d == nil {
		return nil
	}
	if err := d.dir.Ensure(); err != nil {
		return fmt.Errorf("the directory of the collection rolewright.operator: %w", err)
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := filepath.Join(d.dir.Name(), name)
		if entry.IsDir() {
			return os.MkdirAll(path, 0o700)
		}
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		// A run may look for the file at this moment, and must not find it incomplete.
		part, err := os.CreateTemp(d.dir.Name(), ".part-")
		if err != nil {
			return err
		}
		_, err = part.Write(data)
		if err = errors.Join(err, part.Close()); err == nil {
			err = os.Rename(part.Name(), path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write the collection rolewright.operator: %w", err)
	}
	return nil
}

// Environ adds the directory to an environment, at the end of PYTHONPATH. Ansible looks
// there for collections after all places in its configuration: a collection of the same
// name that the user has installed takes precedence.
func (d *Dir) Environ(environ []string) []string {
	const variable = "PYTHONPATH="
	if d == nil {
		return environ
	}
	paths := d.dir.Name()
	for _, entry := range slices.Backward(environ) {
		value, ok := strings.CutPrefix(entry, variable)
		switch {
		case !ok:
			continue
		case strings.HasSuffix(value, paths):
			return environ // the directory is already there
		case value != "":
			paths = value + string(os.PathListSeparator) + paths
		}
		break
	}
	return append(environ[:len(environ):len(environ)], variable+paths)
}

// Close removes the directory. It is called when no run is in progress and none
// will begin.
func (d *Dir) Close() {
	if d != nil {
		_ = d.dir.Remove() // else the next process does
	}
}
