// Package syntaxcheck lets Ansible parse a playbook or role without running it.
package syntaxcheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/collection"
	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/internal/ansibleerror"
	"github.com/rolewright/rolewright/runner/supervise"
)

// outputLimit bounds what is read of the output, messageLimit a message, in bytes.
const (
	outputLimit  = 16 << 10
	messageLimit = 1 << 10
)

// Error is a mistake that Ansible has found in a playbook or role.
type Error struct {
	// File is where the mistake is: often a file that the content imports. It
	// is the playbook or the role's directory if Ansible named no file.
	File string
	// Line and Column count from 1; 0 if Ansible named none.
	Line, Column int
	// Message is Ansible's message, on one line, at most 1 KiB.
	Message string
}

// Error renders the place and the message as compilers do.
func (e *Error) Error() string {
	place := e.File
	for _, n := range []int{e.Line, e.Column} {
		if n == 0 {
			break
		}
		place += ":" + strconv.Itoa(n)
	}
	return place + ": " + e.Message
}

// Check lets ansible-playbook parse the content and everything that it
// imports, without running any of it; that takes about a second. As in a run,
// the working directory is empty, so that no ansible.cfg of the caller applies,
// and roles are looked up in the role's parent directory first. env is the
// complete environment.
//
// It blocks until the process tree is gone. The error is a [*Error] if
// Ansible refuses the content, wraps [runner.ErrUnavailable] if there is no
// ansible-playbook, and wraps [context.Cause] if ctx ended first.
func Check(ctx context.Context, content runner.Content, env []string) (err error) {
	executable, err := exec.LookPath("ansible-playbook")
	if err != nil {
		return fmt.Errorf("%w: %w", runner.ErrUnavailable, err)
	}
	dir, err := os.MkdirTemp("", "rolewright-syntax-")
	if err != nil {
		return fmt.Errorf("check syntax: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	provided, err := collection.Install(dir)
	if err != nil {
		return fmt.Errorf("check syntax: %w", err)
	}
	defer provided.Close()
	checked, playbook, env, err := prepare(dir, content, ansibleenv.Inherited(provided.Environ(env)))
	if err != nil {
		return fmt.Errorf("check syntax: %w", err)
	}
	output := filepath.Join(dir, "output")
	exit, err := supervise.Run(ctx, supervise.Command{
		// The shell only changes the directory.
		Path:   "/bin/sh",
		Args:   []string{"-c", `cd "$1" && shift && exec "$@"`, "sh", filepath.Join(dir, "project"), executable, "--syntax-check", "-i", "localhost,", "--", playbook},
		Env:    append(env, "ANSIBLE_NOCOLOR=1", "ANSIBLE_FORCE_COLOR=0"),
		Cookie: "ROLEWRIGHT_RUN=syntax-check-" + rand.Text(),
		Output: output,
	})
	switch {
	case errors.Is(err, supervise.ErrNotStarted) && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", runner.ErrUnavailable, err)
	case ctx.Err() != nil:
		return errors.Join(fmt.Errorf("check syntax of %s: %w", checked, context.Cause(ctx)), err)
	case err != nil:
		return fmt.Errorf("check syntax of %s: %w", checked, err)
	case exit.Code == 0:
		return nil
	}
	said, err := runner.Tail(output, outputLimit)
	if err != nil {
		return fmt.Errorf("check syntax of %s: read output: %w", checked, err)
	}
	found := parse(said)
	if found.File == "" || strings.HasPrefix(found.File, dir+string(filepath.Separator)) {
		// Ansible named no file, or our own, which would not help users.
		found.File, found.Line, found.Column = checked, 0, 0
	}
	found.Message = cmp.Or(found.Message, fmt.Sprintf("ansible-playbook --syntax-check ended with exit code %d and no output", exit.Code))
	return found
}

// prepare makes the working directory and, for a role, a playbook that is checked
// in its place. checked is the path of the content itself.
func prepare(dir string, content runner.Content, env []string) (checked, playbook string, environ []string, err error) {
	if err := os.Mkdir(filepath.Join(dir, "project"), 0o700); err != nil {
		return "", "", nil, err
	}
	if content.Role == "" {
		return content.Playbook, content.Playbook, env, nil
	}
	if checked, err = filepath.Abs(content.Role); err != nil {
		return "", "", nil, err
	}
	roles, name := filepath.Split(checked)
	if path := ansibleenv.Lookup(env, "ANSIBLE_ROLES_PATH"); path != "" {
		roles += ":" + path
	}
	playbook = filepath.Join(dir, "role.yml")
	return checked, playbook, append(env, "ANSIBLE_ROLES_PATH="+roles), writeRolePlaybook(playbook, name)
}

// writeRolePlaybook writes a playbook that only runs a role. It is JSON, which is
// YAML without quoting problems.
func writeRolePlaybook(path, role string) error {
	data, err := json.Marshal([]map[string]any{{
		"hosts": "localhost", "gather_facts": false, "roles": []map[string]string{{"role": role}},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// The place of a mistake, as ansible-core prints it up to 2.18, and from 2.19 on.
var (
	placeBefore219 = regexp.MustCompile(`(?m)^The error appears to be in '(.+)': line (\d+), column (\d+)`)
	placeSince219  = regexp.MustCompile(`(?m)^Origin: (.+?)(?::(\d+))?(?::(\d+))?$`)
	// excerptOfFile matches what follows the message: the place and the lines
	// around it, or a chain of causes that repeats the message.
	excerptOfFile = regexp.MustCompile(`(?ms)^(?:The error appears to be in '|Origin: |<<< caused by >>>).*`)
)

// parse reads the output of a failed syntax check.
func parse(output string) *Error {
	e := &Error{}
	output, found := ansibleerror.Last(output)
	if !found {
		output = text.LastLines(output, messageLimit)
	}
	for _, place := range []*regexp.Regexp{placeBefore219, placeSince219} {
		// The last place is the cause of the others.
		if all := place.FindAllStringSubmatch(output, -1); len(all) > 0 {
			m := all[len(all)-1]
			e.File = m[1]
			// A missing number becomes 0.
			e.Line, _ = strconv.Atoi(m[2])
			e.Column, _ = strconv.Atoi(m[3])
		}
	}
	output = excerptOfFile.ReplaceAllString(ansibleerror.Text(output), "")
	e.Message = text.Clip(text.OneLine(output), messageLimit)
	return e
}
