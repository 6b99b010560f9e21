package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/report"
	"github.com/rolewright/rolewright/test/must"
)

// commandRequest returns a request for a run of a script.
func commandRequest(t *testing.T, script string) runner.Request {
	t.Helper()
	req := newRequest(t, "")
	file := filepath.Join(filepath.Dir(req.Dir), "reconcile")
	must.Do(t, os.WriteFile(file, []byte("#!/usr/bin/env bash\nset -euo pipefail\n"+script), 0o700))
	req.Content = runner.Content{Command: &runner.Command{
		Path: file, Dir: filepath.Dir(file), RequireResult: true, Grace: 10 * time.Second, Env: map[string]string{"LEVEL": "7"},
	}}
	req.Files[runner.InputFile], req.Files[runner.ObjectFile] = []byte(`{"in":1}`), []byte(`{"kind":"Cup"}`)
	req.Files[runner.SecretsDir+"/password"] = []byte("open-sesame")
	req.Env = map[string]string{"ROLEWRIGHT_ACTION": "reconcile"}
	return req
}

// asked records what a command asks the operator for, and its events.
type asked struct {
	mu    sync.Mutex
	calls []string
}

func (a *asked) of(req runner.Request) runner.Request {
	note := func(text string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls = append(a.calls, text)
	}
	req.Call = func(_ context.Context, name string, body []byte) error {
		note(name + " " + string(body))
		return nil
	}
	req.Redact = func(_ context.Context, value string) { note("redact " + value) }
	req.OnEvent = func(e jobevent.Event) {
		note(string(e.Kind) + " " + e.Data.Task + " " + string(e.Data.Res))
		if e.Kind == jobevent.TaskStart && e.Data.Task == "Pour" { // the script waits until this event was read
			_ = os.WriteFile(filepath.Join(req.Content.Command.Dir, "read"), nil, 0o600)
		}
	}
	return req
}

func (a *asked) has(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.calls, func(call string) bool { return strings.Contains(call, text) })
}

// A command reports the same in a container as beside the operator, and ends the same way.
func TestInside_ACommandEndsAsBesideTheOperator(t *testing.T) {
	t.Parallel()
	const ok = `echo '{"type":"result","verdict":"ok","changed":true,"message":"poured"}' >&3` + "\n"
	for name, script := range map[string]string{
		"success": `
test "$(stat -c %a "$ROLEWRIGHT_SECRETS_DIR/password")" = 400; test "$(cat)" = '{"in":1}'; test "$LEVEL" = 7
echo '{"type":"progress","step":"Boil","done":1,"total":2}' >&3
echo '{"type":"redact","value":"open-sesame"}' >&3
echo '{"type":"condition","conditionType":"Hot","status":"True","reason":"Boiled"}' >> "$ROLEWRIGHT_EVENTS"
echo '{"type":"weather"}' >&3
echo '{"type":"event","reason":"Poured","message":"a cup"}' >&3
echo '{"type":"requeue","after":"5m"}' >&3
` + ok,
		"failed":            `echo '{"type":"progress","step":"Boil"}' >&3; echo no water >&2; exit 3`,
		"said failed":       `echo '{"type":"result","verdict":"failed","message":"no tea"}' >&3`,
		"not yet":           `echo '{"type":"result","verdict":"waiting","message":"still cold"}' >&3`,
		"input refused":     `echo '{"type":"result","verdict":"failed","message":"no such leaf"}' >&3; exit 78`,
		"no result":         `true`,
		"contradiction":     ok + `exit 1`,
		"a signal":          `kill -KILL $$`,
		"left processes":    ok + `sleep 600 >/dev/null 2>&1 3>&- &`,
		"a line no JSON":    `echo '{"type":"progress","step":"Boil"}' >&3; echo 'boiling' >&3; sleep 600`,
		"a line not whole":  ok + `printf '{"type"' >&3`,
		"removed reports":   `rm "$ROLEWRIGHT_EVENTS"`,
		"overwritten":       `echo '{"type":"progress","step":"Pour"}' >&3; ` + ok + `until rm read 2>/dev/null; do sleep 0.05; done; echo '{"type":"result","verdict":"ok","changed":true,"message":"stolen"}' 1<>"$ROLEWRIGHT_EVENTS"`,
		"too much":          `line=$(printf '{"type":"status","patch":{"a":"%060000d"}}' 0); for i in {1..80}; do echo "$line" >&3; done; ` + ok,
		"no program":        `exec /there/is/none`,
		"no executable":     "",
		"exit 75, and said": `echo '{"type":"result","verdict":"waiting"}' >&3; exit 75`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := commandRequest(t, script)
			if name == "no executable" {
				must.Do(t, os.Remove(req.Content.Command.Path))
			}
			here := req
			here.Dir, here.Executor, here.JobRun = here.Dir+"-here", "", nil
			var local, far asked
			r := runner.New(runner.Options{})
			t.Cleanup(r.Close)
			want, wantErr := r.Run(t.Context(), local.of(here))
			o := newOperator(t)
			o.start()
			s, mirrored := o.admit(t, req, "")
			ended := o.inside(t, req)
			got, err := runner.Mirrored(t.Context(), far.of(mirrored), s.Told, s.Done)
			o.Recorded(req.ID, "")
			if inside := <-ended; inside != nil {
				t.Errorf("the container ends with %v", inside)
			}
			if (err == nil) != (wantErr == nil) || errors.Is(err, runner.ErrNotRunnable) != errors.Is(wantErr, runner.ErrNotRunnable) {
				t.Fatalf("the run ends with %v, want %v", err, wantErr)
			}
			if diff := cmp.Diff(local.calls, far.calls); diff != "" && wantErr == nil {
				t.Errorf("what the command asks for (-beside the operator +in the container):\n%s", diff)
			}
			if wantErr != nil {
				return
			}
			if diff := cmp.Diff(want.Verdict(), got.Verdict()); diff != "" {
				t.Errorf("verdict (-beside the operator +in the container):\n%s", diff)
			}
			if diff := cmp.Diff(want.Command.Warnings, got.Command.Warnings); diff != "" {
				t.Errorf("warnings (-beside the operator +in the container):\n%s", diff)
			}
			if got.Executor() != runner.ExecutorJob || got.Command.Changed != want.Command.Changed || got.Tail != want.Tail {
				t.Errorf("the run was made as %s, changed %v, and has said %q; want %s, %v, %q",
					got.Executor(), got.Command.Changed, got.Tail, runner.ExecutorJob, want.Command.Changed, want.Tail)
			}
		})
	}
}

// A command's time begins when the command does: its deadline is later by the time that its Pod has waited.
func TestInside_ACommandIsToldWhenItEnds(t *testing.T) {
	t.Parallel()
	command, now := &runner.Command{}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const told = "2026-01-02T03:00:00Z"
	r := request{
		Command: command, Timeout: time.Hour, Env: map[string]string{deadlineEnv: told, "A": "b"},
		Files: map[string][]byte{runner.InputFile: []byte(`{"run":{"id":"1","deadline":"` + told + `"},"object":{"n":12345678901234567890}}`)},
	}
	files, env := r.allTime(now)
	if got := string(files[runner.InputFile]); env[deadlineEnv] != "2026-01-02T04:04:05Z" || env["A"] != "b" ||
		got != `{"object":{"n":12345678901234567890},"run":{"deadline":"2026-01-02T04:04:05Z","id":"1"}}` {
		t.Errorf("it is told %q, %s", env, got)
	}
	delete(r.Env, deadlineEnv) // a run without a time limit
	if files, env := r.allTime(now); !strings.Contains(string(files[runner.InputFile]), told) || env[deadlineEnv] != "" {
		t.Errorf("without a deadline it is told %q, %s", env, files[runner.InputFile])
	}
}

// A command's reports come while it runs. After a restart, an operator gets the rest of them, or all of them again if it
// has lost its disk.
func TestInside_ReportsComeAndAreKept(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]bool{"the operator loses its disk": true, "the operator keeps its disk": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			gate := filepath.Join(t.TempDir(), "gate")
			req := commandRequest(t, `
echo '{"type":"event","reason":"First","message":"one"}' >&3
until test -e `+gate+`; do sleep 0.1; done
echo '{"type":"event","reason":"Second","message":"two"}' >&3
echo '{"type":"result","verdict":"ok"}' >&3
`)
			o.start()
			s, one := o.admit(t, req, "")
			ended := o.inside(t, req)
			var first asked
			told := s.Told
			over, followed := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := runner.Mirrored(t.Context(), first.of(one), told, over)
				followed <- err
			}()
			for !first.has("First") {
				if t.Context().Err() != nil {
					t.Fatal("the first report did not come")
				}
				time.Sleep(10 * time.Millisecond)
			}
			o.stop()
			close(over)
			if err := <-followed; !errors.Is(err, runner.ErrCluster) {
				t.Errorf("an operator that ends first has %v, want %v", err, runner.ErrCluster)
			}
			must.Do(t, os.WriteFile(gate, nil, 0o600))
			o.expect(true)
			o.start()
			two := one
			if loses {
				s, two = o.admit(t, req, "this")
			} else {
				var err error
				if s, err = o.Admit(one, "this"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
			}
			var second asked
			res, err := runner.Mirrored(t.Context(), second.of(two), s.Told, s.Done)
			if err != nil || !res.Verdict().Success || !second.has("First") || !second.has("Second") {
				t.Errorf("the run has ended with %v, %+v, and asked for %q; want a success and both events", err, res.Verdict(), second.calls)
			}
			o.expect(false) // its Job is gone
			o.Recorded(req.ID, "")
			if err := <-ended; err != nil {
				t.Errorf("the container ends with %v, want nil: the operator has all", err)
			}
			reports := func(of runner.Request) string {
				data, err := os.ReadFile(filepath.Join(of.Dir, "artifacts", of.ID, runner.ReportsFile))
				if err != nil {
					t.Error(err)
				}
				return string(data)
			}
			if got, want := reports(two), reports(req); got != want {
				t.Errorf("the operator has the reports %q, want %q", got, want)
			}
			if events := runner.CommandEvents(t.Context(), two.Dir, two.ID, nil, nil); len(events) != res.Summary.Events {
				t.Errorf("%d events are kept, want %d", len(events), res.Summary.Events)
			}
		})
	}
}

// Pieces of reports are put together without gaps and repetitions, within the limits, and only for commands.
func TestSession_Report(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	req := runner.Request{
		ID: id, Dir: filepath.Join(t.TempDir(), id), Content: runner.Content{Command: &runner.Command{Path: "/c", Dir: "/"}},
		JobRun: &runner.JobRun{Token: base64.StdEncoding.EncodeToString([]byte(id))},
	}
	must.Do(t, runner.CreateMirror(req))
	s := must.Get(NewHub(unknown).Admit(req, ""))(t)
	t.Cleanup(s.Close)
	for _, piece := range []struct {
		offset, text string
		size         int64
		want         error
	}{
		{"0", "abc", 3, nil}, {"0", "abc", 3, nil}, {"1", "bcde", 4, nil}, {"6", "x", 1, errRefused}, {"5", "f", 1, nil},
		{"5", "f", report.MaxBytes, errRefused}, {"5", "", -1, errRefused}, {"99999999999999999999", "x", 1, errRefused},
	} {
		if err := s.report(piece.offset, piece.size, strings.NewReader(piece.text)); !errors.Is(err, piece.want) {
			t.Errorf("%q at %s: %v, want %v", piece.text, piece.offset, err, piece.want)
		}
	}
	data, err := os.ReadFile(filepath.Join(req.Dir, s.artifact(runner.ReportsFile)))
	if err != nil || string(data) != "abcdef" {
		t.Errorf("the reports are %q, %v; want abcdef", data, err)
	}
	ansible := newRequest(t, "")
	ansible.Files = nil
	must.Do(t, runner.CreateMirror(ansible))
	of := must.Get(NewHub(unknown).Admit(ansible, ""))(t)
	t.Cleanup(of.Close)
	if err := of.report("0", 1, strings.NewReader("x")); !errors.Is(err, errRefused) {
		t.Errorf("reports of a run of Ansible: %v, want %v", err, errRefused)
	}
}
