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
	"github.com/rolewright/rolewright/runner/supervise"
)

// ErrNotRunnable is returned when the command of a run cannot be started: it is missing,
// not executable, or needs an interpreter that is.
var ErrNotRunnable = errors.New("the command cannot be started")

// Command is an executable that a run starts in place of Ansible. What it is told stands
// in files, and it reports in one: see docs/handlers.md.
type Command struct {
	// Path is the executable; absolute.
	Path string
	// Args are its arguments without the name, as they are given to it.
	Args []string
	// Dir is the working directory; absolute.
	Dir string
	// InheritEnv are the variables that it gets of the operator's beside the usual ones.
	InheritEnv []string
	// Env are more variables, with their values.
	Env map[string]string
	// StopSignal stops it, and Grace is the time between that and SIGKILL; 0 for SIGTERM
	// and 5 seconds.
	StopSignal syscall.Signal
	Grace      time.Duration
	// RequireResult has a run without a result fail.
	RequireResult bool
}

// The files of a command's private data directory. Those in env go with it when the run
// has ended.
const (
	// InputFile has what the command is told, ObjectFile the object alone. They are among
	// [Request.Files]; the first is stdin, too.
	InputFile  = "env/input.json"
	ObjectFile = "env/object.json"
	// SecretsDir is the directory of those files that may only be read.
	SecretsDir = "env/secrets"
	// SettingsFile has what else a program of ours is told; it is there if Files has it.
	SettingsFile = "env/settings.json"

	// ReportsFile has what the command reports, in the artifacts directory.
	ReportsFile = "events.jsonl"

	homeDir     = "home"
	stdoutFile  = "stdout"
	stderrFile  = "stderr"
	protocolEnv = "ROLEWRIGHT_PROTOCOL"
)

// protocol is the version of what a command and the operator tell each other.
const protocol = "1"

// keptEnv are the variables of the operator that a command gets.
func keptEnv() []string {
	names := []string{"PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		names = append(names, name, strings.ToLower(name))
	}
	return names
}

// commandEnviron is the environment of a command: nothing of the operator's but what
// programs need anywhere, so that no credentials are in it, and clients in the cluster
// take the way to the API server that the kubeconfig says.
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
		"HOME": in(homeDir), "TMPDIR": in(tempDir),
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

// fillCommand makes what a command finds in its private data directory.
func (d privateDir) fillCommand(req Request) error {
	artifacts := "artifacts/" + req.ID
	for _, dir := range []string{"env", SecretsDir, "artifacts", artifacts, homeDir, tempDir} {
		if err := d.mkdir(dir); err != nil {
			return err
		}
	}
	if err := d.write(artifacts+"/"+ReportsFile, nil); err != nil {
		return err
	}
	return d.files(req.Files)
}

// executable is the program that the run starts.
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

// order is the command that starts the run.
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
	if r.opts.Temp != nil {
		// What the API server serves is the same for all runs, and takes kubectl seconds.
		order.Env = append(order.Env, "KUBECACHEDIR="+filepath.Join(r.opts.Temp.dir.Name(), "kubecache"))
	}
	order.Output, order.Errors = filepath.Join(artifacts, stdoutFile), filepath.Join(artifacts, stderrFile)
	order.Reports = filepath.Join(artifacts, ReportsFile)
	if _, has := req.Files[InputFile]; has {
		order.Input = filepath.Join(req.Dir, InputFile)
	}
	return order
}
