package watches

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// contentKeys is where a watch or finalizer names what is run.
type contentKeys struct {
	owner          at
	keys           map[string]at
	playbook, role string
}

// content finds the role or playbook. One that cannot be found is reported with
// the given severity, and returned too; ok is false if none is named.
func (c *decoding) content(k contentKeys, severity Severity) (found Content, ok bool) {
	switch {
	case k.playbook != "":
		if a, both := k.keys["role"]; both && k.role != "" {
			c.warn(a, "the playbook is run, the role is not: only one of the two can be given", "remove the one that is not meant")
		}
		path := absolute(c.opts.Dir, k.playbook)
		c.checkPlaybook(k.keys["playbook"], path, severity)
		return Content{Playbook: path}, true
	case k.role != "":
		path, tried := c.findRole(k.role)
		c.checkRole(k.keys["role"], path, tried, severity)
		return Content{Role: path}, true
	}
	if mismatched(k.keys, "playbook") || mismatched(k.keys, "role") {
		return Content{}, false
	}
	c.report(k.owner, Error, "must specify Role or Playbook", `add "role:" or "playbook:"`)
	return Content{}, false
}

func (c *decoding) checkPlaybook(a at, path string, severity Severity) {
	info, err := os.Stat(path)
	switch {
	case isMissing(err):
		c.report(a, severity, fmt.Sprintf("playbook: %s was not found", path),
			pathHint(a.node.Value, "name a file, absolute or relative to "+c.opts.Dir))
		return
	case err != nil:
		c.report(a, severity, fmt.Sprintf("playbook: %s was not found: %s", path, cause(err)), "make its directories accessible")
		return
	case info.IsDir():
		c.report(a, severity, fmt.Sprintf("playbook: %s is a directory", path), `name a playbook file; a role goes with "role:"`)
		return
	case !info.Mode().IsRegular():
		c.report(a, severity, fmt.Sprintf("playbook: %s is not a regular file", path), "name a playbook file")
		return
	}
	f, err := os.Open(path)
	if err != nil {
		c.report(a, severity, fmt.Sprintf("playbook: %s cannot be read: %s", path, cause(err)), "make the file readable")
		return
	}
	_ = f.Close() // opened only to see whether that is allowed
}

func (c *decoding) checkRole(a at, path string, tried []string, severity Severity) {
	info, err := os.Stat(absolute(c.opts.Dir, path))
	switch {
	case isMissing(err):
		c.report(a, severity, fmt.Sprintf("role: %s was not found", path),
			pathHint(a.node.Value, "looked for "+strings.Join(tried, ", ")))
	case err != nil:
		c.report(a, severity, fmt.Sprintf("role: %s was not found: %s", path, cause(err)), "make its directories accessible")
	case !info.IsDir():
		c.report(a, severity, fmt.Sprintf("role: %s is not a directory", path), `name a role's directory; a file goes with "playbook:"`)
	}
}

// isMissing reports whether a path does not exist, also if a part of it is a file.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// cause is the error without the path, which the message names already.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// pathHint recognises a path that begins with a tilde, which is a mistake.
func pathHint(written, otherwise string) string {
	if strings.HasPrefix(written, "~") {
		return `"~" is not expanded; write ${HOME}`
	}
	return otherwise
}

// findRole returns the first place where the role is, or the role as written if
// it is in none.
func (c *decoding) findRole(role string) (path string, tried []string) {
	tried = c.rolePlaces(role)
	for _, p := range tried {
		if _, err := os.Stat(absolute(c.opts.Dir, p)); err == nil {
			return p, tried
		}
	}
	if !filepath.IsAbs(role) {
		tried = append(tried, absolute(c.opts.Dir, role))
	}
	return role, tried
}

// rolePlaces lists where a role may be, in order. Entries of the search paths
// that are relative stay so.
func (c *decoding) rolePlaces(role string) []string {
	if filepath.IsAbs(role) {
		return []string{role}
	}
	var places []string
	if name := strings.Split(role, "."); len(name) == 3 { // namespace.collection.role
		for _, dir := range c.collectionsPath() {
			places = append(places, filepath.Join(dir, "ansible_collections", name[0], name[1], "roles", name[2]))
		}
	}
	if path := c.env("ANSIBLE_ROLES_PATH"); path != "" {
		for dir := range strings.SplitSeq(path, ":") {
			places = append(places, filepath.Join(dir, role), filepath.Join(dir, "roles", role))
		}
	}
	return append(places, filepath.Join(c.opts.Dir, "roles", role))
}

// collectionsPath is where collections are searched: the value of the variable, or
// else Ansible's default places.
func (c *decoding) collectionsPath() []string {
	if path := c.env("ANSIBLE_COLLECTIONS_PATH"); path != "" {
		return strings.Split(path, ":")
	}
	dirs := []string{"/usr/share/ansible/collections"}
	if home := c.env("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".ansible", "collections"))
	}
	return dirs
}

// env is a variable's value; an empty one counts as none.
func (c *decoding) env(name string) string {
	value, _ := c.opts.LookupEnv(name)
	return value
}
