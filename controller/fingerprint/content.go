package fingerprint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxHashed is the size above which a file counts with its size and time
// instead of its content. Such a file is not edited in place.
const maxHashed = 32 << 20

// Roots says where the content of a run is. A missing path counts as missing,
// which is a state like any other.
type Roots struct {
	// Trees are directories that count as a whole: roles, inventories.
	Trees []string
	// Playbooks are files that count together with what Ansible finds beside them.
	Playbooks []string
	// Files are single files; empty names are ignored.
	Files []string
	// Passwords are files that count with only 16 bits of the digest of their content, so that
	// a fingerprint cannot be used to test guesses of a password.
	Passwords []string
	// Patterns are patterns of files, and of directories, which count as a whole.
	Patterns []string
	// Collections are directories that contain ansible_collections. An installed
	// collection counts with its manifest, which has every file's checksum; a
	// collection without a manifest, as in development, counts as a whole.
	Collections []string
}

// Contents computes digests of content. It remembers the digests of files, so that
// computing them again costs one stat per file. It is safe for concurrent use.
type Contents struct {
	// MaxAge is how long a digest is returned without another look at the files.
	MaxAge time.Duration
	// Name returns the name under which a file counts; if it is nil, that is the path by which the file is reached.
	Name func(path string) string

	mu    sync.Mutex
	files map[string]file
	known map[string]digest
}

type file struct {
	size  int64
	mtime time.Time
	inode uint64
	sum   string
}

type digest struct {
	sum   string
	taken time.Time
}

// Digest returns the digest of all content below roots.
func (c *Contents) Digest(ctx context.Context, roots Roots) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%q", roots)
	if d, ok := c.known[key]; ok && time.Since(d.taken) < c.MaxAge {
		return d.sum, nil
	}
	h := sha256.New()
	w := walk{c: c, h: h, seen: map[string]bool{}}
	for _, tree := range roots.Trees {
		if err := w.tree(ctx, tree); err != nil {
			return "", err
		}
	}
	for _, playbook := range roots.Playbooks {
		if err := w.playbook(ctx, playbook); err != nil {
			return "", err
		}
	}
	for _, name := range roots.Files {
		if name == "" {
			continue
		}
		if err := w.file(name); err != nil {
			return "", err
		}
	}
	w.short = true
	for _, name := range roots.Passwords {
		if err := w.file(name); err != nil {
			return "", err
		}
	}
	w.short = false
	for _, pattern := range roots.Patterns {
		if err := w.pattern(ctx, pattern); err != nil {
			return "", err
		}
	}
	for _, dir := range roots.Collections {
		if err := w.collections(ctx, dir); err != nil {
			return "", err
		}
	}
	if c.known == nil {
		c.known = map[string]digest{}
	}
	sum := hex.EncodeToString(h.Sum(nil)[:16])
	c.known[key] = digest{sum: sum, taken: time.Now()}
	return sum, nil
}

// Forget makes the next call of [Contents.Digest] look at the files again.
func (c *Contents) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
}

// walk is one walk through the content. It writes what it finds to h.
type walk struct {
	c *Contents
	h io.Writer
	// seen are the directories that were walked already.
	seen map[string]bool
	// short makes files count with 16 bits of their digest.
	short bool
}

// playbook adds a playbook and what is beside it: files of content, and the
// directories that Ansible and its users read. It leaves out the rest of the directory,
// since a playbook may be in a home directory whose caches change.
func (w walk) playbook(ctx context.Context, path string) error {
	if err := w.file(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Fprintf(w.h, "missing %q\n", w.c.name(dir))
		return nil //nolint:nilerr // a state like any other
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		ext := filepath.Ext(name)
		info, statErr := os.Stat(name) // a link to a directory counts as a directory
		dir := statErr == nil && info.IsDir()
		switch {
		case dir && isAnsibleDir(e.Name()):
			err = w.tree(ctx, name)
		case dir && e.Name() == "collections":
			err = w.collections(ctx, name)
		case !dir && isContent(ext) && name != path:
			err = w.file(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isAnsibleDir reports whether name is a directory that Ansible reads beside a playbook.
func isAnsibleDir(name string) bool {
	switch name {
	case "roles", "tasks", "handlers", "vars", "defaults", "group_vars", "host_vars", "templates", "files",
		"library", "module_utils", "meta", "playbooks", "manifests", "charts", "scripts", "config":
		return true
	}
	return strings.HasSuffix(name, "_plugins")
}

// isContent reports whether a file beside a playbook may be content, by its
// extension. Other files, as in a home directory, do not count.
func isContent(ext string) bool {
	switch ext {
	case ".yml", ".yaml", ".j2", ".json", ".cfg", ".ini", ".sh", ".py", ".tpl":
		return true
	}
	return false
}

func (w walk) collections(ctx context.Context, dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "ansible_collections", "*", "*"))
	if err != nil {
		return fmt.Errorf("list collections in %s: %w", dir, err)
	}
	slices.Sort(found)
	for _, collection := range found {
		manifest := filepath.Join(collection, "MANIFEST.json")
		if _, err := os.Stat(manifest); err == nil {
			if err := w.file(manifest); err != nil {
				return err
			}
			continue
		}
		if info, err := os.Stat(collection); err != nil || !info.IsDir() {
			continue
		}
		if err := w.tree(ctx, collection); err != nil {
			return err
		}
	}
	return nil
}

// pattern adds what matches a pattern: files, and directories as a whole.
func (w walk) pattern(ctx context.Context, pattern string) error {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("list %s: %w", pattern, err)
	}
	for _, name := range found {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = w.tree(ctx, name)
		} else {
			err = w.file(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tree adds every file below root. It follows links to directories, since a role may
// be one. A directory counts once, however many links lead to it. Files count under
// the paths by which they are reached: the target of a link may have another name in
// every Pod, as in a mounted ConfigMap.
func (w walk) tree(ctx context.Context, root string) error {
	target, err := filepath.EvalSymlinks(root)
	if err != nil {
		target = root
	}
	if w.seen[target] {
		return nil
	}
	w.seen[target] = true
	return filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := root + strings.TrimPrefix(path, target)
		if err != nil {
			// A file that disappears meanwhile, or that cannot be read, is a state
			// of the content, too; the run will report what is missing.
			fmt.Fprintf(w.h, "unreadable %q\n", w.c.name(name))
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		dir := err == nil && info.IsDir() // a link to a directory counts as a directory
		switch {
		case path == target && dir:
			return nil
		case dir && (d.Name() == "__pycache__" || strings.HasPrefix(d.Name(), ".")):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case dir:
			return w.tree(ctx, name)
		}
		return w.file(name)
	})
}

func (c *Contents) name(path string) string {
	if c.Name == nil {
		return path
	}
	return c.Name(path)
}

// file adds one file: its name and, if it is a regular file, its content.
func (w walk) file(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(w.h, "missing %q\n", w.c.name(path))
		return nil //nolint:nilerr // a state like any other
	}
	if !info.Mode().IsRegular() {
		fmt.Fprintf(w.h, "special %q %v\n", w.c.name(path), info.Mode().Type())
		return nil
	}
	sum, err := w.c.sum(path, info)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(w.h, "unreadable %q\n", w.c.name(path))
			return nil
		}
		return fmt.Errorf("digest of the content: %w", err)
	}
	if w.short {
		sum = sum[:4]
	}
	fmt.Fprintf(w.h, "file %q %v %s\n", w.c.name(path), info.Mode().Perm()&0o111, sum)
	return nil
}

func (c *Contents) sum(path string, info fs.FileInfo) (string, error) {
	now := file{size: info.Size(), mtime: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = st.Ino
	}
	if now.size > maxHashed {
		return fmt.Sprintf("%d %s", now.size, now.mtime.UTC()), nil
	}
	if old, ok := c.files[path]; ok {
		now.sum = old.sum
		if old == now {
			return old.sum, nil
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	now.sum = hex.EncodeToString(h.Sum(nil)[:16])
	if c.files == nil {
		c.files = map[string]file{}
	}
	c.files[path] = now
	return now.sum, nil
}
