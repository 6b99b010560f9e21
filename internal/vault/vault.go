package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds on what is searched: the content of operators has some hundred files.
const (
	maxFiles = 20_000
	maxFile  = 4 << 20
	maxTexts = 10_000
)

// askAgain is the time between two attempts to get a password from a source that gave none, or
// from a script when a password may be missing.
const askAgain = time.Minute

// fresh is how long the result of a search is valid: runs that begin together share one search.
const fresh = time.Second

// unused is how long the result of a search is kept if it is not used.
const unused = time.Hour

// Vault has the decrypted values of the content of one operator. It is safe for
// concurrent use.
type Vault struct {
	sources []source
	// files are the files of variables that the arguments name.
	files []string
	fresh time.Duration
	most  int // how many files and directories are searched below a directory at most

	mu sync.Mutex
	// passwords has the last answer of each source; answers counts how often a password has changed.
	passwords map[source]answer
	answers   int
	roots     map[string]*scan             // by the path of a file or directory
	plain     map[[sha256.Size]byte]string // values by the digest of their vault texts
}

// answer is the last password that a source gave, nil if it never gave one. file is the state of its
// file when it was last asked, at asked; err is why it gave no password then.
type answer struct {
	password []byte
	file     stamp
	asked    time.Time
	err      error
}

// scan is the result of the last search below a directory, by file. answers is [Vault].answers then.
type scan struct {
	used, at time.Time
	answers  int
	files    map[string]found
	values   []string
	err      error
}

// found is what a file contains: the values of its vault texts, and errors for those that could not
// be decrypted. answers is [Vault].answers then.
type found struct {
	stamp   stamp
	values  []string
	failed  []error
	answers int
}

// stamp identifies a state of a file.
type stamp struct {
	size     int64
	modified time.Time
	inode    uint64
	script   bool
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime(), script: info.Mode()&0o111 != 0}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// New returns a Vault with the passwords that ansible-playbook would use with these
// arguments. It reads them when they are first needed.
func New(arguments string, lookupEnv func(string) (string, bool)) *Vault {
	args := split(arguments)
	var files []string
	for _, arg := range args {
		if _, file, ok := strings.Cut(arg, "@"); ok && !strings.HasPrefix(arg, "--vault") {
			files = append(files, absolute(file, "."))
		}
	}
	return &Vault{
		sources: sourcesOf(args, lookupEnv), files: files, fresh: fresh, most: maxFiles, passwords: map[source]answer{}, roots: map[string]*scan{},
		plain: map[[sha256.Size]byte]string{},
	}
}

// Files returns the files from which passwords are read, and the files of variables that the arguments name.
func (v *Vault) Files() (passwords, variables []string) {
	if v == nil {
		return nil, nil
	}
	for _, s := range v.sources {
		passwords = append(passwords, s.path)
	}
	return passwords, v.files
}

// Values returns the current plain values of all vault texts in files and below
// directories, except hidden ones, and in the files of variables that the arguments
// name. It returns none if no password is configured. If some values cannot be read,
// it returns the others and an error.
func (v *Vault) Values(ctx context.Context, paths ...string) ([]string, error) {
	if v == nil || len(v.sources) == 0 {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.ask(ctx, false); err != nil && !v.hasPassword() {
		return nil, err
	}
	now := time.Now()
	maps.DeleteFunc(v.roots, func(_ string, s *scan) bool { return now.Sub(s.used) > unused })
	paths = slices.Concat(paths, v.files)
	values, err := v.readAll(paths, now)
	if answers := v.answers; err != nil && v.ask(ctx, true) == nil && v.answers != answers {
		values, err = v.readAll(paths, now)
	}
	return values, err
}

func (v *Vault) readAll(paths []string, now time.Time) (values []string, err error) {
	var errs []error
	for _, path := range paths {
		is := v.roots[path]
		if is == nil || now.Sub(is.at) >= v.fresh || is.answers != v.answers {
			is = v.read(path, is)
			is.at, is.answers = now, v.answers
			v.roots[path] = is
		}
		is.used = now
		values, errs = append(values, is.values...), append(errs, is.err)
	}
	return values, errors.Join(errs...)
}

// Texts returns the plain values of the vault texts in texts, as [Vault.Values] does
// for files.
func (v *Vault) Texts(ctx context.Context, texts ...string) ([]string, error) {
	if v == nil || len(v.sources) == 0 {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var bodies [][]byte
	for _, text := range texts {
		bodies = append(bodies, find([]byte(text))...)
	}
	if len(bodies) == 0 {
		return nil, nil
	}
	if err := v.ask(ctx, false); err != nil && !v.hasPassword() {
		return nil, err
	}
	values, errs := v.decryptAll(bodies)
	if answers := v.answers; len(errs) > 0 && v.ask(ctx, true) == nil && v.answers != answers {
		values, errs = v.decryptAll(bodies)
	}
	return values, errors.Join(errs...)
}

// read decrypts what is in a file, or below a directory. A file that has not changed is not
// read again.
func (v *Vault) read(root string, before *scan) *scan {
	var errs []error
	now := &scan{files: map[string]found{}}
	all := walk(root, v.most, func(path string, info fs.FileInfo) {
		is := found{}
		if before != nil {
			is = before.files[path]
		}
		if is.stamp != stampOf(info) || len(is.failed) > 0 && is.answers != v.answers {
			data, err := os.ReadFile(path)
			if err != nil {
				return // Ansible cannot read it either
			}
			is = found{stamp: stampOf(info), answers: v.answers}
			is.values, is.failed = v.decryptAll(find(data))
		}
		now.files[path] = is
		now.values = append(now.values, is.values...)
		for _, err := range is.failed {
			errs = append(errs, &fs.PathError{Op: "decrypt", Path: path, Err: err})
		}
	})
	if !all {
		errs = append(errs, fmt.Errorf("%s has more than %d files: values of Ansible Vault in the rest are not masked", root, v.most))
	}
	now.err = errors.Join(errs...)
	return now
}

// walk calls do for each file that may have vault texts: root, or those below it. It follows links:
// roles are links now and then, and the kubelet makes links for the files of a volume. It visits
// each directory once, those behind links last. It returns false if there are more than most files
// and directories.
func walk(root string, most int, do func(path string, info fs.FileInfo)) bool {
	places, seen := 0, map[string]bool{}
	for dirs := []string{root}; len(dirs) > 0; dirs = dirs[1:] {
		dir, err := filepath.EvalSymlinks(dirs[0])
		if err != nil {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // what is not there or cannot be read, Ansible does not read either
			}
			info, err := os.Stat(path)
			switch {
			case err != nil:
				return nil //nolint:nilerr // as above
			case info.IsDir() && path != dir && strings.HasPrefix(entry.Name(), "."), entry.IsDir() && seen[path]:
				return skipDir(entry)
			}
			if places++; places > most {
				return fs.SkipAll
			}
			switch {
			case entry.IsDir():
				seen[path] = true
			case info.IsDir():
				dirs = append(dirs, path)
			case info.Mode().IsRegular() && 0 < info.Size() && info.Size() <= maxFile: // files in /proc have size 0
				do(path, info)
			}
			return nil
		})
	}
	return places <= most
}

// skipDir skips a directory. For a link, SkipDir would skip the rest of the link's own directory instead.
func skipDir(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// decryptAll returns the plain values, and an error for each text that cannot be decrypted.
func (v *Vault) decryptAll(bodies [][]byte) (values []string, errs []error) {
	for _, body := range bodies {
		value, err := v.decrypt(body)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values = append(values, value)
	}
	return values, errs
}

func (v *Vault) decrypt(body []byte) (string, error) {
	digest := sha256.Sum256(body)
	if value, ok := v.plain[digest]; ok {
		return value, nil
	}
	for _, s := range v.sources {
		is := v.passwords[s]
		if is.password == nil {
			continue
		}
		if value, err := decrypt(body, is.password); err == nil {
			if len(v.plain) >= maxTexts {
				clear(v.plain)
			}
			v.plain[digest] = string(value)
			return string(value), nil
		}
	}
	return "", errDecrypt
}

// ask gets the passwords of sources whose file has changed, and of those that gave none. With missing, because a text
// was encrypted with another password, it also runs the scripts again. A source that does not answer keeps the password
// that it gave before. ask fails if there is no password at all.
func (v *Vault) ask(ctx context.Context, missing bool) error {
	var errs []error
	for _, s := range v.sources {
		is, known := v.passwords[s]
		var file stamp
		if info, err := os.Stat(s.path); err == nil {
			file = stampOf(info)
		}
		wanted := is.err != nil || missing && file.script
		if !known || file != is.file || wanted && time.Since(is.asked) > askAgain {
			password, err := s.password(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx) // the source is not to blame
			}
			is.file, is.asked, is.err = file, time.Now(), err
			if err == nil && !bytes.Equal(password, is.password) {
				is.password = password
				v.answers++
			}
			v.passwords[s] = is
		}
		if is.password == nil {
			errs = append(errs, is.err)
		}
	}
	if len(errs) < len(v.sources) {
		return nil
	}
	return errors.Join(errs...)
}

func (v *Vault) hasPassword() bool {
	for _, is := range v.passwords {
		if is.password != nil {
			return true
		}
	}
	return false
}
