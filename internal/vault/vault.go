package vault

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what is searched: the content of operators has some hundred files.
const (
	maxFiles = 20_000
	maxFile  = 4 << 20
	maxTexts = 10_000
)

// maxAge is how long values are used before they are read again.
const maxAge = 10 * time.Second

// Vault holds the decrypted values of the content of one operator. Safe for
// concurrent use.
type Vault struct {
	sources []source
	// files are those that the arguments name.
	files []string

	mu        sync.Mutex
	passwords [][]byte
	asked     bool
	roots     map[string]scan
	plain     map[[sha256.Size]byte]string
}

// scan is the result of a search below a directory.
type scan struct {
	at     time.Time
	values []string
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
	return &Vault{sources: sourcesOf(args, lookupEnv), files: files, roots: map[string]scan{}, plain: map[[sha256.Size]byte]string{}}
}

// Files are those from which passwords are read, and those of variables that the arguments name.
func (v *Vault) Files() (passwords, variables []string) {
	if v == nil {
		return nil, nil
	}
	for _, s := range v.sources {
		passwords = append(passwords, s.path)
	}
	return passwords, v.files
}

// Values returns the plain values of all vault texts in files and below
// directories, except hidden ones, and in files of variables that the arguments
// name. It returns none if no password is configured. If some values cannot be
// read, it returns the others and an error.
func (v *Vault) Values(ctx context.Context, paths ...string) ([]string, error) {
	if v == nil || len(v.sources) == 0 {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.ask(ctx); err != nil && len(v.passwords) == 0 {
		return nil, err
	}
	var values []string
	var errs []error
	for _, path := range slices.Concat(paths, v.files) {
		known, ok := v.roots[path]
		if !ok || time.Since(known.at) > maxAge {
			var err error
			if known.values, err = v.read(path); err != nil {
				errs = append(errs, err)
			}
			known.at = time.Now()
			v.roots[path] = known
		}
		values = append(values, known.values...)
	}
	return values, errors.Join(errs...)
}

// Texts returns the plain values of vault texts that are in texts, as [Vault.Values]
// does.
func (v *Vault) Texts(ctx context.Context, texts ...string) ([]string, error) {
	if v == nil || len(v.sources) == 0 {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var values []string
	var errs []error
	for _, text := range texts {
		bodies := find([]byte(text))
		if len(bodies) == 0 {
			continue
		}
		if err := v.ask(ctx); err != nil && len(v.passwords) == 0 {
			return nil, err
		}
		plain, failed := v.decryptAll(bodies)
		values, errs = append(values, plain...), append(errs, failed...)
	}
	return values, errors.Join(errs...)
}

// read decrypts what is in a file, or below a directory.
func (v *Vault) read(root string) ([]string, error) {
	var values []string
	var errs []error
	files := 0
	if is, err := filepath.EvalSymlinks(root); err == nil {
		root = is
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // what is not there or cannot be read, Ansible does not read either
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		info, err := os.Stat(path) // roles are linked to now and then
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
			return nil //nolint:nilerr // as above
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		plain, failed := v.decryptAll(find(data))
		values = append(values, plain...)
		for _, err := range failed {
			errs = append(errs, &fs.PathError{Op: "decrypt", Path: path, Err: err})
		}
		return nil
	})
	return values, errors.Join(append(errs, err)...)
}

// decryptAll returns the plain values, and an error for each text that has none.
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
	for _, password := range v.passwords {
		if value, err := decrypt(body, password); err == nil {
			if len(v.plain) >= maxTexts {
				clear(v.plain)
			}
			v.plain[digest] = string(value)
			return string(value), nil
		}
	}
	return "", errDecrypt
}

// ask gets the passwords, until there is one.
func (v *Vault) ask(ctx context.Context) error {
	if v.asked {
		return nil
	}
	var errs []error
	v.passwords = nil
	for _, s := range v.sources {
		password, err := s.password(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.passwords = append(v.passwords, password)
	}
	v.asked = len(v.passwords) > 0
	return errors.Join(errs...)
}
