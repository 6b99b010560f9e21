// Package runstore manages the private data directories of runs on disk: where they
// are, what they say about a run whose process is gone, and which of them are kept.
//
// It does not know Kubernetes: an object is a UID and the parts of a path. It does
// not trust what it finds in a directory, since a role can write there.
package runstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/rundir"
)

// Store lays out the private data directories below the runner root:
//
//	.runs/<uid>/<run ID>                          one per run
//	<group>/<version>/<Kind>/<namespace>/<name>   link to an object's latest run
//
// The links are ansible-operator's documented paths. Only the object's UID and the
// run's ID decide about a directory, never a name.
//
// The store removes directories of ended runs that are too many, too old, or
// together too large. It measures each directory once, at the end of the run or when
// it first meets the object, so that decisions need no walk. It does not touch
// directories of runs in progress, or of runs whose end is not in the status yet. Its
// methods may be called concurrently.
type Store struct {
	root string
	runs string // the directory with a directory for each object
	opts Options
	log  logr.Logger
	now  func() time.Time
	// wake has a token if the total size has to be checked.
	wake chan struct{}

	mu      sync.Mutex
	shelves map[string]*shelf // by the name of the object's directory
	bytes   int64
	count   int
}

// Options are the options of [New].
type Options struct {
	// Root is the runner root. It is created if it is missing.
	Root string
	// MaxBytes limits the size of all ended runs together; 0 keeps none, negative is no limit.
	MaxBytes int64
	// Given are files in a run's directory that only the run needs. They are removed
	// after its end.
	Given []string
	// Metrics records the number and size of the kept runs; it may be nil.
	Metrics *metrics.Recorder
}

const runsDir = ".runs"

// New returns a store. It refuses a root if another user may have prepared a part of its path.
func New(opts Options, log logr.Logger) (*Store, error) {
	runs, err := Dir(opts.Root, runsDir)
	if err != nil {
		return nil, err
	}
	return &Store{
		root: filepath.Dir(runs), runs: runs, opts: opts, log: log, now: time.Now,
		wake: make(chan struct{}, 1), shelves: map[string]*shelf{},
	}, nil
}

// Dir returns a directory below the runner root to which only the operator's user has access.
// It creates the directory if it is missing, and refuses it if another user may have prepared
// a part of its path.
func Dir(runnerRoot, name string) (string, error) {
	root, err := filepath.Abs(runnerRoot)
	if err != nil {
		return "", fmt.Errorf("runner root: %w", err)
	}
	dir := filepath.Join(root, name)
	if err := checkOwners(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the runner root %s: %w; choose a writable directory with --runner-root", root, err)
	}
	if err := checkOwners(dir); err != nil { // again, for what was made meanwhile
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("runner root: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory; remove it or choose another --runner-root", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", fmt.Errorf("%s belongs to another user: %w; choose another --runner-root", dir, err)
	}
	return dir, nil
}

// checkOwners refuses a path if another user may have prepared a part of it: below
// a directory where all users may create files, such as /tmp, each part of the path,
// directory or link, must belong to this process's user or to root.
func checkOwners(path string) error {
	exposed := false
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		part := path[:i]
		info, err := os.Lstat(part)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil // nothing exists from here on
		}
		if err != nil {
			return fmt.Errorf("runner root: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && exposed && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to the user %d and is below a world-writable directory; "+
				"remove it or choose another --runner-root", part, st.Uid)
		}
		if info.IsDir() && info.Mode().Perm()&0o002 != 0 {
			exposed = true
		}
	}
	return nil
}

// Object returns the directory of all runs of the object with this UID.
func (s *Store) Object(uid string) string {
	name := uid
	if !rundir.IsID(name) {
		sum := sha256.Sum256([]byte(uid))
		name = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(s.runs, name)
}

// Dir returns the directory of one run. The error says that run is not a run ID.
func (s *Store) Dir(uid, run string) (string, error) {
	if !rundir.IsID(run) {
		return "", fmt.Errorf("%.40q is not a run ID", run)
	}
	return filepath.Join(s.Object(uid), run), nil
}

// Create prepares a run and returns the path of its private data directory, which
// does not exist yet. The store does not remove anything of it until [Store.Finish]
// is called.
func (s *Store) Create(uid, run string) (string, error) {
	dir, err := s.Dir(uid, run)
	if err != nil {
		return "", err
	}
	object := filepath.Dir(dir)
	s.begin(filepath.Base(object), run)
	if err := s.withRoom(func() error { return os.MkdirAll(object, 0o700) }); runner.IsNoSpace(err) {
		return "", fmt.Errorf("%w: create the directory of the object's runs: %w", runner.ErrNoSpace, err)
	} else if err != nil {
		return "", fmt.Errorf("create the directory of the object's runs: %w", err)
	}
	return dir, nil
}

// Link makes ansible-operator's path for an object, given by its parts, a link to dir,
// one of the object's runs. If that is not possible, it only logs that.
func (s *Store) Link(dir string, object ...string) {
	path := s.documented(object)
	if path == "" {
		return
	}
	if err := s.replaceLink(path, dir); err != nil {
		s.log.Info("Link to the latest run cannot be created", "path", path, "error", err.Error())
	}
}

// documented returns ansible-operator's path for an object; empty if its names do not
// make a path.
func (s *Store) documented(object []string) string {
	path := s.root
	for _, part := range object {
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

func (s *Store) replaceLink(path, dir string) error {
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if path, err = filepath.Rel(s.root, path); err != nil {
		return err
	}
	parent := filepath.Dir(path)
	target, err := filepath.Rel(filepath.Join(s.root, parent), dir)
	if err != nil {
		return err
	}
	if info, err := root.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSymlink {
		return errors.New("the path is not a link to a run; remove it")
	}
	tmp := path + "%new" // no object has a percent sign in its name
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	// The parent may be removed at the same time, together with the last of its objects.
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

// Forget removes everything of an object that is gone: its runs and the link to one of
// them.
func (s *Store) Forget(uid string, object ...string) error {
	dir := s.Object(uid)
	if path := s.documented(object); path != "" {
		// Another object may have taken over the name, and the link with it.
		if target, err := filepath.EvalSymlinks(path); err != nil || filepath.Dir(target) == dir {
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSymlink {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // two watches may remove it at once
					return fmt.Errorf("remove the link of a deleted object: %w", err)
				}
				for dir := filepath.Dir(path); dir != s.root && os.Remove(dir) == nil; {
					dir = filepath.Dir(dir) // parents that no other object needs
				}
			}
		}
	}
	return s.forget(filepath.Base(dir))
}
