// Package ansibleenv makes the environment of Ansible's programs: without the
// operator's own variables, and with a home directory that can be written.
package ansibleenv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/text"
)

// internalVariables are the beginnings of the names of those variables of the
// operator's environment that are none of a playbook's business. Everything
// else is inherited: roles read it, and ANSIBLE_* configures Ansible.
func internalVariables() []string { return []string{"ROLEWRIGHT_"} }

// Inherited returns the environment entries that a run inherits, later ones
// winning over earlier ones of the same name.
func Inherited(environ []string) []string {
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

// WithHome returns an environment with a home directory, dir where there is none,
// and with other places in dir for what is written to the home directory, where
// no one can: Ansible would make directories there, or in one of the name ~. It
// leaves alone what has a place already. A user whom no passwd file knows has a
// name there too: without one ansible-core 2.19 does not start.
func WithHome(environ []string, dir string) []string {
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil && Lookup(environ, "LOGNAME") == "" && Lookup(environ, "USER") == "" {
		environ = append(slices.Clone(environ), "USER=ansible")
	}
	home := Lookup(environ, "HOME")
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
		if !slices.ContainsFunc(names, func(name string) bool { return Lookup(environ, name) != "" }) {
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

// Direct returns an environment in which clients do not ask a web proxy for the way to this
// machine, where the run finds the API server; nothing changes if there is no web proxy. Of NO_PROXY
// and no_proxy clients read one or the other first, so that both are set, also where one was.
func Direct(environ []string) []string {
	if !slices.ContainsFunc([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}, func(name string) bool {
		return Lookup(environ, name) != "" || Lookup(environ, strings.ToLower(name)) != ""
	}) {
		return environ
	}
	const capitals, small, loopback = "NO_PROXY", "no_proxy", "127.0.0.1,localhost"
	no := func(first, second string) string {
		if all := cmp.Or(Lookup(environ, first), Lookup(environ, second)); strings.TrimSpace(all) == "*" {
			return all // Python knows it as the whole value only
		}
		return strings.TrimPrefix(cmp.Or(Lookup(environ, first), Lookup(environ, second))+","+loopback, ",")
	}
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, capitals+"=") || strings.HasPrefix(entry, small+"=")
	})
	return append(out, capitals+"="+no(capitals, small), small+"="+no(small, capitals))
}

// Lookup returns the value of a variable in an environment without duplicates.
func Lookup(environ []string, name string) string {
	for _, entry := range environ {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value
		}
	}
	return ""
}

// Output is what a program prints, with WithHome's environment. The error ends with what it
// prints to the standard error.
func Output(ctx context.Context, environ []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = WithHome(environ, os.TempDir())
	// Nothing that the program leaves behind may keep us waiting for its end of the pipe.
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("%w: %s", err, text.Clip(strings.TrimSpace(text.Plain(stderr.String())), 256))
}
