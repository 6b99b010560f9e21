// Package ansibleenv makes the environment of Ansible's programs: without the
// operator's own variables, and with a writable home directory.
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

// internalVariables are the prefixes of the operator's own variables, which runs do
// not inherit. They inherit all others: roles read them, and ANSIBLE_* configures
// Ansible.
func internalVariables() []string { return []string{"ROLEWRIGHT_"} }

// Inherited returns the environment entries that a run inherits. Of entries with the
// same name, it keeps the last.
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

// WithHome returns an environment with a home directory. If there is none, it is dir.
// If the home directory is not writable, Ansible's directories that are there by
// default are in dir, unless the environment names others; Ansible would fail to make
// them, or make them in a directory called ~. A user who is not in the passwd file
// also gets a name, without which ansible-core 2.19 does not start.
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

// canWrite tells whether files can be made in a directory, or the directory can be
// made if it is missing.
func canWrite(dir string) bool {
	for {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return err == nil
		}
		dir = filepath.Dir(dir)
	}
}

// Direct returns an environment in which clients do not use a web proxy for this machine, where
// the API proxy of the run is. Without a web proxy, the environment stays as it is. Some clients
// read NO_PROXY first and others no_proxy, so it sets both, even if only one was set.
func Direct(environ []string) []string {
	if !slices.ContainsFunc([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}, func(name string) bool {
		return Lookup(environ, name) != "" || Lookup(environ, strings.ToLower(name)) != ""
	}) {
		return environ
	}
	const capitals, small, loopback = "NO_PROXY", "no_proxy", "127.0.0.1,localhost"
	no := func(first, second string) string {
		if all := cmp.Or(Lookup(environ, first), Lookup(environ, second)); strings.TrimSpace(all) == "*" {
			return all // Python recognizes * only as the whole value
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

// Output runs a program with the environment of WithHome and returns its standard output. The
// error ends with its standard error.
func Output(ctx context.Context, environ []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = WithHome(environ, os.TempDir())
	// Processes that the program leaves behind may keep the pipe open: do not wait for them.
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
