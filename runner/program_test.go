package runner

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/test/must"
)

// commandRun is a request for a run of a script, with a list of what the run has asked for. Bash executes the script unless
// its first line says otherwise.
type commandRun struct {
	Request
	r *Runner

	mu    sync.Mutex
	asked []string
}

func newCommandRun(t *testing.T, script string) *commandRun {
	t.Helper()
	dir := t.TempDir()
	if !strings.HasPrefix(script, "#!") {
		script = "#!/usr/bin/env bash\nset -euo pipefail\n" + script
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "reconcile"), []byte(script), 0o700))
	p := &commandRun{r: New(Options{Environ: append(os.Environ(), "AWS_SECRET=of-the-operator", "KUBERNETES_SERVICE_HOST=10.0.0.1")})}
	t.Cleanup(p.r.Close)
	id := uuid.NewString()
	p.Request = Request{
		ID: id, Dir: filepath.Join(dir, id), Content: Content{Command: &Command{Path: filepath.Join(dir, "reconcile"), Args: []string{"-x", "a b;$c"}, Dir: dir}},
		Files: map[string][]byte{InputFile: []byte(`{"in":1}`), ObjectFile: []byte(`{"kind":"Cup"}`), "kubeconfig": []byte("k")},
		Env:   map[string]string{"KUBECONFIG": filepath.Join(dir, id, "kubeconfig"), "ROLEWRIGHT_ACTION": "reconcile"},
		Call: func(_ context.Context, name string, body []byte) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked = append(p.asked, name+" "+string(body))
			if strings.Contains(string(body), "Refused") {
				return errors.New("no such reason")
			}
			return nil
		},
		OnEvent: func(e jobevent.Event) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if e.Kind == jobevent.TaskStart {
				p.asked = append(p.asked, "task "+e.Data.Task)
			}
		},
	}
	return p
}

// A command gets its input and environment, and no other variables of the operator. Its reports have effect.
func TestCommand_Gets(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, `test "$#" = 2; test "$2" = 'a b;$c'; test "$PWD" = "$(dirname "$ROLEWRIGHT_DIR")"
test "$(cat)" = '{"in":1}'; cmp -s <(printf '{"in":1}') "$ROLEWRIGHT_INPUT"; test "$(cat "$ROLEWRIGHT_OBJECT")" = '{"kind":"Cup"}'
test "$(stat -c %a "$ROLEWRIGHT_INPUT" "$ROLEWRIGHT_EVENTS" "$HOME" "$TMPDIR" "$ROLEWRIGHT_DIR" | xargs)" = "600 600 700 700 700"
test "$ROLEWRIGHT_PROTOCOL$ROLEWRIGHT_ACTION$ROLEWRIGHT_EVENTS_FD$LANG" = "1reconcile3${LANG}"
test -n "$PATH"; test "$LEVEL" = 'a $b {{ c }}'; test "$(stat -c '%a %n' "$ROLEWRIGHT_SECRETS_DIR"{,/*} | xargs)" = "700 $ROLEWRIGHT_SECRETS_DIR 400 $ROLEWRIGHT_SECRETS_DIR/ca"
test "$(cat "$KUBECONFIG")" = k
test -z "${AWS_SECRET:-}${KUBERNETES_SERVICE_HOST:-}"
echo '{"type":"progress","step":"by descriptor","message":"first","done":1,"total":2}' >&3
echo '{"type":"progress","message":"by path"}' >> "$ROLEWRIGHT_EVENTS"
echo '{"type":"condition","conditionType":"A","status":"True","reason":"R","message":"m"}' >&3
echo '{"type":"status","patch":{"a":1}}' >&3
echo '{"type":"event","reason":"Refused","message":"m"}' >&3
echo '{"type":"metric","name":"n","gauge":{"set":1}}' >&3
echo '{"type":"redact","value":"hunter2"}' >&3; echo '{"type":"redact","value":"a b c"}' >&3
echo '{"type":"colour"}' >&3; echo '{"type":"colour"}' >&3
echo '{"type":"requeue","after":"1h"}' >&3
echo '{"type":"result","verdict":"ok","changed":true}' >&3
echo '{"type":"progress","message":"too late"}' >&3
`)
	p.Content.Command.Env = map[string]string{"LEVEL": "a $b {{ c }}", "HOME": "/nowhere"}
	p.Files[SecretsDir+"/ca"] = []byte("\x00")
	var hidden []string
	p.Redact = func(_ context.Context, value string) { hidden = append(hidden, value) }
	res := must.Get(p.r.Run(t.Context(), p.Request))(t)
	if v := res.Verdict(); !v.Success || v.Reason != Succeeded {
		t.Fatalf("verdict = %+v\n%s", v, res.Tail)
	}
	must.Be(t, "what was asked for", []string{
		"task by descriptor: first (1/2)", "task by path",
		`status {"conditions":[{"message":"m","reason":"R","status":"True","type":"A"}]}`, `status {"fields":{"a":1}}`,
		`event {"message":"m","reason":"Refused","type":"Normal"}`, `metric {"gauge":{"set":1},"name":"n"}`,
	}, p.asked)
	must.Be(t, "hidden", []string{"hunter2", "a b c"}, hidden)
	must.Be(t, "warnings", []string{
		"the report in line 5 (event) has no effect: no such reason",
		"a value of fewer than 6 characters is not masked, because any text contains such values by chance (line 8)",
		`reports of type "colour" have no effect in protocol 1 (line 9)`,
		"reports after the result have no effect (line 13)",
	}, res.Command.Warnings)
	s := res.Summary
	if s.RequeueAfter == nil || s.RequeueAfter.Period != "1h" || s.OK != 2 || s.Changed != 1 || !s.Complete || res.Executor() != ExecutorCommand {
		t.Errorf("summary = %+v", s)
	}
	// A later process cannot know which reports had effect.
	if _, err := p.r.Recover(t.Context(), p.Dir, p.ID, false, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("recovered: %v", err)
	}
	if events := CommandEvents(t.Context(), p.Dir, p.ID, nil, nil); len(events) != s.Events {
		t.Errorf("%d events are shown again, of %d", len(events), s.Events)
	}
	must.Do(t, rundir.Strip(p.Dir, "kubeconfig"))
	for _, gone := range []string{InputFile, ObjectFile, "kubeconfig", rundir.Home} {
		if _, err := os.Stat(filepath.Join(p.Dir, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is there when the run has ended: %v", gone, err)
		}
	}
}

// Commands share a directory for what kubectl discovers, unless the watch gives them another one.
func TestCommand_KubectlCache(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, "")
	p.r.opts.Temp = must.Get(NewTemp(t.TempDir()))(t)
	defer p.r.opts.Temp.Close()
	for _, given := range []string{"", "/var/cache/kube"} {
		if given != "" {
			p.Content.Command.Env = map[string]string{"KUBECACHEDIR": given}
		}
		env := p.r.order(p.Request, "").Env
		is := slices.DeleteFunc(env, func(v string) bool { return !strings.HasPrefix(v, "KUBECACHEDIR=") })
		if len(is) != 1 || given != "" && is[0] != "KUBECACHEDIR="+given {
			t.Errorf("given %q: %q", given, is)
		}
	}
}

// Whatever a command does, its run ends with a reason that says what happened.
func TestCommand_Verdicts(t *testing.T) {
	t.Parallel()
	const ok = `echo '{"type":"result","verdict":"ok"}' >&3; `
	for name, tt := range map[string]struct {
		script, message string
		reason          Reason
	}{
		"nothing":               {"", "", Succeeded},
		"closes its channels":   {"exec 3>&- <&- >&- 2>&-", "", Succeeded},
		"an exit code":          {"echo to-stdout; echo first >&2; echo the last line >&2; exit 1", "the last line\nthe command ended with exit code 1", CommandFailed},
		"silent":                {"exit 3", "the command ended with exit code 3", CommandFailed},
		"a failed step":         {`echo '{"type":"progress","step":"apply"}' >&3; echo no >&2; exit 1`, "no\n" + `task "apply", at`, CommandFailed},
		"a failed result":       {`echo '{"type":"result","verdict":"failed","message":"disk too small","task":"resize"}' >&3`, "disk too small\n" + `task "resize"`, CommandFailed},
		"waits by its code":     {"echo not yet >&2; exit 75", "not yet", NotYet},
		"waits by its result":   {`echo '{"type":"result","verdict":"waiting","message":"1 of 3"}' >&3`, "1 of 3", NotYet},
		"refuses":               {"echo spec.size is negative >&2; exit 78", "spec.size is negative", InputRefused},
		"contradicts":           {ok + "exit 1", "has reported the result ok and ended with exit code 1", ContradictoryResult},
		"a program is missing":  {"kubctl-is-not-there apply", "command not found", CommandNotRunnable},
		"dies":                  {"kill -SEGV $$", "the command was killed by SIGSEGV", RunnerDied},
		"text for reports":      {"echo '{\"type\":\"redact\",\"value\":\"v\"}' >&3; echo done >&3", "line 2 of the reports: it is not a JSON object", ProtocolError},
		"half a line":           {`printf '{"type":"result","verdict":"ok"}' >&3`, "line 1 of the reports: it has no end of line", ProtocolError},
		"a wrong line, fails":   {`echo '{"type":' >&3; exit 1`, "line 1 of the reports", ProtocolError},
		"binary":                {"head -c 3000000 /dev/urandom; head -c 3000000 /dev/urandom >&2", "", Succeeded},
		"binary for reports":    {"head -c 100000 /dev/zero >&3", "line 1 of the reports", ProtocolError},
		"a flood of reports":    {"exec 2>/dev/null; while :; do printf '%65000s\\n' '{\"type\":\"x\"}' >&3 || exit 0; done", "the reports have more than 4 MiB", ProtocolError},
		"truncates":             {`echo '{"type":"progress","step":"first"}' >&3; until [ -e read ]; do sleep 0.05; done; : > "$ROLEWRIGHT_EVENTS"; exec sleep 1`, "has become shorter", ProtocolError},
		"writes over":           {`echo '{"type":"progress","step":"first"}' >&3; until [ -e read ]; do sleep 0.05; done; { echo '{"type":"progress","step":"other"}'; echo '{"type":"x"}'; } > "$ROLEWRIGHT_EVENTS"`, "was overwritten", ProtocolError},
		"removes its directory": {`echo '{"type":"progress","step":"first"}' >&3; until [ -e read ]; do sleep 0.05; done; cd /; rm -rf "$ROLEWRIGHT_DIR"`, "the directory of the run, $ROLEWRIGHT_DIR, is gone", ProtocolError},
		"replaces":              {`rm "$ROLEWRIGHT_EVENTS"; ln -s /etc/passwd "$ROLEWRIGHT_EVENTS"`, "was removed or replaced", ProtocolError},
		"leaves a process":      {"sleep 1000 >/dev/null 2>&1 & disown", "ended while a child process still ran", LeftProcesses},
		"leaves a daemon":       {"setsid sleep 1000 >/dev/null 2>&1 & sleep 0.2", "ended while a child process still ran", LeftProcesses},
		"no interpreter":        {"#!/not/there\n", "", "not runnable"},
		"no format":             {"#!\n", "", "not runnable"},
		"too many conditions":   {`for i in {1..101}; do echo '{"type":"status","patch":{}}'; done >&3`, "", Succeeded},
		"a line break in names": {`echo '{"type":"progress","step":"a\nb\u001b[31m"}' >&3; exit 1`, `task "a b"`, CommandFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newCommandRun(t, tt.script)
			failed := false
			p.OnEvent = func(e jobevent.Event) {
				failed = failed || e.Kind == jobevent.RunnerFailed
				if e.Kind == jobevent.TaskStart && e.Data.Task == "first" {
					must.Do(t, os.WriteFile(filepath.Join(p.Content.Command.Dir, "read"), nil, 0o600))
				}
			}
			res, err := p.r.Run(t.Context(), p.Request)
			if tt.reason == "not runnable" {
				if !errors.Is(err, ErrNotRunnable) || !strings.Contains(err.Error(), "interpreter") || !res.Started.IsZero() || !res.Finished.IsZero() || failed {
					t.Errorf("error = %v, result = %+v, a failure is shown: %t", err, res, failed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			v := res.Verdict()
			message := strings.TrimSuffix(tt.message, ", at")
			if v.Reason != tt.reason || v.Success != slices.Contains([]Reason{Succeeded, NotYet}, tt.reason) || !strings.Contains(v.Message, message) {
				t.Errorf("verdict = %+v, want %s %q\n%s", v, tt.reason, message, res.Tail)
			}
			if stats := res.Summary; tt.reason != ProtocolError && (!stats.Complete || (stats.Failures > 0) == v.Success) {
				t.Errorf("summary = %+v", stats)
			}
			again, err := p.r.Recover(t.Context(), p.Dir, p.ID, false, nil)
			if is := again.Verdict(); name != "writes over" && err == nil && (is.Reason != v.Reason || is.Success != v.Success) || err != nil && !slices.Contains([]string{"too many conditions", "truncates", "removes its directory"}, name) {
				t.Errorf("recovered: %+v, %v", is, err)
			}
			if len(res.Tail) > 3*tailLimit {
				t.Errorf("%d bytes of output are kept in memory", len(res.Tail))
			}
		})
	}
}

// A command that is stopped gets its stop signal, as do the processes that it has started. If it does not end, it is
// killed. The step that was in progress is known.
func TestCommand_Stopped(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ends":         `trap 'echo "$1" >> ended; exit 0' TERM; echo '{"type":"progress","step":"wait"}' >&3; sleep 1000 & wait`,
		"ignores":      `trap '' TERM; echo '{"type":"progress","step":"wait"}' >&3; while :; do sleep 1000; done`,
		"half a line":  `echo '{"type":"progress","step":"wait"}' >&3; printf '{"type"' >&3; exec sleep 1000`,
		"interrupted":  `trap 'exit 0' INT; trap '' TERM; echo '{"type":"progress","step":"wait"}' >&3; while :; do sleep 0.1; done`,
		"hurried":      `trap '' TERM; echo '{"type":"progress","step":"wait"}' >&3; while :; do sleep 1000; done`,
		"reports more": `trap 'echo "{\"type\":\"result\",\"verdict\":\"ok\"}" >&3; exit 0' TERM; echo '{"type":"progress","step":"wait"}' >&3; sleep 1000 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newCommandRun(t, script)
			p.r.grace = 500 * time.Millisecond
			hurry := make(chan struct{})
			switch name {
			case "interrupted":
				p.Content.Command.StopSignal, p.Content.Command.Grace = unix.SIGINT, time.Hour
			case "hurried":
				p.Content.Command.Grace, p.Hurry = time.Hour, hurry
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("it takes too long")
			observe := p.OnEvent
			p.OnEvent = func(e jobevent.Event) {
				if observe(e); e.Kind == jobevent.TaskStart {
					cancel(why)
					close(hurry)
				}
			}
			res, err := p.r.Run(ctx, p.Request)
			if !errors.Is(err, why) || res.Summary.Task.Name != "wait" || res.Summary.Complete {
				t.Errorf("error = %v, summary = %+v", err, res.Summary)
			}
		})
	}
}

// If the watch requires a result, exit code 0 alone is no success, also for a later operator.
func TestCommand_RequireResult(t *testing.T) {
	t.Parallel()
	for script, reason := range map[string]Reason{
		"": CommandFailed, "exit 75": NotYet, "exit 1": CommandFailed, `echo '{"type":"result","verdict":"ok"}' >&3`: Succeeded,
	} {
		p := newCommandRun(t, script)
		p.Content.Command.RequireResult = true
		for _, res := range []Result{
			must.Get(p.r.Run(t.Context(), p.Request))(t), must.Get(p.r.Recover(t.Context(), p.Dir, p.ID, true, nil))(t),
		} {
			if v := res.Verdict(); v.Reason != reason || script == "" && !strings.Contains(v.Message, "requireResult") {
				t.Errorf("%q: %+v, want %s", script, v, reason)
			}
		}
	}
}

// If the command is missing, nothing runs and no directory is left.
func TestCommand_Missing(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, "")
	must.Do(t, os.Remove(p.Content.Command.Path))
	if _, err := p.r.Run(t.Context(), p.Request); !errors.Is(err, ErrNotRunnable) || !strings.Contains(err.Error(), "chmod +x") {
		t.Errorf("error = %v", err)
	}
	if _, err := os.Stat(p.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}

// What a command says about its end is masked, also when a later operator reads it.
func TestCommand_Masked(t *testing.T) {
	t.Parallel()
	// The second step is cut within the value.
	step := `echo '{"type":"progress","step":"log in with canary"}' >&3; ` +
		`echo '{"type":"progress","step":"` + strings.Repeat("x", 187) + `canary and more","done":7,"total":40}' >&3; ` +
		`echo '{"type":"requeue","after":"canary"}' >&3; `
	for name, script := range map[string]string{
		"on stderr":   step + `echo bad password canary >&2; exit 1`,
		"in a result": step + `echo '{"type":"result","verdict":"failed","message":"bad password canary","canary":1}' >&3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newCommandRun(t, script)
			p.Mask = stars{}
			for _, res := range []Result{
				must.Get(p.r.Run(t.Context(), p.Request))(t), must.Get(p.r.Recover(t.Context(), p.Dir, p.ID, false, stars{}))(t),
			} {
				all := string(must.Get(json.Marshal([]any{res.Verdict(), res.Summary, res.Tail, res.Command, p.asked}))(t))
				if strings.Contains(all, "canary") || strings.Contains(all, "xcan") || !strings.HasPrefix(res.Verdict().Message, "bad password ***") {
					t.Error(all)
				}
			}
		})
	}
}

// A step whose text has only blanks and control characters gets the name of the command.
func TestCommand_NamelessStep(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, `echo '{"type":"progress","step":"\u0000 \n"}' >&3`)
	must.Get(p.r.Run(t.Context(), p.Request))(t)
	if want := []string{"task reconcile"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked = %q, want %q", p.asked, want)
	}
}

// What a command has asked to mask is also masked when its reports are read again.
func TestCommand_MaskedAgain(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, `echo '{"type":"redact","value":"canary-of-a-command"}' >&3
echo '{"type":"progress","step":"log in with canary-of-a-command"}' >&3; echo no canary-of-a-command >&2; exit 1`)
	must.Get(p.r.Run(t.Context(), p.Request))(t)
	var asked []string
	events := CommandEvents(t.Context(), p.Dir, p.ID, stars{}, func(_ context.Context, value string) { asked = append(asked, value) })
	if all, _ := json.Marshal(events); len(events) == 0 || strings.Contains(string(all), "canary") || !slices.Equal(asked, []string{"canary-of-a-command"}) {
		t.Errorf("%s, asked = %q", all, asked)
	}
}

// The diff of a step counts as a change, like the diff of a task, and is masked.
func TestCommand_Diff(t *testing.T) {
	t.Parallel()
	p := newCommandRun(t, `echo '{"type":"redact","value":"canary-of-a-command"}' >&3
echo '{"type":"progress","step":"a","diff":"A a:\n-b: canary-of-a-command\n+b: 2\n"}' >&3; echo '{"type":"progress","step":"c"}' >&3; echo '{"type":"result","verdict":"ok","changed":true}' >&3`)
	must.Get(p.r.Run(t.Context(), p.Request))(t)
	var shown string
	var sum jobevent.Summary
	for _, e := range CommandEvents(t.Context(), p.Dir, p.ID, stars{}, func(context.Context, string) {}) {
		if sum.Observe(e); e.Kind == jobevent.FileDiff {
			shown += e.Stdout
		}
	}
	if len(sum.Changes) != 1 || sum.Changed != 1 || sum.Changes[0].Task.Name != "a" || sum.Changes[0].Diff != strings.TrimSpace(shown) ||
		!strings.HasSuffix(shown, "+b: 2\n") || strings.Contains(shown, "canary") {
		t.Errorf("changes %+v of %d, shown %q", sum.Changes, sum.Changed, shown)
	}
}

// A run whose reports cannot be read is stopped; it does not go on unseen.
func TestReported_StopsARunThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	stopped, done := make(chan error, 1), make(chan struct{})
	c := &Reported{name: "c", stop: func(cause error) {
		select {
		case stopped <- cause:
			close(done)
		default:
		}
	}}
	c.follow(t.Context(), Request{ID: "a", Dir: t.TempDir()}, done)
	if err := <-stopped; !errors.Is(err, errReports) || c.Problem == "" {
		t.Errorf("stopped by %v, problem %q", err, c.Problem)
	}
}
