package watches

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Command is an executable that runs in place of Ansible.
type Command struct {
	// Path is the absolute path of the executable.
	Path string
	// Args are its arguments as written, without the executable.
	Args []string
	// Dir is the working directory: the directory of the watches file. Absolute.
	Dir string
	// InheritEnv are the operator's variables that it gets in addition to the usual ones.
	InheritEnv []string `json:",omitempty"`
	// Env are variables with literal values. They replace inherited ones.
	Env map[string]string `json:",omitempty"`
	// RequireResult makes a run without a result fail.
	RequireResult bool `json:",omitempty"`
	// Stop says how the command is stopped. It is not an input of runs.
	Stop Stop `json:"-"`
	// Chart is the chart that the built-in command for charts runs; nil for all other commands.
	Chart *Chart `json:",omitempty"`
}

// Stop says how a command is stopped.
type Stop struct {
	// Signal is the name of the signal that the command's processes get; empty for SIGTERM.
	Signal string
	// Grace is the time between that signal and SIGKILL.
	Grace time.Duration
}

// The default grace of a command, and the longest.
const (
	defaultGrace = 5 * time.Second
	maxGrace     = 10 * time.Minute
)

func stopFields() []field[Stop] {
	return []field[Stop]{
		{Field{"signal", typeString, "SIGTERM", false,
			"The signal that the processes of the command get: SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1 or SIGUSR2."},
			word("stop signal", func(s *Stop) *string { return &s.Signal }, "SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")},
		{Field{"grace", typeDuration, "5s", false,
			"The time between this signal and SIGKILL, from 0 to 10m. If the operator itself has to stop, it is at most 5s."},
			func(c *decoding, s *Stop, a at) {
				d, ok := duration(c, a)
				if ok && (d < 0 || d > maxGrace) {
					c.error(a, fmt.Sprintf("the grace period %s is not between 0 and 10m", d), `write for example "30s"`)
				}
				s.Grace = d
			}},
	}
}

// Files returns the absolute paths of the executable, of the files that its arguments name, and of its chart.
func (c *Command) Files() []string {
	files := []string{c.Path}
	if c.Chart != nil {
		files = append(files, c.Chart.Dir)
	}
	for _, arg := range c.Args {
		path := absolute(c.Dir, arg)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, path)
		}
	}
	return files
}

// setCommand reads a command, which is a list: no shell splits it.
func setCommand[T any](of func(*T) *[]string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		list, before := []string{}, c.errors
		c.elements(a, func(element at) {
			if word, ok := c.string(element); ok {
				if strings.ContainsRune(word, 0) {
					c.error(element, "an argument cannot have a NUL character", "remove it")
				}
				list = append(list, word)
			}
		})
		if before == c.errors && (len(list) == 0 || list[0] == "") {
			c.error(a, "the command names no executable", `write for example command: [./reconcile.sh]`)
		}
		*of(into) = list
	}
}

// setInheritEnv reads names of environment variables.
func setInheritEnv(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		if name, ok := c.string(element); ok && c.mayBeSet(element, name) {
			e.settings.InheritEnv = append(e.settings.InheritEnv, name)
		}
	})
}

// setEnv reads environment variables with their values, which are taken literally.
func setEnv(c *decoding, e *entry, a at) {
	if a.node.Kind != yaml.MappingNode {
		c.mismatch(a, typeMap)
		return
	}
	e.settings.Env = map[string]string{}
	for _, p := range pairs(a) {
		value, ok := c.string(p.value)
		switch {
		case p.key == "true" || p.key == "false":
			c.error(p.name, "YAML reads the name of this variable as "+p.key, "choose another name: YAML reads Y, N, on, off and the like as true or false")
		case !ok || !c.mayBeSet(p.name, p.key):
		case strings.ContainsRune(value, 0):
			c.error(p.value, "a variable cannot have a NUL character", "remove it")
		default:
			e.settings.Env[p.key] = value
		}
	}
}

// mayBeSet reports names that no variable can have, and names of variables that each run
// has with values of its own.
func (c *decoding) mayBeSet(a at, name string) bool {
	switch {
	case !variableName.MatchString(name):
		c.error(a, fmt.Sprintf("%q is not a name of an environment variable", excerpt(name)), "write for example AWS_REGION; patterns are not supported")
	case strings.HasPrefix(name, "ROLEWRIGHT_") || strings.HasPrefix(name, "KUBERNETES_") || slices.Contains([]string{"KUBECONFIG", "K8S_AUTH_KUBECONFIG", "HOME", "TMPDIR"}, name):
		c.error(a, name+" is reserved: each run has its own value, or requests would bypass the API proxy", "remove it")
	default:
		return true
	}
	return false
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// commandOf finds the executable of a command. It returns nil if the executable cannot be used, which is reported.
func (c *decoding) commandOf(k mapping, settings Command) *Command {
	if len(k.command) == 0 || k.command[0] == "" {
		return nil // which has been reported
	}
	settings.Path, settings.Args, settings.Dir = k.command[0], k.command[1:], c.directory()
	return c.checkCommand(k.keys["command"], &settings)
}

func (c *decoding) checkCommand(a at, command *Command) *Command {
	name := command.Path
	if strings.Contains(name, "/") {
		command.Path = absolute(command.Dir, name)
	} else if command.Path = inPath(c.env("PATH"), name); command.Path == "" {
		hint := "install it, or write its path"
		if _, err := os.Stat(filepath.Join(command.Dir, name)); err == nil {
			hint = "write ./" + excerpt(name) + " for the file next to the watches file"
		}
		c.error(a, fmt.Sprintf("command: %s was not found in PATH", excerpt(name)), hint)
		return nil
	}
	what := "command: " + command.Path
	info, err := os.Stat(command.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.error(a, what+" was not found", "write the path of an executable, absolute or relative to "+command.Dir+", the directory of the watches file")
	case err != nil:
		c.error(a, fmt.Sprintf("%s: %s", what, cause(err)), "check the permissions of its directories")
	case !info.Mode().IsRegular():
		c.error(a, what+" is not a regular file", "write the path of an executable file")
	case info.Mode()&0o111 == 0:
		c.error(a, what+" is not executable", "run chmod +x "+command.Path)
	case info.Mode()&0o022 != 0:
		c.error(a, fmt.Sprintf("%s is writable by users other than its owner (mode %04o)", what, info.Mode().Perm()), "run chmod go-w "+command.Path)
	default:
		return command
	}
	return nil
}

// inPath returns the absolute path of a program in the directories of PATH; empty if there is none.
func inPath(list, name string) string {
	for dir := range strings.SplitSeq(list, ":") {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			continue // the working directory is no place for programs
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// executorOfCommand lets runs of a command be Jobs only if the watch itself says so: the
// defaults are for Ansible.
func (c *decoding) executorOfCommand(e *entry) {
	a, given := e.keys["executor"]
	if given && e.watch.Executor == ExecutorJob {
		return
	}
	if given && !e.mismatched("executor") {
		c.error(a, fmt.Sprintf("executor %q is for roles and playbooks", e.watch.Executor), "remove it, or write job to execute each run in its own Pod")
	}
	e.watch.Executor, e.watch.Job = ExecutorRunner, nil // no interpreter of Ansible's is needed
}
