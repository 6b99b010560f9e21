package runner

import (
	"context"
	_ "embed" // the program that asks Python
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/warm"
)

// Versions are the versions of the programs that a run needs.
type Versions struct {
	// Runner is the version of ansible-runner, for instance 2.3.1. It is 0.0.0
	// for packages that were built without a version, such as Debian's of 2.4.
	Runner string
	// Core is the version of ansible-core.
	Core string
	// Python is the version of ansible-core's Python, followed by its path if
	// ansible-core prints it; empty if ansible-core prints neither.
	Python string
}

// versionPattern matches a version in the output of --version: ansible-runner
// prints it alone on a line, ansible-playbook in brackets.
var versionPattern = regexp.MustCompile(`(?:^|[ \[])(\d+)\.\d+[0-9A-Za-z.+-]*`)

// pythonPattern matches the line about Python in the output of ansible-playbook --version.
var pythonPattern = regexp.MustCompile(`(?m)^ *python version = (\S+)(?:.* (\(/\S+\)))?`)

// Check returns the installed versions. It runs both programs, which takes a
// second, so callers keep the answer for a while. An error wraps
// [ErrUnavailable]: a program is missing, cannot be executed, or is too old.
func (r *Runner) Check(ctx context.Context) (Versions, error) {
	var v Versions
	var errRunner, errCore error
	var wg sync.WaitGroup
	wg.Go(func() { v.Runner, _, errRunner = r.version(ctx, r.opts.Path) })
	wg.Go(func() { v.Core, v.Python, errCore = r.version(ctx, "ansible-playbook") })
	wg.Wait()
	if errRunner == nil && strings.HasPrefix(v.Runner, "1.") {
		errRunner = fmt.Errorf("ansible-runner %s is too old, 2.0 or newer is needed", v.Runner)
	}
	if errCore == nil && tooOld(v.Core) {
		errCore = fmt.Errorf("ansible-core %s is too old, 2.14 or newer is needed", v.Core)
	}
	if err := errors.Join(errRunner, errCore); err != nil {
		return v, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return v, nil
}

// tooOld reports whether a version of ansible-core is older than 2.14. The guard checks the same in each run.
func tooOld(core string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(core, "%d.%d", &major, &minor) // a version of another form may be newer
	return n == 2 && (major < 2 || major == 2 && minor < 14)
}

// guardRefuses matches the message with which the guard refuses an old ansible-core.
var guardRefuses = regexp.MustCompile(`ansible-core \S+ is too old, .*`)

// tooOld returns an error if the guard has ended the run because ansible-core is too old.
func (r Result) tooOld() error {
	line := guardRefuses.FindString(r.Tail)
	if line == "" || r.Command != nil || r.ExitCode == 0 || r.Summary.PlaybookUUID != "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, line)
}

// Look returns the same as [Runner.Check], but executes neither program if the metadata
// of the installed packages is conclusive: that takes a fifth of the CPU. Unlike Check it
// does not notice a damaged file.
func (r *Runner) Look(ctx context.Context) (Versions, error) {
	if v, err := r.read(ctx); err == nil && !strings.HasPrefix(v.Runner, "1.") && !tooOld(v.Core) {
		return v, nil
	}
	return r.Check(ctx)
}

// versionsProgram is the Python program that reads the metadata.
//
//go:embed versions.py
var versionsProgram string

// read reads the versions from the metadata. On an error, the programs have to be asked.
func (r *Runner) read(ctx context.Context) (v Versions, err error) {
	path, err := exec.LookPath(r.opts.Path)
	if err != nil {
		return v, err
	}
	playbook, err := exec.LookPath("ansible-playbook")
	if err != nil {
		return v, err
	}
	python, err := warm.Interpreter(path, playbook)
	if err != nil {
		return v, err
	}
	if playbook, err = filepath.EvalSymlinks(playbook); err != nil {
		return v, err
	}
	out, err := ansibleenv.Output(ctx, r.opts.Environ, python, "-c", versionsProgram, filepath.Dir(playbook))
	if err != nil {
		return v, err
	}
	err = json.Unmarshal(out, &v)
	return v, err
}

// Installed identifies the current files of the programs that a run needs: as
// long as the text is the same, the answer of [Runner.Check] is, too. It starts
// no process.
func (r *Runner) Installed() (string, error) {
	var identity strings.Builder
	for _, name := range []string{r.opts.Path, "ansible-playbook"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		fmt.Fprintf(&identity, "%s %d %s %v\n", path, info.Size(), info.ModTime().UTC(), info.Mode())
	}
	return identity.String(), nil
}

// version runs a program with --version. python is empty if the output does not mention it.
func (r *Runner) version(ctx context.Context, name string) (version, python string, err error) {
	out, err := ansibleenv.Output(ctx, r.opts.Environ, name, "--version")
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", name, err)
	}
	said := text.Plain(string(out))
	line, _, _ := strings.Cut(said, "\n")
	match := versionPattern.FindString(line)
	if match == "" {
		return "", "", fmt.Errorf("%s --version: no version in %q", name, text.Clip(line, 256))
	}
	if match := pythonPattern.FindStringSubmatch(said); match != nil {
		python = strings.TrimSpace(match[1] + " " + match[2])
	}
	return strings.Trim(match, " []"), python, nil
}
