package runner

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cookieName is the variable that marks every process of a run.
const cookieName = "ROLEWRIGHT_RUN"

// maxVerbosity is as far as ansible-playbook counts its v's.
const maxVerbosity = 7

// idPattern is what a run's ID may look like: it becomes an argument and the
// name of a directory.
var idPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)

// IsID tells whether a text can be the ID of a run: then it is the name of a
// directory, and no path.
func IsID(text string) bool { return idPattern.MatchString(text) }

// normalise returns the request with clean paths and a role path that is
// absolute: ansible-playbook runs in another directory than the operator, and
// would look for a relative one there.
func (req Request) normalise() (Request, error) {
	if !idPattern.MatchString(req.ID) {
		return req, fmt.Errorf("invalid run ID %q", req.ID)
	}
	if !filepath.IsAbs(req.Dir) {
		return req, fmt.Errorf("private data dir %q is not absolute", req.Dir)
	}
	req.Dir = filepath.Clean(req.Dir)
	switch c := &req.Content; {
	case (c.Playbook == "") == (c.Role == ""):
		return req, errors.New("content must be either a playbook or a role")
	case c.Role != "":
		role, err := filepath.Abs(c.Role)
		if err != nil {
			return req, fmt.Errorf("resolve role %q: %w", c.Role, err)
		}
		c.Role = role
	case !filepath.IsAbs(c.Playbook):
		return req, fmt.Errorf("playbook %q is not absolute", c.Playbook)
	}
	return req, nil
}

// arguments returns the arguments of ansible-runner for a normalised request.
// Artifacts are not rotated by it: it would count the link to the latest run,
// and might remove a run that is alive.
func (req Request) arguments() []string {
	args := []string{"run", req.Dir}
	if c := req.Content; c.Playbook != "" {
		args = append(args, "-p", c.Playbook)
	} else {
		dir, base := filepath.Split(c.Role)
		args = append(args, "--role", base, "--roles-path", dir, "--hosts", "localhost")
	}
	args = append(args, "-i", req.ID)
	if n := min(req.Verbosity, maxVerbosity); n > 0 {
		args = append(args, "-"+strings.Repeat("v", n))
	}
	if req.Content.Role != "" && req.SkipFacts {
		args = append(args, "--role-skip-facts")
	}
	return args
}

// internalVariables are the beginnings of the names of those variables of the
// operator's environment that are none of a playbook's business. Everything
// else is inherited: roles read it, and ANSIBLE_* configures Ansible.
func internalVariables() []string { return []string{"ROLEWRIGHT_"} }

// inherited returns the environment entries that a run inherits, later ones
// winning over earlier ones of the same name.
func inherited(environ []string) []string {
	seen := map[string]bool{}
	var kept []string
	for _, entry := range slices.Backward(environ) {
		name, _, ok := strings.Cut(entry, "=")
		internal := slices.ContainsFunc(internalVariables(), func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
		if !ok || name == "" || internal || seen[name] {
			continue
		}
		seen[name] = true
		kept = append(kept, entry)
	}
	slices.Reverse(kept)
	return kept
}

// environment returns the environment of the run, from one without duplicates:
// with the guard before whatever callback plugins there are, and with Ansible's
// temporary files in the private data directory, where nothing outlives the
// run's retention, unless they were given another place. So are the sockets of
// its connections by ssh: the run that opens the first is the others' way to the host,
// and goes with its run. The home directory is
// there too where there is none, as that of a user whom no passwd file knows.
func (req Request) environment(environ []string) []string {
	const callbacks, localTemp = "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_LOCAL_TEMP"
	plugins := filepath.Join(req.Dir, callbackDir)
	if more := lookup(environ, callbacks); more != "" {
		plugins += ":" + more
	}
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, callbacks+"=") })
	out = append(out, callbacks+"="+plugins)
	if lookup(environ, localTemp) == "" {
		out = append(out, localTemp+"="+filepath.Join(req.Dir, tempDir))
	}
	if req.controlDir != "" && lookup(environ, "ANSIBLE_SSH_CONTROL_PATH_DIR") == "" {
		out = append(out, "ANSIBLE_SSH_CONTROL_PATH_DIR="+req.controlDir)
	}
	return housed(out, filepath.Join(req.Dir, tempDir))
}

// housed returns an environment with a home directory, dir where there is none,
// and with other places in dir for what is written to the home directory, where
// no one can: Ansible would make directories there, or in one of the name ~. It
// leaves alone what has a place already. A user whom no passwd file knows has a
// name there too: without one ansible-core 2.19 does not start.
func housed(environ []string, dir string) []string {
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil && lookup(environ, "LOGNAME") == "" && lookup(environ, "USER") == "" {
		environ = append(slices.Clone(environ), "USER=ansible")
	}
	home := lookup(environ, "HOME")
	if fi, err := os.Stat(home); err != nil || !fi.IsDir() {
		out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "HOME=") })
		return append(out, "HOME="+dir)
	}
	if canWrite(filepath.Join(home, ".ansible", "tmp")) {
		return environ
	}
	out := slices.Clone(environ)
	for _, names := range [][]string{
		{"ANSIBLE_LOCAL_TEMP"},
		{"ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"},
		{"ANSIBLE_ASYNC_DIR"},
	} {
		if !slices.ContainsFunc(names, func(name string) bool { return lookup(environ, name) != "" }) {
			out = append(out, names[0]+"="+dir)
		}
	}
	return out
}

// canWrite tells whether files can be made in a directory, made for that where
// it is missing.
func canWrite(dir string) bool {
	for {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return err == nil
		}
		dir = filepath.Dir(dir)
	}
}

// lookup returns the value of a variable in an environment without duplicates.
func lookup(environ []string, name string) string {
	for _, entry := range environ {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value
		}
	}
	return ""
}
