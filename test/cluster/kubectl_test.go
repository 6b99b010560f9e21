//go:build e2e

package cluster

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// repository is the top directory of the repository, relative to the directory in which the tests of this package run.
const repository = "../.."

// patience is the time limit for everything that a person would wait for: the start of a Pod, a run, a fail-over.
const patience = 10 * time.Minute

// shell is a terminal in a directory. Its commands and answers are recorded.
type shell struct {
	dir        string
	transcript bytes.Buffer
}

// heading begins a section of the transcript.
func (s *shell) heading(title, text string) {
	fmt.Fprintf(&s.transcript, "\n## %s\n\n", title)
	if text != "" {
		fmt.Fprintf(&s.transcript, "%s\n\n", text)
	}
}

// kubectl runs a command for the transcript and returns what it printed. If the command fails, the test fails.
func (s *shell) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(args...)
	fmt.Fprintf(&s.transcript, "```text\n$ kubectl %s\n%s```\n\n", quote(args), ended(out))
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", quote(args), err, out)
	}
	return strings.TrimRight(out, "\n")
}

// did records what was done without kubectl, and prints nothing.
func (s *shell) did(command string) {
	fmt.Fprintf(&s.transcript, "```text\n$ %s\n```\n\n", command)
}

// ask is kubectl for what the test needs but no reader does.
func (s *shell) ask(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", quote(args), err, out)
	}
	return strings.TrimRight(out, "\n")
}

// refused runs a command that must fail, and returns what it printed.
func (s *shell) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(args...)
	fmt.Fprintf(&s.transcript, "```text\n$ kubectl %s\n%s```\n\n", quote(args), ended(out))
	if err == nil {
		t.Fatalf("kubectl %s was not refused:\n%s", quote(args), out)
	}
	return out
}

// apply applies an object that is not a file.
func (s *shell) apply(t *testing.T, object string) {
	t.Helper()
	cmd := exec.Command(tool("kubectl"), "apply", "--filename=-")
	cmd.Stdin = strings.NewReader(object)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apply %s: %v\n%s", object, err, out)
	}
}

// run runs a command. It repeats a command that can be repeated if the API server does not answer.
func (s *shell) run(args ...string) (string, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		cmd := exec.Command(tool("kubectl"), args...)
		cmd.Dir = s.dir
		out, err := cmd.CombinedOutput()
		if err == nil || !slices.Contains(repeatable, args[0]) || !unanswered.Match(out) || time.Now().After(deadline) {
			return string(out), err
		}
	}
}

// repeatable are the commands that may be run twice.
var repeatable = []string{"get", "wait", "rollout", "apply"}

// unanswered matches what kubectl prints if the API server, or its storage, was too slow.
var unanswered = regexp.MustCompile(`Unable to connect to the server|The connection to the server .* was refused|handshake timeout|i/o timeout|connection reset|connection lost|` +
	`EOF|etcdserver: |Error from server \((Timeout|ServerTimeout|TooManyRequests|InternalError|ServiceUnavailable)\)`)

// eventually asks until the answer is as wanted.
func (s *shell) eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			pods, _ := s.run("get", "pods,events", "--all-namespaces")
			t.Fatalf("wait for %s: %v\n%s", what, err, pods)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// equals returns a condition for eventually: kubectl prints want.
func (s *shell) equals(want string, args ...string) func() error {
	return func() error {
		out, err := s.run(args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if got := strings.TrimSpace(out); got != want {
			return fmt.Errorf("kubectl %s: got %q, want %q", quote(args), got, want)
		}
		return nil
	}
}

// tool returns the path of a program that make has built, or else of the one in PATH.
func tool(name string) string {
	path, err := filepath.Abs(filepath.Join(repository, "bin/tools", name))
	if err != nil {
		return name
	}
	if _, err := os.Stat(path); err != nil {
		return name
	}
	return path
}

// quote returns a command as a person would type it.
func quote(args []string) string {
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = arg
		if strings.ContainsAny(arg, " {}*$|;()'\"") {
			shown[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(shown, " ")
}

// ended returns text with a line break at the end, unless it is empty.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// page is the transcript that people read.
const page = "docs/in-a-cluster.md"

// publish writes the transcript to the file that -transcript names. Without the flag, the page must have the same
// commands.
func (s *shell) publish(t *testing.T) {
	t.Helper()
	if path := flag.Lookup("transcript").Value.String(); path != "" {
		text := strings.ReplaceAll(strings.TrimRight(s.transcript.String(), "\n")+"\n", "\n\n\n", "\n\n")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Errorf("write the transcript: %v", err)
		}
		return
	}
	written, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatalf("read the transcript: %v", err)
	}
	if diff := cmp.Diff(outline(string(written)), outline(s.transcript.String())); diff != "" {
		t.Errorf("%s is another transcript; `make transcript` writes it again (-page +now)\n%s", page, diff)
	}
}

// ofOneRun matches what differs between runs of the test: names of Pods, and process IDs.
var ofOneRun = regexp.MustCompile(`(controller-manager)-[a-z0-9]+-[a-z0-9]{5}|[0-9]+`)

// outline returns a transcript without the answers: its headings and commands.
func outline(transcript string) []string {
	var lines []string
	for line := range strings.Lines(transcript) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "$ ") {
			lines = append(lines, ofOneRun.ReplaceAllString(strings.TrimSuffix(line, "\n"), "$1"))
		}
	}
	return lines
}
