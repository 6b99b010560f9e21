package hostile

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// touch is a file that a run has accessed.
type touch struct {
	path string
	// changes says that the file was opened for writing, created, removed or renamed, or that its permissions were
	// changed. Otherwise it is a bait's file that was looked for, read or executed.
	changes bool
	// how is the line of the trace.
	how string
}

// canTrace reports whether strace may trace here; a container can forbid it.
var canTrace = sync.OnceValue(func() bool {
	return exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "true").Run() == nil
})

// forked reports whether the runs must be forked from a fork server.
func forked() bool { return os.Getenv("TEST_EXECUTOR") == "warm" }

// forkable returns one of Ansible's scripts with another interpreter, with which a fork server can be started. The
// interpreter is the command that traced returns, with the script's interpreter instead of ansible-runner.
func forkable(t *testing.T, dir, name, command string) string {
	t.Helper()
	script, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: run `make setup`", err)
	}
	text := must.Get(os.ReadFile(script))(t)
	line, rest, _ := strings.Cut(string(text), "\n")
	tracing := must.Get(os.ReadFile(command))(t)
	real := must.Get(exec.LookPath("ansible-runner"))(t)
	python := filepath.Join(dir, "python3")
	write(t, python, strings.Replace(string(tracing), real, strings.TrimSpace(strings.TrimPrefix(line, "#!")), 1), 0o700)
	path := filepath.Join(dir, "forked-"+name)
	write(t, path, "#!"+python+"\n"+rest, 0o700)
	return path
}

// traced returns a command that runs ansible-runner and records the files that its process tree accesses, and a function
// that returns them afterwards. It uses strace, which sees every program. If that is not permitted, it uses an audit hook
// of Python, which sees Ansible, its modules, and what they execute.
func traced(t *testing.T, dir string) (command string, environ []string, touches func() []touch) {
	t.Helper()
	real, err := exec.LookPath("ansible-runner")
	if err != nil {
		t.Fatalf("%v: run `make setup`", err)
	}
	traces := filepath.Join(dir, "trace")
	for _, d := range []string{traces, filepath.Join(dir, "hook")} {
		must.Do(t, os.Mkdir(d, 0o700))
	}
	command = filepath.Join(dir, "ansible-runner")
	script := "#!/bin/sh\nexec " + real + ` "$@"` + "\n"
	if canTrace() {
		// One file per process, so that lines of several processes do not mix. The filter in the kernel keeps all other
		// system calls fast.
		script = "#!/bin/sh\nexec strace -ff --seccomp-bpf -qq -y -s 8192 -e trace=%file -e signal=none -o " + traces + "/p " + real + ` "$@"` + "\n"
	} else {
		hook := must.Get(os.ReadFile("testdata/audit.py"))(t)
		write(t, filepath.Join(dir, "hook", "sitecustomize.py"), string(hook), 0o600)
		environ = []string{"PYTHONPATH=" + filepath.Join(dir, "hook"), "AUDIT_TO=" + traces}
	}
	write(t, command, script, 0o700)
	return command, environ, func() []touch {
		files, err := filepath.Glob(filepath.Join(traces, "p.*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no traces: %v", err)
		}
		var all []touch
		for _, file := range files {
			all = append(all, readTrace(t, file)...)
		}
		return all
	}
}

var (
	// A call, its arguments, and what it returned.
	callLine = regexp.MustCompile(`^(\w+)\((.*)\) += (-?\d+|\?)`)
	// The directory that a path is relative to, and a path.
	pathArgument = regexp.MustCompile(`(?:(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>(?:\(deleted\))?, )?"((?:[^"\\]|\\.)*)"`)
	workingDir   = regexp.MustCompile(`AT_FDCWD<((?:[^>\\]|\\.)*)>`)
	opensToWrite = regexp.MustCompile(`O_(WRONLY|RDWR|CREAT|TRUNC)`)
	changeCalls  = regexp.MustCompile(`^(creat|unlink|rename|mkdir|rmdir|symlink|link|mknod|truncate|chmod|fchmodat|chown|lchown|fchownat|utime|futimesat|setxattr|lsetxattr|removexattr)`)
)

// readTrace reads what one process changed, and how it accessed baits. For calls without a directory descriptor, paths
// are relative to the directory that the other calls name.
func readTrace(t *testing.T, file string) []touch {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	cwd := "/unknown"
	if m := workingDir.FindSubmatch(text); m != nil {
		cwd = string(m[1])
	}
	var all []touch
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if m := workingDir.FindStringSubmatch(lines.Text()); m != nil {
			cwd = m[1]
		}
		// Of the many thousand calls that only look, those that look for a bait count.
		if line := lines.Text(); !changeCalls.MatchString(line) && !opensToWrite.MatchString(line) && !strings.Contains(cwd+line, "bait") {
			continue
		}
		call := callLine.FindStringSubmatch(lines.Text())
		if call == nil {
			continue // the process was killed in this call
		}
		changes := call[3] != "-1" && (changeCalls.MatchString(call[1]) ||
			strings.HasPrefix(call[1], "open") && opensToWrite.MatchString(call[2]))
		paths := pathArgument.FindAllStringSubmatch(call[2], -1)
		for i, m := range paths {
			if i > 0 && !strings.HasPrefix(call[1], "rename") && !strings.Contains(call[1], "link") {
				break // execve: its arguments are not paths
			}
			path := unquoteC(m[2])
			switch {
			case filepath.IsAbs(path):
			case m[1] != "":
				path = filepath.Join(unquoteC(m[1]), path)
			default:
				path = filepath.Join(cwd, path)
			}
			all = append(all, touch{path, changes, lines.Text()})
		}
	}
	must.Do(t, lines.Err())
	return all
}

// unquoteC reverts strace's quoting as far as a test needs.
func unquoteC(s string) string {
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(s)
}
