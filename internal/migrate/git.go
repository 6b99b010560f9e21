package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// repository is the git repository of a project.
type repository struct{ dir string }

// openRepository finds the repository that a directory is in; nil if it is in none.
func openRepository(ctx context.Context, dir string) (*repository, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			break
		}
		if at == filepath.Dir(at) {
			return nil, nil // there is none, which is no error
		}
		at = filepath.Dir(at)
	}
	r := &repository{dir}
	if _, err := r.git(ctx, "rev-parse", "--is-inside-work-tree"); err != nil {
		return nil, fmt.Errorf("%s has a git repository, which cannot be used: %w", at, err)
	}
	return r, nil
}

// ready returns the current commit, if no other changes would become part of the next commits.
func (r *repository) ready(ctx context.Context, paths []string) (string, error) {
	status, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if status != "" {
		lines := strings.Split(status, "\n")
		more := ""
		if len(lines) > 5 {
			lines, more = lines[:5], fmt.Sprintf("\n  and %d more", len(lines)-5)
		}
		return "", fmt.Errorf("%w:\n  %s%s\ncommit or stash them first; nothing was written", errNotClean, strings.Join(lines, "\n  "), more)
	}
	if len(paths) > 0 {
		if _, err := r.git(ctx, append([]string{"ls-files", "--error-unmatch", "--"}, paths...)...); err != nil {
			return "", fmt.Errorf("a file that would change is not in git: %w", err)
		}
	}
	return r.git(ctx, "rev-parse", "HEAD")
}

// commit commits the files of a step, and nothing else.
func (r *repository) commit(ctx context.Context, s Step) (string, error) {
	args := []string{"commit", "--quiet", "-m", s.Subject, "-m", s.Body, "--"}
	for _, f := range s.Files {
		args = append(args, f.Path)
	}
	if _, err := r.git(ctx, args...); err != nil {
		return "", fmt.Errorf("the step is not made, since it cannot be committed: %w", err)
	}
	return r.git(ctx, "rev-parse", "--short", "HEAD")
}

// git runs a subcommand, and returns its output without the last newline.
func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	// A repository can name programs that git starts. The hooks of a commit are the user's, as
	// with any commit; other programs are not needed. Filters cannot be turned off.
	options := []string{"-c", "core.fsmonitor=false", "--literal-pathspecs", "-C", r.dir}
	if args[0] != "commit" {
		options = append(options, "-c", "core.hooksPath=/dev/null")
	}
	cmd := exec.CommandContext(ctx, "git", append(options, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = errors.New(text)
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}
