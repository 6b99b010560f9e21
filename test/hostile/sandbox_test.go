package hostile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
)

// sandbox contains one run's own directories, and baits.
type sandbox struct {
	t    *testing.T
	root string
	req  runner.Request
	// untraced says that the run is not traced: for runs with many tasks.
	untraced bool
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	root, err := os.MkdirTemp("", "h") // the path of a fork server's socket in it must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"home", "tmp", "runs", "bait", "trace-of"} {
		must.Do(t, os.Mkdir(filepath.Join(root, dir), 0o700))
	}
	id := uuid.NewString()
	return &sandbox{t: t, root: root, req: runner.Request{
		ID: id, Dir: filepath.Join(root, "runs", id), Content: runner.Content{Playbook: absolute(t, "testdata/probe.yml")},
	}}
}

// bait returns the path of a program that reports when it is executed, and then does what a shell would do. A run must
// not even look for it.
func (s *sandbox) bait() string {
	path := filepath.Join(s.root, "bait", "program")
	write(s.t, path, "#!/bin/sh\n: >\"$0.ran\"\nexec /bin/sh \"$@\"\n", 0o700)
	return path
}

// run makes the run. It only checks that the run takes place.
func (s *sandbox) run() runner.Result {
	s.t.Helper()
	command, environ, touches := s.trace()
	// Runs do not inherit the operator's own variables, and the fork server must not either.
	own := func(entry string) bool { return strings.HasPrefix(entry, "ROLEWRIGHT_") }
	base := append(slices.DeleteFunc(os.Environ(), own), "HOME="+filepath.Join(s.root, "home"), "TMPDIR="+filepath.Join(s.root, "tmp"),
		// The run cannot change Ansible's packages.
		"PYTHONDONTWRITEBYTECODE=1",
		// This would decrypt a vault in an object.
		"ANSIBLE_VAULT_PASSWORD_FILE="+filepath.Join(s.root, "password"))
	write(s.t, filepath.Join(s.root, "password"), "swordfish", 0o600)
	options := runner.Options{Path: command, Environ: append(base, environ...)}
	if forked() {
		options.ForkTimeout = time.Minute // it is traced
		playbook := "ansible-playbook"
		if !s.untraced {
			options.Path = forkable(s.t, filepath.Join(s.root, "trace-of"), "ansible-runner", command)
			playbook = forkable(s.t, filepath.Join(s.root, "trace-of"), playbook, command)
		}
		options.Warm = warm.New(warm.Options{
			Dir: filepath.Join(s.root, "tmp"), Environ: options.Environ, Runner: options.Path, Playbook: playbook,
		})
		defer options.Warm.Close()
		must.Do(s.t, options.Warm.Wait(s.t.Context()))
	}
	r := runner.New(options)
	defer r.Close()
	planted := s.files("bait")
	result, err := r.Run(s.t.Context(), s.req)
	if err != nil {
		s.t.Fatalf("there was no run: %v", err)
	}
	if forked() && result.Executor() != runner.ExecutorWarm {
		s.t.Errorf("the run was not forked: %s", result.Unsuited())
	}
	for name := range s.files("bait") {
		if !planted[name] {
			s.t.Errorf("data was executed: %s", name)
		}
	}
	if !s.untraced {
		s.checkTouches(touches())
	}
	checkMessage(s.t, result.Verdict())
	return result
}

// trace returns the result of traced, or a command without a trace.
func (s *sandbox) trace() (command string, environ []string, touches func() []touch) {
	if s.untraced {
		return "ansible-runner", nil, nil
	}
	return traced(s.t, filepath.Join(s.root, "trace-of"))
}

// device matches the files outside of all directories that a run may write to nevertheless: terminals, and the semaphores
// of Python's multiprocessing.
var device = regexp.MustCompile(`^/dev/(null|tty|ptmx|pts/\d+|pts/ptmx|shm/(sem\.)?[\w.-]+)$`)

// checkTouches checks that a run has changed nothing outside of its places: the private data directory, and the
// directories for Ansible's temporary files.
func (s *sandbox) checkTouches(touches []touch) {
	s.t.Helper()
	seen := map[string]bool{}
	ran := false
	for _, touched := range touches {
		path := filepath.Clean(touched.path)
		ran = ran || touched.changes && strings.HasPrefix(path, s.req.Dir+"/artifacts/")
		foreign := touched.changes && !device.MatchString(path)
		for _, place := range []string{s.req.Dir, filepath.Join(s.root, "home", ".ansible"), filepath.Join(s.root, "tmp")} {
			foreign = foreign && path != place && !strings.HasPrefix(path, place+"/")
		}
		// It must not even look for a path that only the data contains.
		lured := strings.HasPrefix(path, filepath.Join(s.root, "bait")+"/") || strings.Contains(path, "rolewright-bait")
		if (foreign || lured) && !seen[path] {
			seen[path] = true
			s.t.Errorf("a file outside of the run's places was touched: %s\n%.300s", path, touched.how)
		}
	}
	if !ran {
		s.t.Error("the trace does not show the run")
	}
}

// files lists the files in a directory of the sandbox.
func (s *sandbox) files(dir string) map[string]bool {
	s.t.Helper()
	found := map[string]bool{}
	must.Do(s.t, filepath.WalkDir(filepath.Join(s.root, dir), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found[path] = true
		}
		return err
	}))
	return found
}

// arrived reads what the probe wrote.
func (s *sandbox) arrived() map[string]any {
	s.t.Helper()
	encoded := must.Get(os.ReadFile(filepath.Join(s.req.Dir, "arrived")))(s.t)
	text := must.Get(base64.StdEncoding.DecodeString(string(encoded)))(s.t)
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var out map[string]any
	must.Do(s.t, decoder.Decode(&out))
	return out
}

// checkMessage checks what must be true of every text that reaches a status.
func checkMessage(t *testing.T, v runner.Verdict) {
	t.Helper()
	if v.Success != (v.Message == "") || v.Success != (v.Reason == runner.Succeeded) {
		t.Errorf("verdict = %+v", v)
	}
	if len(v.Message) > 1<<10 || !utf8.ValidString(v.Message) {
		t.Errorf("%d bytes of message: %q", len(v.Message), v.Message)
	}
	for _, r := range v.Message {
		if unicode.IsControl(r) && r != '\n' || r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069' {
			t.Errorf("%U in the message %q", r, v.Message)
		}
	}
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(content), mode))
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs := must.Get(filepath.Abs(path))(t)
	return abs
}

// quoted returns a text as JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprint("a string is always JSON: ", err))
	}
	return string(out)
}
