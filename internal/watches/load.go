package watches

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/text"
)

// maxBytes bounds the file, before and after environment expansion. The largest
// files of known operators have a few kilobytes.
const maxBytes = 1 << 20

// ErrInvalid is returned by Load for a file with at least one problem that is
// an error.
var ErrInvalid = errors.New("watches file is invalid")

// Options control how a file is read. The zero value works: no environment, the
// process's working directory, zero defaults.
type Options struct {
	// LookupEnv gives the environment: for references in the text, for
	// ANSIBLE_ROLES_PATH, ANSIBLE_COLLECTIONS_PATH and HOME, and for the
	// settings per kind. It is usually os.LookupEnv; nil means no variables.
	LookupEnv func(name string) (string, bool)
	// Dir is the directory that relative paths start from; empty for the
	// process's working directory.
	Dir string
	// Defaults apply if the environment has no setting for a kind.
	Defaults Defaults
	// Strict reports warnings as errors, except warnings about correct settings
	// that mean something else in ansible-operator.
	Strict bool
}

// Defaults are the settings of a watch that come from flags.
type Defaults struct {
	MaxConcurrentReconciles int
	AnsibleVerbosity        int
	Executor                Executor
	// ReconcilePeriod is for watches with a chart; nil for a minute.
	ReconcilePeriod *time.Duration
}

// Load reads the watches file at path. It reports every problem of the file at
// once, ordered by position.
//
// The error is nil if the file can be used; the problems are then warnings. It
// wraps ErrInvalid if a problem is an error, or says why the file could not be
// read; then that is the only problem, too. Watches without errors are returned
// in any case, for tools that look further; an operator must not start with them.
func Load(path string, opts Options) ([]Watch, []Problem, error) {
	dir, err := filepath.Abs(opts.Dir) // of an empty path the working directory
	if err != nil {
		return nil, nil, fmt.Errorf("load watches: %w", err)
	}
	opts.Dir = dir
	if opts.LookupEnv == nil {
		opts.LookupEnv = func(string) (string, bool) { return "", false }
	}
	raw, err := read(absolute(opts.Dir, path))
	if err != nil {
		return nil, []Problem{unreadable(path, err)}, fmt.Errorf("load watches: %w", err)
	}
	c := &decoding{opts: opts, file: path, active: map[*yaml.Node]bool{}}
	watches := c.load(raw)
	c.finish()
	if c.errors > 0 {
		return watches, c.problems, fmt.Errorf("load %s: %w: %s", path, ErrInvalid, Summary(c.problems))
	}
	return watches, c.problems, nil
}

// errTooLarge is returned for a file beyond maxBytes.
var errTooLarge = fmt.Errorf("larger than %d bytes", maxBytes)

// read returns the file's content. Its errors name the path.
func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Not by the file's size: pipes and files in /proc have none.
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxBytes {
		return "", &os.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return string(data), nil
}

// unreadable explains why a file could not be read.
func unreadable(path string, err error) Problem {
	p := Problem{File: path, Severity: Error, Message: err.Error()}
	switch {
	case errors.Is(err, os.ErrNotExist):
		p.Hint = "pass the path of the file, or run in its directory; \"rolewright init\" creates a project"
	case errors.Is(err, os.ErrPermission):
		p.Hint = "make it readable for the user who runs the operator"
	case errors.Is(err, errTooLarge):
		p.Hint = "this does not look like a watches file; put large variables into the role's defaults"
	default:
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			p.Hint = fmt.Sprintf("pass the file in it, such as %s", filepath.Join(path, "watches.yaml"))
		}
	}
	return p
}

// load decodes the text and checks the result.
func (c *decoding) load(raw string) []Watch {
	text, made, ok := expand(raw, c.opts.LookupEnv, maxBytes)
	if !ok {
		c.reportAt(Position{Line: 1, Column: 1}, Error, Problem{
			Message: fmt.Sprintf("larger than %d bytes after environment expansion", maxBytes),
			Hint:    "put large values into the role's defaults",
		})
		return nil
	}
	c.src = newSource(raw, text, made)
	if !c.checkCharacters() {
		return nil
	}
	c.checkReplacements()
	root := c.parse()
	if root == nil {
		return nil
	}
	entries := c.entries(at{node: root})
	c.checkOverlaps(entries)
	c.checkCycles(entries)
	c.checkConversions(entries)
	var watches []Watch
	for _, e := range entries {
		if e.ok {
			watches = append(watches, e.watch)
		}
	}
	return watches
}

// entries decodes the list of watches.
func (c *decoding) entries(a at) []*entry {
	if a.node.Kind != yaml.SequenceNode {
		c.error(a, describeNode(a.node)+" is not a list of watches", `begin each watch with "- "`)
		return nil
	}
	if len(a.node.Content) == 0 {
		c.warn(a, noWatches, "")
	}
	entries := make([]*entry, 0, len(a.node.Content))
	for i := range a.node.Content {
		before := c.errors
		plain, _ := c.plain(a.index(i))
		e := c.entry(plain)
		if e == nil {
			continue
		}
		e.ok = before == c.errors
		entries = append(entries, e)
	}
	return entries
}

const noWatches = "the file has no watches; the operator will do nothing"

// checkReplacements reports references whose replacement is probably a mistake.
// Comments are expanded like everything else, but that does no harm.
func (c *decoding) checkReplacements() {
	for _, r := range c.src.replacements {
		was := c.src.raw[r.rawFrom:r.rawTo]
		if r.defined || c.src.inComment(r.rawFrom) {
			continue
		}
		p := Problem{Text: excerpt(was)}
		switch is := "${" + r.name + "}"; {
		case r.name == "":
			p.Message = fmt.Sprintf("malformed environment reference %s is removed", excerpt(was))
			p.Hint = "write ${NAME} with the name of an environment variable"
		case was != is:
			p.Message = fmt.Sprintf("%s becomes %s, because no environment variable has the name %s", was, is, r.name)
			p.Hint = "a dollar sign cannot be escaped: set the variable, or move the text into the role"
		default:
			continue // stays as it is
		}
		c.reportAt(c.src.rawPosition(r.rawFrom), c.warning(), p)
	}
}

// directory returns the directory of the watches file. Absolute.
func (c *decoding) directory() string { return filepath.Dir(absolute(c.opts.Dir, c.file)) }

// absolute joins a relative path to the directory.
func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// excerpt returns the first line of a text, shortened.
func excerpt(s string) string {
	line, rest, _ := strings.Cut(s, "\n")
	if rest != "" {
		line += "…"
	}
	return text.Clip(line, maxExcerpt)
}

// maxExcerpt is the length in bytes; enough to recognise a line of the file.
const maxExcerpt = 80
