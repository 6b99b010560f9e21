package contentcopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/watches"
)

// Copy is a copy of the content of a place. A nil Copy stands for the place itself.
type Copy struct {
	place Place
	root  string // the copy of /a/b is root/a/b
	lock  *os.File
	sum   hash.Hash // the digest of all that was copied, with names and modes

	mu    sync.Mutex
	holds int
	ended bool
}

// ErrChanging is returned if a place was changed while it was copied.
var ErrChanging = errors.New("the content is being changed")

// Below returns the directory of an operator's copies below its runner root.
func Below(root string) string { return filepath.Join(root, ".content") }

// Take copies the content of the watches in a watches file, in the working directory and
// elsewhere, for an operator with the runner root. It also returns the state of the place
// that was copied.
func Take(ctx context.Context, root, file string, all []watches.Watch) (*Copy, State, error) {
	dir, err := os.Getwd()
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return nil, "", fmt.Errorf("copy the content: %w", err)
	}
	place := Of(dir, file, all)
	place.Except = root
	state, err := place.State(ctx)
	if err != nil {
		return nil, "", err
	}
	c, err := New(ctx, place, state, Below(root))
	return c, state, err
}

// Place returns the place that was copied.
func (c *Copy) Place() Place { return c.place }

// OriginalOf returns the original of a path in any copy below a runner root, even after the
// copy is gone. It returns other paths unchanged.
func OriginalOf(root, path string) string {
	rest, ok := strings.CutPrefix(path, Below(root)+"/")
	if !ok {
		return path
	}
	_, rest, _ = strings.Cut(rest, "/")
	return "/" + rest
}

// New copies the place to a new directory in parent, which is made if it is missing. The
// copy is complete and has the given state, or New returns an error. Close it after use.
func New(ctx context.Context, place Place, state State, parent string) (_ *Copy, err error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("copy the content: %w", err)
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil { // Ansible names files by their real paths
		return nil, fmt.Errorf("copy the content: %w", err)
	}
	removeLeft(parent)
	c := &Copy{place: place, sum: sha256.New()}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.root, c.lock, err = newRoot(parent); err != nil {
		return nil, fmt.Errorf("copy the content: %w", err)
	}
	for _, dir := range place.Dirs {
		if isFile(dir) {
			dir = filepath.Dir(dir)
		}
		if err := os.MkdirAll(c.root+dir, 0o700); err != nil {
			return nil, fmt.Errorf("copy the content: %w", err)
		}
	}
	if err := errors.Join(place.walk(ctx, c.add), c.link(), c.linkCollections()); err != nil {
		return nil, fmt.Errorf("copy the content: %w", err)
	}
	now, err := place.State(ctx)
	if err == nil && now != state {
		err = ErrChanging
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// add copies one file or directory. Directories of the copy are private. Files keep
// their modes, since roles may copy them.
func (c *Copy) add(path string, info fs.FileInfo) error {
	fmt.Fprintf(c.sum, "%q %v\n", path, info.Mode())
	if info.IsDir() {
		if err := os.Mkdir(c.root+path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the state shows the change
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(c.root+path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// Copy no more than the state has: the file may grow.
	n, err := io.Copy(io.MultiWriter(out, c.sum), io.LimitReader(in, info.Size()))
	fmt.Fprintf(c.sum, "\n%d\n", n)
	return errors.Join(err, out.Chmod(info.Mode().Perm()|0o400), out.Close())
}

// link makes links in the copy to the hidden directories that are not copied.
func (c *Copy) link() error {
	if !slices.Contains(c.place.Dirs, c.place.work) {
		return nil
	}
	entries, err := os.ReadDir(c.place.work)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(c.place.work, e.Name())
		if leftOut(e.Name()) || path == c.place.Except || !c.place.hidden(path) {
			continue
		}
		if err := os.Symlink(path, c.root+path); err != nil {
			return err
		}
	}
	return nil
}

// linkCollections makes links in the copy to the collections beside playbooks and roles, where
// Ansible looks first.
func (c *Copy) linkCollections() error {
	for _, dir := range c.place.Dirs {
		err := filepath.WalkDir(c.root+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			original := filepath.Join(strings.TrimPrefix(path, c.root), collections)
			if info, err := os.Stat(original); err != nil || !info.IsDir() {
				return nil //nolint:nilerr // there are none
			}
			return os.Symlink(original, filepath.Join(path, collections))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Same tells whether two copies have the same files, apart from the times of these.
func (c *Copy) Same(other *Copy) bool {
	return c != nil && other != nil && bytes.Equal(c.sum.Sum(nil), other.sum.Sum(nil))
}

// Path returns the path in the copy for a path of the place, or the path itself if it is
// not copied. Relative paths are relative to the working directory.
func (c *Copy) Path(path string) string {
	if c == nil || path == "" {
		return path
	}
	absolute, err := filepath.Abs(path)
	if err != nil || !c.place.Has(absolute) {
		return path
	}
	return c.root + absolute
}

// Paths returns the result of Path for each path.
func (c *Copy) Paths(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = c.Path(p)
	}
	return out
}

// Original replaces the paths of files in the copy by those of their originals in a text.
func (c *Copy) Original(text string) string {
	if c == nil {
		return text
	}
	return strings.ReplaceAll(text, c.root+"/", "/")
}

// Hold keeps the files of the copy until Release, even if it is closed meanwhile. It returns
// false if the copy was removed already.
func (c *Copy) Hold() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended && c.holds == 0 {
		return false
	}
	c.holds++
	return true
}

// Release ends a Hold.
func (c *Copy) Release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds--; c.ended && c.holds == 0 {
		c.remove()
	}
}

// Close removes the copy as soon as it is not held.
func (c *Copy) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.holds == 0 {
		c.remove()
	}
	c.ended = true
}

func (c *Copy) remove() {
	if c.lock == nil {
		return // there is no copy yet
	}
	removeRoot(c.root) // if it fails, New tries again before it makes another copy
	_ = c.lock.Close()
}

// maxProblems is how many broken files are reported at a time.
const maxProblems = 10

// maxYAML bounds a file of a role or playbook, in bytes. Such files usually have a few kilobytes.
const maxYAML = 4 << 20

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// Check returns an error for each file of a role or playbook that is not valid YAML, with
// the name and line of the original. It does not check templates and files of roles.
func (c *Copy) Check(ctx context.Context) error {
	var problems []error
	for _, dir := range c.place.Dirs {
		err := filepath.WalkDir(c.root+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if d.IsDir() {
				if other(d.Name(), filepath.Dir(path) == c.root+dir) {
					return fs.SkipDir
				}
				return nil
			}
			if !d.Type().IsRegular() {
				return nil // a link to what is not copied
			}
			if err := readable(path); err != nil {
				problems = append(problems, errors.New(c.Original(err.Error())))
			}
			if len(problems) == maxProblems {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("check the content: %w", err)
		}
	}
	return errors.Join(problems...)
}

// other tells whether a directory of this name contains no YAML for Ansible: anywhere or, if
// top is true, beside the roles and playbooks of a project.
func other(name string, top bool) bool {
	switch name {
	case "templates", "files":
		return true
	case "molecule", "charts", "config", "bundle", "dist":
		return top
	}
	return false
}

// readable returns why a file is not valid YAML, with the line; nil if it is, or if its name
// does not end as that of a YAML file.
func readable(path string) error {
	if ext := filepath.Ext(path); ext != ".yml" && ext != ".yaml" {
		return nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxYAML+1))
	if err != nil {
		return err
	}
	if len(data) > maxYAML {
		return fmt.Errorf("%s: more than %d MiB of YAML: keep data in a directory named files, or in files whose name does not end with %s",
			path, maxYAML>>20, filepath.Ext(path))
	}
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			return fmt.Errorf("%s:%s: %s", path, m[1], strings.TrimPrefix(err.Error(), m[0]))
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
