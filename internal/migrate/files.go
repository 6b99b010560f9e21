package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// errTooMuch ends the walk.
var errTooMuch = errors.New("the project is too large")

// skipped tells whether the operator does not have the files of a directory.
func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{"molecule", "tests", "test", "node_modules", "docs", "bin"}, name)
}

// ofTests tells whether a directory has tests, or is in one that does. Only the assertions
// of tests are read.
func ofTests(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return name == "tests" || name == "test" })
}

// skip notes that a directory is not checked. Assertions of tests are checked.
func (r *reporter) skip(name string) error {
	within, tests := ofTests(path.Dir(name)), ofTests(path.Base(name))
	switch {
	case within: // already noted
	case tests:
		r.Skipped = append(r.Skipped, name+" except for asserts")
	default:
		r.Skipped = append(r.Skipped, name)
	}
	if tests {
		return nil
	}
	return fs.SkipDir
}

func (r *reporter) visit(name string, entry fs.DirEntry, err error) error {
	r.file = name
	switch {
	case err != nil:
		r.unread(err)
		if entry != nil && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.IsDir() && name != "." && skipped(entry.Name()):
		return r.skip(name)
	case entry.Type()&fs.ModeSymlink != 0:
		if _, err := r.root.Stat(name); err != nil && !ofTests(path.Dir(name)) {
			r.unread(fmt.Errorf("the link is not followed: %w", err))
		}
		return nil // a target in the project is read in its own place
	case !entry.Type().IsRegular():
		return nil
	}
	if r.files++; r.files > maxFiles || r.total > maxTotal {
		r.unread(fmt.Errorf("%w: more than %d files or %d MiB; what comes after %s was not read", errTooMuch, maxFiles, maxTotal>>20, name))
		return errTooMuch
	}
	compare := r.reader(name)
	if compare == nil {
		return nil
	}
	text, err := r.read(name)
	if err != nil {
		r.unread(err)
		return nil
	}
	compare(text)
	return nil
}

// reader returns the function that checks a file; nil if the file is not relevant.
func (r *reporter) reader(name string) func(text string) {
	base, ext := path.Base(name), path.Ext(name)
	content := strings.Contains("/"+name, "/roles/") || strings.Contains("/"+name, "/playbooks/")
	switch isYAML := ext == ".yml" || ext == ".yaml"; {
	case ofTests(path.Dir(name)):
		if isYAML && (strings.Contains(base, "assert") || strings.HasPrefix(base, "chainsaw")) {
			return r.asserts
		}
		return nil
	case strings.HasPrefix(base, "Dockerfile"), strings.HasPrefix(base, "Containerfile"), ext == ".Dockerfile":
		return r.dockerfile
	case base == "Makefile":
		return r.makefile
	case content && (isYAML || ext == ".j2"):
		return r.content
	case isYAML && strings.HasPrefix(base, "watches"):
		return nil // it has been read already
	case isYAML:
		return r.manifests
	case ext == ".json": // perhaps a dashboard
		return func(text string) { r.lines.compare(r, r.lines.metrics, text) }
	}
	return nil
}
