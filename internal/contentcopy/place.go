package contentcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rolewright/rolewright/internal/watches"
)

// Bounds on what is copied: projects have some hundred files and some megabytes.
const (
	maxFiles = 20_000 // files and directories
	maxBytes = 256 << 20
	maxDepth = 40
)

// Place says where the content of an operator is.
type Place struct {
	// Dirs are the directories with content, and files directly in the root directory. They are
	// absolute, and none is below another one.
	Dirs []string
	// Watches is the watches file, which is not copied.
	Watches string
	// Except is a directory that is left out.
	Except string

	work  string   // the working directory
	named []string // the top-level names below work through which paths in watches lead
}

// Of returns the place of the roles and playbooks of watches. For those below dir, the
// working directory, it is the whole of dir, since playbooks use relative paths to
// neighbouring files. For a role elsewhere it is the roles directory, and for a playbook
// elsewhere its directory. Installed collections are left out, and so are hidden
// directories directly below the working directory, in which tools keep temporary files,
// unless a watch names them.
func Of(dir, file string, all []watches.Watch) Place {
	p := Place{Watches: file, work: dir}
	add := func(path, outside string) {
		if rest, inside := strings.CutPrefix(path, dir+"/"); inside {
			top, _, _ := strings.Cut(rest, "/")
			p.named = append(p.named, top)
		}
		switch {
		case path == "" || p.Has(path):
			return
		case below(path, dir) && dir != "/":
			outside = dir
		case below(path, outside) && outside != "/":
		default:
			outside = path
		}
		if !leftOut(outside) {
			p.Dirs = append(slices.DeleteFunc(p.Dirs, func(d string) bool { return below(d, outside) }), outside)
		}
	}
	for _, w := range all {
		for _, c := range w.Contents() {
			if c.Command != nil {
				// Programs outside of the command's directory are not content.
				for _, path := range c.Command.Files() {
					if below(path, c.Command.Dir) {
						add(path, c.Command.Dir)
					}
				}
			}
			if c.Command != nil && c.Command.Chart != nil {
				add(c.Command.Chart.Dir, c.Command.Chart.Dir)
			}
			if c.Playbook != "" {
				add(c.Playbook, filepath.Dir(c.Playbook))
			}
			if c.Role == "" {
				continue
			}
			role := c.Role
			if !filepath.IsAbs(role) {
				role = filepath.Join(dir, role)
			}
			siblings := filepath.Dir(role)
			if filepath.Base(siblings) != "roles" {
				siblings = role
			}
			if !leftOut(strings.TrimPrefix(role, dir)) {
				add(role, siblings)
			}
		}
	}
	return p
}

// Has tells whether an absolute path belongs to the place, and thus to a copy.
func (p Place) Has(path string) bool {
	return !p.hidden(path) &&
		slices.ContainsFunc(p.Dirs, func(dir string) bool { return below(path, dir) && !leftOut(strings.TrimPrefix(path, dir)) })
}

// hidden tells whether a path is a hidden directory directly below the working directory,
// or in one, and no watch names it.
func (p Place) hidden(path string) bool {
	rest, inside := strings.CutPrefix(path, p.work+"/")
	top, _, deeper := strings.Cut(rest, "/")
	if p.work == "" || !inside || !strings.HasPrefix(top, ".") || slices.Contains(p.named, top) {
		return false
	}
	info, err := os.Stat(path)
	return deeper || err == nil && info.IsDir()
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// collections is the name of directories with installed collections.
const collections = "ansible_collections"

// leftOut tells whether a path leads through a directory that is not copied: directories of
// the kubelet, to which links lead, of tools, of file systems, and installed collections.
func leftOut(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool {
		switch name {
		case ".git", ".ansible", ".cache", ".tox", ".venv", "__pycache__", "node_modules", "lost+found", collections:
			return true
		}
		return strings.HasPrefix(name, "..")
	})
}

// State identifies the files of a place with their versions: two states are equal if no
// file was changed, added or removed in between.
type State string

// State returns the current state of the place.
func (p Place) State(ctx context.Context) (State, error) {
	h := sha256.New()
	note(h, p.Watches)
	err := p.walk(ctx, func(path string, info fs.FileInfo) error {
		noteInfo(h, path, info)
		return nil
	})
	return State(hex.EncodeToString(h.Sum(nil))), err
}

// Newest returns the path of the file that was written last.
func (p Place) Newest(ctx context.Context) (string, error) {
	newest, at := "", time.Time{}
	err := p.walk(ctx, func(path string, info fs.FileInfo) error {
		if !info.IsDir() && info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}
		return nil
	})
	return newest, err
}

func note(h hash.Hash, path string) {
	if info, err := os.Stat(path); err == nil {
		noteInfo(h, path, info)
	}
}

func noteInfo(h hash.Hash, path string, info fs.FileInfo) {
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	if info.IsDir() {
		fmt.Fprintf(h, "%q %v\n", path, info.Mode()) // the files in it are noted by their own names
		return
	}
	fmt.Fprintf(h, "%q %v %d %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano(), inode)
}

// walk calls do for all directories and regular files of the place. It follows links, and
// passes the paths by which the files are reached.
func (p Place) walk(ctx context.Context, do func(path string, info fs.FileInfo) error) error {
	w := walk{ctx: ctx, except: p.Except, hidden: p.hidden, do: do}
	for _, dir := range p.Dirs {
		var err error
		if isFile(dir) {
			err = w.entry(dir, []string{dir})
		} else {
			err = w.dir(dir, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

type walk struct {
	ctx     context.Context // of one call
	except  string
	hidden  func(path string) bool
	do      func(path string, info fs.FileInfo) error
	entries int
	bytes   int64
}

// dir walks a directory; above has the real paths of the directories that it is in.
func (w *walk) dir(path string, above []string) error {
	if path == w.except {
		return nil
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) || slices.Contains(above, target) {
		return nil // it was removed, or is a link to a directory above it
	}
	if err != nil {
		return err
	}
	if len(above) > maxDepth {
		return fmt.Errorf("%s: more than %d directories deep", path, maxDepth)
	}
	entries, err := os.ReadDir(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	above = append(slices.Clone(above), target)
	for _, e := range entries {
		if leftOut(e.Name()) {
			continue
		}
		if err := w.entry(filepath.Join(path, e.Name()), above); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(path string, above []string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP):
		return nil // a broken link, a link to itself, or it was removed
	case err != nil:
		return err
	case info.IsDir():
		if path == w.except || w.hidden(path) {
			return nil
		}
		if err := w.count(above[0], 0); err != nil {
			return err
		}
		if err := w.do(path, info); err != nil {
			return err
		}
		return w.dir(path, above)
	case !info.Mode().IsRegular():
		return nil
	}
	if err := w.count(above[0], info.Size()); err != nil {
		return err
	}
	return w.do(path, info)
}

// count counts a file or directory below top. What is reached through several links counts
// once for each way to it.
func (w *walk) count(top string, size int64) error {
	w.entries++
	w.bytes += size
	if w.entries > maxFiles || w.bytes > maxBytes {
		return fmt.Errorf("%s has more than %d files and directories (each link to them counts again) or more than %d MiB: "+
			"start the operator in a directory that has only its roles and playbooks", top, maxFiles, maxBytes>>20)
	}
	return nil
}
