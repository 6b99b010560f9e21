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

// content finds the role or playbook that is named. If it cannot be found, it is
// reported with the given severity, and returned all the same.
func (c *decoding) content(k mapping, severity Severity) Content {
	switch {
	case k.playbook != "":
		if a, both := k.keys["role"]; both && k.role != "" {
			c.warn(a, "both playbook and role are set: the playbook runs, the role is ignored", "remove one of them")
		}
		path := absolute(c.opts.Dir, k.playbook)
		c.checkPlaybook(k.keys["playbook"], path, severity)
		return Content{Playbook: path}
	case k.role != "":
		path, tried := c.findRole(k.role)
		a := k.keys["role"]
		if info := c.stat(a, "role: "+path, path, "looked for "+strings.Join(tried, ", "), severity); info != nil && !info.IsDir() {
			c.report(a, severity, fmt.Sprintf("role: %s is not a directory", path), `write the directory of a role; for a playbook file, use "playbook:"`)
		}
		return Content{Role: path}
	case !k.mismatched("playbook") && !k.mismatched("role"):
		c.report(k.at, Error, "must specify Role or Playbook", `add "role:", "playbook:", "command:" or "chart:"`)
	}
	return Content{}
}

func (c *decoding) checkPlaybook(a at, path string, severity Severity) {
	what := "playbook: " + path
	info := c.stat(a, what, path, "write the path of a file, absolute or relative to "+c.opts.Dir, severity)
	switch {
	case info == nil:
		return
	case info.IsDir():
		c.report(a, severity, what+" is a directory", `write the path of a playbook file; for a role, use "role:"`)
		return
	case !info.Mode().IsRegular():
		c.report(a, severity, what+" is not a regular file", "write the path of a playbook file")
		return
	}
	f, err := os.Open(path)
	if err != nil {
		c.report(a, severity, fmt.Sprintf("%s cannot be read: %s", what, cause(err)), "make the file readable")
		return
	}
	_ = f.Close() // opened only to see whether that is allowed
}

// stat returns what a path is. If the path cannot be found, it reports that and returns nil.
func (c *decoding) stat(a at, what, path, searched string, severity Severity) fs.FileInfo {
	info, err := os.Stat(absolute(c.opts.Dir, path))
	what += " was not found"
	switch {
	case err == nil:
		return info
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR): // a part of the path may be a file
		c.report(a, severity, fmt.Sprintf("%s: %s", what, cause(err)), "check the permissions of its directories")
	case strings.HasPrefix(a.node.Value, "~"):
		c.report(a, severity, what, `"~" is not expanded; write ${HOME}`)
	default:
		c.report(a, severity, what, searched)
	}
	return nil
}

// cause returns the error without the path, which the message contains already.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// findRole returns the first place where the role exists, or the role as written if
// it exists in none.
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

// rolePlaces lists where a role may be, in order. Relative entries of the search
// paths stay relative.
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

// collectionsPath returns where collections are searched for: the value of the variable, or
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

// env returns a variable's value; empty if it is not set.
func (c *decoding) env(name string) string {
	value, _ := c.opts.LookupEnv(name)
	return value
}
