package eventlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	ctrlzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

var update = flag.Bool("update", false, "write the golden files")

// jsonLog is the operator's logger, without times and stack traces.
func jsonLog(out *Output) logr.Logger {
	return ctrlzap.New(ctrlzap.WriteTo(out), ctrlzap.JSONEncoder(func(c *zapcore.EncoderConfig) {
		c.TimeKey, c.StacktraceKey = "", ""
	})).WithValues("job", "42", "name", "sample", "namespace", "default")
}

// captured returns the events of testdata/events.jsonl: what ansible-runner
// 2.3.1 wrote for a play with a task of every kind that is logged differently.
func captured(t *testing.T) []jobevent.Event {
	t.Helper()
	file := must.Get(os.Open(filepath.Join("testdata", "events.jsonl")))(t)
	defer func() { _ = file.Close() }()
	var events []jobevent.Event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := must.Get(jobevent.Decode(bytes.NewReader(lines.Bytes())))(t)
		events = append(events, e)
	}
	return events
}

const gvk = "cache.example.com/v1, Kind=Memcached"

// TestLogger_RealRun compares the whole log of a real run with the expected log. go test -update writes the files again;
// read the difference.
func TestLogger_RealRun(t *testing.T) {
	for name, tc := range map[string]struct {
		opts      Options
		verbosity int
	}{
		"tasks":      {opts: Options{Level: Tasks}},
		"raw":        {opts: Options{Level: Tasks}, verbosity: 1},
		"everything": {opts: Options{Level: Everything}},
		"nothing":    {opts: Options{Level: Nothing}},
		"debug":      {opts: Options{Level: Nothing, DebugLogs: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			out := NewOutput(&got)
			tc.opts.Out = out
			l := New(tc.opts, jsonLog(out), gvk, "sample", "default", tc.verbosity)
			var summary jobevent.Summary
			var stdout strings.Builder
			for _, e := range captured(t) {
				summary.Observe(e)
				l.Event(e)
				stdout.WriteString(e.Stdout + "\r\n")
			}
			path := filepath.Join(t.TempDir(), "stdout")
			must.Do(t, os.WriteFile(path, []byte(stdout.String()), 0o600))
			l.Finish(summary, filepath.Dir(path), "stdout")

			must.Golden(t, *update, filepath.Join("testdata", name+".golden"), got.String())
		})
	}
}

// TestLogger_LinesThatPeopleSearchFor holds the texts that must not change, independently of the golden files, which
// -update overwrites.
func TestLogger_LinesThatPeopleSearchFor(t *testing.T) {
	var got bytes.Buffer
	out := NewOutput(&got)
	l := New(Options{Level: Tasks, Out: out}, jsonLog(out), gvk, "sample", "default", 0)
	for _, e := range captured(t) {
		l.Event(e)
	}
	l.Finish(jobevent.Summary{}, "", "")
	for _, want := range []string{
		`"msg":"[playbook task start]","job":"42","name":"sample","namespace":"default","gvk":"cache.example.com/v1, Kind=Memcached","event_type":"playbook_on_task_start","EventData.Name":"make it so"}`,
		// By its full name, too.
		`"event_type":"runner_on_ok","EventData.TaskArgs":""}`, "\n TASK [ansible.builtin.debug] ****",
		`"msg":"","job":"42"`, `"EventData.Task":"break it","EventData.TaskArgs":"`, `"EventData.FailedTaskPath":"/runner/project/roles/demo/tasks/main.yml:1"`,
		`"error":"[playbook task failed]"`,
		"\n--------------------------- Ansible Task StdOut -------------------------------\n",
		"\n TASK [each of them] ******************************** \nchanged: [localhost] => (item=one)\n",
		"\n-------------------------------------------------------------------------------\n",
		"\n----- Ansible Task Status Event StdOut (cache.example.com/v1, Kind=Memcached, sample/default) -----\n\n\nPLAY RECAP ****",
		"failed=1", "ignored=1   \n\n----------\n",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, got.String())
		}
	}
	if n := strings.Count(got.String(), `"msg":"[playbook debug]"`); n != 2 {
		t.Errorf("%d lines for debug tasks, want 2", n)
	}
	for _, unwanted := range []string{
		`"EventData.Name":"greet the world"`, `"EventData.Name":"remember"`, `"EventData.Name":"ansible.builtin.debug"`, // starts of debug and set_fact
		"skipping", "\x1b", "\r",
	} {
		if strings.Contains(got.String(), unwanted) {
			t.Errorf("the log has %q:\n%s", unwanted, got.String())
		}
	}
}

func TestLogger_UnreachableHostsAreFailures(t *testing.T) {
	var got bytes.Buffer
	out := NewOutput(&got)
	l := New(Options{Out: out}, jsonLog(out), gvk, "n", "ns", 0)
	l.Event(jobevent.Event{Kind: jobevent.RunnerUnreach, Data: jobevent.Data{Task: "t", TaskArgs: "a=1"}})
	if !strings.Contains(got.String(), `"EventData.Task":"t","EventData.TaskArgs":"a=1","error":"[playbook task failed]"}`) {
		t.Errorf("log: %s", got.String())
	}
}

func TestParseLevel(t *testing.T) {
	for in, want := range map[string]struct {
		level Level
		ok    bool
	}{
		"tasks": {Tasks, true}, "Tasks": {Tasks, true}, "EVERYTHING": {Everything, true}, "nothing": {Nothing, true},
		"": {Tasks, false}, "task": {Tasks, false},
	} {
		if level, ok := ParseLevel(in); level != want.level || ok != want.ok {
			t.Errorf("ParseLevel(%q) = %v, %v, want %v, %v", in, level, ok, want.level, want.ok)
		}
	}
}

// TestLogger_NothingOfAnEventBreaksTheLog uses texts that a hostile object could cause.
func TestLogger_NothingOfAnEventBreaksTheLog(t *testing.T) {
	bad := "\x1b]0;title\a\x1b[2J\u009b\x00\xff" + strings.Repeat("é\x1b[K", maxBlock)
	for _, level := range []Level{Tasks, Everything} {
		for _, kind := range []jobevent.Kind{jobevent.TaskStart, jobevent.RunnerOK, jobevent.ItemOK, jobevent.RunnerFailed, jobevent.PlaybookStats, "\x1b"} {
			var got bytes.Buffer
			out := NewOutput(&got)
			l := New(Options{Level: level, Out: out}, jsonLog(out), gvk, "n", "ns", 0)
			l.Event(jobevent.Event{Kind: kind, Stdout: bad, Data: jobevent.Data{
				Task: bad, Name: bad, TaskArgs: bad, TaskPath: bad, TaskAction: "debug", Host: bad, Res: json.RawMessage(bad), Role: bad,
			}})
			l.Finish(jobevent.Summary{}, "", "")
			text := got.String()
			if strings.ContainsAny(text, "\x1b\x00\r\a") || !utf8.ValidString(text) {
				t.Errorf("%v, %q: control characters got through", level, kind)
			}
			if limit := 3*maxBlock + 12*maxField; len(text) > limit {
				t.Errorf("%v, %q: %d bytes of log, more than %d", level, kind, len(text), limit)
			}
		}
	}
}

func TestFinish_RecapWithoutOutput(t *testing.T) {
	var got bytes.Buffer
	summary := jobevent.Summary{Complete: true, Stats: &jobevent.Stats{
		OK: map[string]int{"localhost": 2}, Failures: map[string]int{"localhost": 1}, Processed: map[string]int{"localhost": 1},
	}}
	New(Options{Out: &got, Command: true}, logr.Discard(), gvk, "n", "ns", 0).Finish(summary, "", "")
	if got.Len() > 0 {
		t.Errorf("a command has a recap: %s", got.String())
	}
	New(Options{Out: &got}, logr.Discard(), gvk, "n", "ns", 0).Finish(summary, "", "")
	want := "localhost                  : ok=2    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0   \n"
	if !strings.Contains(got.String(), want) {
		t.Errorf("recap lacks %q:\n%s", want, got.String())
	}
}

func TestFinish_RunWithoutStatsHasNoRecap(t *testing.T) {
	var got bytes.Buffer
	New(Options{Out: &got, DebugLogs: true}, logr.Discard(), gvk, "n", "ns", 0).Finish(jobevent.Summary{}, t.TempDir(), "missing")
	if got.Len() > 0 {
		t.Errorf("log: %s", got.String())
	}
}

// If a run has replaced its output with something else, that is neither read nor waited for.
func TestFinish_OfWhatWasPlanted(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "stdout")
	must.Do(t, os.WriteFile(outside, []byte("precious"), 0o600))
	for name, plant := range map[string]func(dir, stdout string) error{
		"a link":             func(_, stdout string) error { return os.Symlink(outside, stdout) },
		"a directory's link": func(dir, _ string) error { return errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(outside), dir)) },
		"a link within": func(_, stdout string) error {
			return errors.Join(os.WriteFile(stdout+".x", []byte("precious"), 0o600), os.Symlink("stdout.x", stdout))
		},
		"a pipe":      func(_, stdout string) error { return unix.Mkfifo(stdout, 0o600) },
		"a socket":    func(_, stdout string) error { return unix.Mknod(stdout, unix.S_IFSOCK|0o600, 0) },
		"a directory": func(_, stdout string) error { return os.Mkdir(stdout, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			dir := filepath.Join(run, "artifacts")
			must.Do(t, errors.Join(os.Mkdir(dir, 0o700), plant(dir, filepath.Join(dir, "stdout"))))
			var got bytes.Buffer
			New(Options{Out: &got, DebugLogs: true}, logr.Discard(), gvk, "n", "ns", 0).Finish(jobevent.Summary{}, run, "artifacts/stdout")
			if got.Len() > 0 {
				t.Errorf("log: %s", got.String())
			}
		})
	}
}

// TestFinish_DebugResultOfAnySize copies an output that is larger than what is held in memory, and that has a line that
// is larger, too.
func TestFinish_DebugResultOfAnySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	content := strings.Repeat("a line\n", 50_000) + strings.Repeat("x", 5*maxBlock) + "\nno end of line"
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	var got largest
	New(Options{Out: &got, DebugLogs: true}, logr.Discard(), gvk, "n", "ns", 0).Finish(jobevent.Summary{}, filepath.Dir(path), "stdout")
	want := "\n----- " + fmt.Sprintf("%70s", "Ansible Debug Result (cache.example.com/v1, Kind=Memcached, n/ns)") + " -----\n\n" + content + "\n\n----------\n"
	if got.String() != want {
		t.Errorf("log of %d bytes, want %d", got.Len(), len(want))
	}
	if got.largest > 3*maxBlock {
		t.Errorf("a write of %d bytes: the output is held in memory", got.largest)
	}
}

// largest records the size of the largest write.
type largest struct {
	bytes.Buffer
	largest int
}

func (l *largest) Write(p []byte) (int, error) {
	l.largest = max(l.largest, len(p))
	return l.Buffer.Write(p)
}

// TestLogger_ConcurrentRunsDoNotMix: each line is followed by its own block, even if the lines come through another
// writer.
func TestLogger_ConcurrentRunsDoNotMix(t *testing.T) {
	var got bytes.Buffer
	out := NewOutput(&got)
	var wg sync.WaitGroup
	for run := range 8 {
		wg.Go(func() {
			l := New(Options{Out: out}, jsonLog(out), gvk, fmt.Sprint("run", run), "ns", 0)
			for i := range 50 {
				id := fmt.Sprintf("%d-%d", run, i)
				l.Event(jobevent.Event{Kind: jobevent.TaskStart, Stdout: "output of " + id, Data: jobevent.Data{Task: id, Name: id}})
			}
			l.recap = fmt.Sprintf("recap of run%d", run)
			l.Finish(jobevent.Summary{}, "", "")
		})
	}
	wg.Wait()
	text := got.String()
	for run := range 8 {
		for i := range 50 {
			id := fmt.Sprintf("%d-%d", run, i)
			want := `"EventData.Name":"` + id + `"}` + "\n" + taskBlock(jobevent.Event{Kind: jobevent.TaskStart, Stdout: "output of " + id})
			if !strings.Contains(text, want) {
				t.Fatalf("line and block of %s are not together", id)
			}
		}
		if want := fmt.Sprintf("run%d/ns) -----\n\nrecap of run%d\n\n----------\n", run, run); !strings.Contains(text, want) {
			t.Errorf("recap of run%d is not in one piece", run)
		}
	}
}
