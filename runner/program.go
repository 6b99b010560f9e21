package runner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/supervise"
)

// ErrNotRunnable is returned when the command of a run cannot be started: it, or its
// interpreter, is missing or not executable.
var ErrNotRunnable = errors.New("the command cannot be started")

// Command is an executable that a run starts in place of Ansible. It reads its input from
// files, and writes its reports to a file: see docs/handlers.md.
type Command struct {
	// Path is the executable; absolute.
	Path string
	// Args are its arguments without the name, passed unchanged.
	Args []string
	// Dir is the working directory; absolute.
	Dir string
	// InheritEnv names the variables of the operator that it gets in addition to the usual ones.
	InheritEnv []string
	// Env are more variables, with their values.
	Env map[string]string
	// StopSignal stops it, and Grace is the time between that and SIGKILL; 0 means SIGTERM
	// and 5 seconds.
	StopSignal syscall.Signal
	Grace      time.Duration
	// RequireResult makes a run without a result fail.
	RequireResult bool
}

// The files of a command's private data directory. The directory env is removed when the
// run has ended.
const (
	// InputFile has the input of the command, ObjectFile the object alone. Both come from
	// [Request.Files]; InputFile is also the standard input.
	InputFile  = "env/input.json"
	ObjectFile = "env/object.json"
	// SecretsDir is the directory of the files that are read-only.
	SecretsDir = "env/secrets"
	// SettingsFile has further input for one of Rolewright's own programs; it exists if
	// [Request.Files] has it.
	SettingsFile = "env/settings.json"

	// ReportsFile has the reports of the command, in the artifacts directory.
	ReportsFile = "events.jsonl"

	stdoutFile  = "stdout"
	stderrFile  = "stderr"
	protocolEnv = "ROLEWRIGHT_PROTOCOL"
)

// protocol is the version of the protocol between a command and the operator.
const protocol = "1"

// keptEnv names the variables of the operator that every command gets.
func keptEnv() []string {
	names := []string{"PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		names = append(names, name, strings.ToLower(name))
	}
	return names
}

// commandEnviron returns the environment of a command. Of the operator's variables it has
// only those that all programs need and those in InheritEnv: it contains no credentials,
// and Kubernetes clients reach the API server as the kubeconfig says.
func (req Request) commandEnviron(environ []string) []string {
	env := map[string]string{"LANG": "C.UTF-8"}
	for _, name := range append(keptEnv(), req.Content.Command.InheritEnv...) {
		if value := ansibleenv.Lookup(environ, name); value != "" {
			env[name] = value
		}
	}
	maps.Copy(env, req.Content.Command.Env)
	maps.Copy(env, req.Env)
	delete(env, cookieName)
	in := func(names ...string) string { return filepath.Join(append([]string{req.Dir}, names...)...) }
	for name, value := range map[string]string{
		protocolEnv: protocol, "ROLEWRIGHT_RUN_ID": req.ID, "ROLEWRIGHT_DIR": req.Dir,
		"ROLEWRIGHT_INPUT": in(InputFile), "ROLEWRIGHT_OBJECT": in(ObjectFile), "ROLEWRIGHT_SECRETS_DIR": in(SecretsDir),
		"ROLEWRIGHT_EVENTS": in("artifacts", req.ID, ReportsFile), "ROLEWRIGHT_EVENTS_FD": "3",
		"HOME": in(rundir.Home), "TMPDIR": in(tempDir),
	} {
		env[name] = value
	}
	if _, has := req.Files[SettingsFile]; has {
		env["ROLEWRIGHT_SETTINGS"] = in(SettingsFile)
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	list = ansibleenv.Direct(list)
	slices.Sort(list)
	return list
}

// fillCommand makes the contents of a command's private data directory.
func (d privateDir) fillCommand(req Request) error {
	artifacts := "artifacts/" + req.ID
	for _, dir := range []string{"env", SecretsDir, "artifacts", artifacts, rundir.Home, tempDir} {
		if err := d.mkdir(dir); err != nil {
			return err
		}
	}
	if err := d.write(artifacts+"/"+ReportsFile, nil); err != nil {
		return err
	}
	return d.files(req.Files)
}

// executable returns the path of the program that the run starts; empty for a function.
func (r *Runner) executable(req Request) (string, error) {
	if c := req.Content.Command; c != nil {
		path, err := exec.LookPath(c.Path)
		if err != nil {
			return "", fmt.Errorf("%w: %w; install it and make it executable (chmod +x)", ErrNotRunnable, err)
		}
		return path, nil
	}
	if req.Content.Function != nil {
		return "", nil
	}
	path, err := exec.LookPath(r.opts.Path)
	if err != nil {
		return "", fmt.Errorf("%w: %w; %s", ErrUnavailable, err, installIt)
	}
	return path, nil
}

// order returns the command that starts the run.
func (r *Runner) order(req Request, executable string) supervise.Command {
	order := supervise.Command{
		Path:   executable,
		Cookie: cookieName + "=" + req.ID,
		Grace:  r.grace,
		Record: filepath.Join(req.Dir, endRecord),
		Run:    req.ID, Until: req.latest(),
		ForkTimeout: r.opts.ForkTimeout,
	}
	c := req.Content.Command
	if c == nil {
		order.Args, order.Env, order.Output = req.arguments(), req.environment(r.opts.Environ), filepath.Join(req.Dir, runnerLog)
		return order
	}
	artifacts := artifactsDir(req)
	order.Signal, order.Grace, order.Hurry = c.StopSignal, cmp.Or(c.Grace, r.grace), req.Hurry
	order.Args, order.Env, order.Dir = c.Args, req.commandEnviron(r.opts.Environ), cmp.Or(c.Dir, req.Dir)
	if r.opts.Temp != nil && ansibleenv.Lookup(order.Env, "KUBECACHEDIR") == "" {
		// kubectl needs seconds to discover what the API server serves, which is the same for all runs.
		order.Env = append(order.Env, "KUBECACHEDIR="+filepath.Join(r.opts.Temp.dir.Name(), "kubecache"))
	}
	order.Output, order.Errors = filepath.Join(artifacts, stdoutFile), filepath.Join(artifacts, stderrFile)
	order.Reports = filepath.Join(artifacts, ReportsFile)
	if _, has := req.Files[InputFile]; has {
		order.Input = filepath.Join(req.Dir, InputFile)
	}
	return order
}
