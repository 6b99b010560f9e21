package runner

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/rundir"
)

// cookieName is the variable that marks every process of a run.
const cookieName = "ROLEWRIGHT_RUN"

// maxVerbosity is the highest number of v's that makes a difference to ansible-playbook.
const maxVerbosity = 7

// reported returns an empty [Reported] for a run of a command or function; nil for Ansible.
func (c Content) reported() *Reported {
	switch {
	case c.Command != nil:
		return &Reported{name: filepath.Base(c.Command.Path), requireResult: c.Command.RequireResult}
	case c.Function != nil:
		return &Reported{name: c.Function.Name, function: true}
	}
	return nil
}

// normalise returns the request with clean paths and a role path that is
// absolute: ansible-playbook has another working directory than the operator.
func (req Request) normalise() (Request, error) {
	if !rundir.IsID(req.ID) {
		return req, fmt.Errorf("invalid run ID %q", req.ID)
	}
	if !filepath.IsAbs(req.Dir) {
		return req, fmt.Errorf("private data dir %q is not absolute", req.Dir)
	}
	req.Dir = filepath.Clean(req.Dir)
	req.reports = req.Content.reported()
	switch c := &req.Content; {
	case c.Command != nil:
		if c.Playbook+c.Role != "" || !filepath.IsAbs(c.Command.Path) || !filepath.IsAbs(c.Command.Dir) {
			return req, fmt.Errorf("command %q in %q: paths must be absolute, and nothing else be run", c.Command.Path, c.Command.Dir)
		}
	case c.Function != nil:
		if c.Playbook+c.Role != "" {
			return req, fmt.Errorf("function %s: nothing else can be run", c.Function.Name)
		}
	case (c.Playbook == "") == (c.Role == ""):
		return req, errors.New("content must be either a playbook or a role or a command")
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
// They do not have ansible-runner rotate artifacts: it would count the link to
// the latest run, and might remove a run in progress.
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

// environment returns the environment of the run. environ has no duplicates. The
// guard comes before all other callback plugins. Unless environ names other
// directories, Ansible's temporary files are in the private data directory, where
// nothing outlives the run's retention, and ssh's control sockets are in a directory
// that only this run uses: the ssh process that owns a socket ends with its run, so
// no other run may share it. A user without a home directory, such as one that is
// not in the passwd file, gets one in the private data directory.
func (req Request) environment(environ []string) []string {
	const callbacks, localTemp = "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_LOCAL_TEMP"
	plugins := filepath.Join(req.Dir, callbackDir)
	if more := ansibleenv.Lookup(environ, callbacks); more != "" {
		plugins += ":" + more
	}
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, callbacks+"=") })
	out = append(out, callbacks+"="+plugins)
	if ansibleenv.Lookup(environ, localTemp) == "" {
		out = append(out, localTemp+"="+filepath.Join(req.Dir, tempDir))
	}
	if req.controlDir != "" && ansibleenv.Lookup(environ, "ANSIBLE_SSH_CONTROL_PATH_DIR") == "" {
		out = append(out, "ANSIBLE_SSH_CONTROL_PATH_DIR="+req.controlDir)
	}
	return ansibleenv.WithHome(ansibleenv.Direct(out), filepath.Join(req.Dir, tempDir))
}
