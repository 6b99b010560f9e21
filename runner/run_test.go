package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

func mustLook(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		parts.Missing(t, err)
	}
	return path
}

func TestRun_PassesVariablesAndEnvironment(t *testing.T) {
	t.Parallel()
	r := ansible(t, "ANSIBLE_ROLEWRIGHT_TEST=inherited", "ROLEWRIGHT_INTERNAL=secret")
	req := request(t, "extra_vars.yml")
	req.ExtraVars = []byte(`{"greeting": !unsafe "{{ lookup('pipe', 'id') }} grüß"}`)
	req.Env = map[string]string{"FROM_ENVVARS": "added"}
	var messages []string
	var counters []int
	req.OnEvent = func(e jobevent.Event) {
		counters = append(counters, e.Counter)
		if e.Kind == jobevent.RunnerOK {
			var result struct{ Msg string }
			if err := json.Unmarshal(e.Data.Res, &result); err != nil {
				t.Error(err)
			}
			messages = append(messages, result.Msg)
		}
	}
	res := must.Get(r.Run(t.Context(), req))(t)
	if v := res.Verdict(); !v.Success {
		t.Fatalf("verdict = %+v\n%s", v, res.Tail)
	}
	want := []string{"{{ lookup('pipe', 'id') }} grüß inherited added []"}
	must.Be(t, "messages", want, messages)
	for i := 1; i < len(counters); i++ {
		if counters[i] <= counters[i-1] {
			t.Errorf("events out of order: %v", counters)
		}
	}
	if len(counters) != res.Summary.Events || res.Summary.Bad+res.Summary.Gaps+res.Summary.Foreign > 0 {
		t.Errorf("%d events were told of, summary: %+v", len(counters), res.Summary)
	}
	if res.ID != req.ID || !res.Finished.After(res.Started) {
		t.Errorf("result = %+v", res)
	}
}

func TestRun_LeavesPrivateArtifacts(t *testing.T) {
	t.Parallel()
	req := request(t, "success.yml")
	res := must.Get(ansible(t).Run(t.Context(), req))(t)
	if !res.Verdict().Success {
		t.Fatalf("verdict = %+v\n%s", res.Verdict(), res.Tail)
	}
	if link, err := os.Readlink(filepath.Join(req.Dir, "artifacts/latest")); err != nil || link != req.ID {
		t.Errorf("artifacts/latest -> %q, %v", link, err)
	}
	// ansible-runner's directory is private, and protects what ansible-runner creates in it.
	inner := filepath.Join("artifacts", req.ID) + "/"
	for name, text := range tree(t, req.Dir) {
		if private := strings.HasPrefix(text, "drwx------") || strings.HasPrefix(text, "-rw-------") || strings.HasPrefix(text, "-> "); !private && !strings.HasPrefix(name, inner) {
			t.Errorf("%s has mode %.10s", name, text)
		}
	}
	if got, err := os.ReadFile(filepath.Join(req.Dir, "artifacts/latest/status")); err != nil || string(got) != "successful" {
		t.Errorf("status = %q, %v", got, err)
	}
	// What ansible-runner would print is already in its artifacts.
	if got, err := os.ReadFile(filepath.Join(req.Dir, runnerLog)); err != nil || len(got) > 0 {
		t.Errorf("%s = %q, %v", runnerLog, got, err)
	}
	if !strings.Contains(res.Tail, "ok: [localhost]") {
		t.Errorf("tail = %q", res.Tail)
	}
}

func TestRun_NotesTheWishToRequeue(t *testing.T) {
	t.Parallel()
	res := must.Get(ansible(t).Run(t.Context(), request(t, "requeue.yml")))(t)
	wish := res.Summary.RequeueAfter
	if !res.Verdict().Success || wish == nil || wish.Period != "10s" || !strings.HasSuffix(wish.Task.Path, "requeue.yml:4") {
		t.Errorf("wish = %+v, verdict = %+v\n%s", wish, res.Verdict(), res.Tail)
	}
}

func TestRun_DaemonsEndWithTheRun(t *testing.T) {
	t.Parallel()
	req := request(t, "daemons.yml")
	res := must.Get(ansible(t).Run(t.Context(), req))(t)
	if !res.Verdict().Success {
		t.Errorf("verdict = %+v\n%s", res.Verdict(), res.Tail)
	}
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

func TestRun_CancelKillsTheWholeTree(t *testing.T) {
	tests := []struct {
		name     string
		playbook string
		vars     string
		// The run is cancelled once the command lines of its processes contain all texts.
		texts []string
		grace time.Duration
	}{
		{"long task", "sleep.yml", "", []string{"sleep 600"}, time.Minute},
		{"daemonised children", "daemons.yml", `{"wait": true}`, []string{"sleep 600", "sleep 601", "sleep 602"}, time.Minute},
		{"deaf task", "stubborn.yml", "", []string{"sleep 600"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cause := errors.New("superseded")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			req := request(t, tt.playbook)
			req.ExtraVars = []byte(tt.vars)
			r := ansible(t)
			r.grace = cmp.Or(tt.grace, r.grace)
			res, err := during(ctx, t, r, req, tt.texts, func() { cancel(cause) })
			if !errors.Is(err, cause) {
				t.Errorf("error = %v, want the cause", err)
			}
			if left := marked(t, req.ID); len(left) > 0 {
				t.Errorf("survivors: %v", left)
			}
			// ansible-runner had the time to write its last status.
			if res.Status != "canceled" || res.ExitCode != 254 {
				t.Errorf("exit code %d, status %q", res.ExitCode, res.Status)
			}
			if !strings.Contains(res.Summary.Task.Path, tt.playbook) {
				t.Errorf("the last task is not known: %+v", res.Summary.Task)
			}
			if res.Verdict().Success {
				t.Error("a cancelled run is a success")
			}
		})
	}
}

func TestRun_CancelKillsADeafRunner(t *testing.T) {
	t.Parallel()
	r := ansible(t)
	r.grace = 100 * time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("deleted")
	req := request(t, "sleep.yml")
	res, err := during(ctx, t, r, req, []string{"sleep 600"}, func() {
		// SIGTERM has no effect on a process that is stopped, only SIGKILL has.
		send(t, req.ID, syscall.SIGSTOP, func(cmdline string) bool { return strings.Contains(cmdline, "ansible-runner run ") })
		cancel(cause)
	})
	if !errors.Is(err, cause) || res.Signal != "SIGKILL" || res.Status != "" {
		t.Errorf("error = %v, want the cause; result %+v", err, res)
	}
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

// stub returns a Runner with a shell script in the place of ansible-runner. In the script, the function event writes a job
// event.
func stub(t *testing.T, req Request, script string) *Runner {
	t.Helper()
	const prelude = `#!/bin/sh
cd "$ARTIFACTS_PARENT" && mkdir -p "$ID/job_events" && cd "$ID" || exit 1
STATS=', "ok": {"localhost": 1}, "processed": {"localhost": 1}, "changed": {}, "dark": {}, "failures": {}, "ignored": {}, "rescued": {}, "skipped": {}'
event() { # counter kind data
	printf '{"uuid": "u%s", "counter": %s, "event": "%s", "created": "2026-01-02T03:04:05.6", "event_data": {"playbook_uuid": "p"%s}}' "$1" "$1" "$2" "$3" >"job_events/$1-u$1.json.tmp"
	mv "job_events/$1-u$1.json.tmp" "job_events/$1-u$1.json"
}
`
	path := write(t, filepath.Join(t.TempDir(), "ansible-runner"), prelude+script, 0o755)
	r := New(Options{Path: path, Environ: append(os.Environ(), "ID="+req.ID, "ARTIFACTS_PARENT="+filepath.Join(req.Dir, "artifacts"))})
	t.Cleanup(r.Close)
	return r
}

func TestRun_StopDoesNotLoseAFinishedRun(t *testing.T) {
	// The run is told to stop when its work is already done.
	req := request(t, "success.yml")
	r := stub(t, req, `
trap 'touch stopped' TERM
event 1 playbook_on_start
event 2 playbook_on_stats "$STATS"
for i in $(seq 6000); do [ -e stopped ] && break; sleep 0.01; done
printf successful >status
`)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	req.OnEvent = func(e jobevent.Event) {
		if e.Kind == jobevent.PlaybookStats {
			cancel(errors.New("shutdown"))
		}
	}
	res, err := r.Run(ctx, req)
	if err != nil {
		t.Errorf("error = %v", err)
	}
	if v := res.Verdict(); !v.Success {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
}

func TestRun_OnlyTheRunsOwnEventsCount(t *testing.T) {
	req := request(t, "success.yml")
	r := stub(t, req, `
event 1 playbook_on_start
event 2 playbook_on_stats ', "playbook_uuid": "forged"'"$STATS"
printf successful >status
`)
	var kinds []jobevent.Kind
	req.OnEvent = func(e jobevent.Event) { kinds = append(kinds, e.Kind) }
	res := must.Get(r.Run(t.Context(), req))(t)
	must.Be(t, "events told of", []jobevent.Kind{jobevent.PlaybookStart}, kinds)
	if v := res.Verdict(); v.Success || v.Reason != ResultIncomplete || res.Summary.Foreign != 1 {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
}

func TestRun_HostileArtifacts(t *testing.T) {
	tests := []struct{ name, script string }{
		{"status is a FIFO", `mkfifo status; echo output >stdout`},
		{"status is a link", `echo successful >real; ln -s real status`},
		{"status is empty", `: >status`},
		{"stdout is a device", `ln -s /dev/zero stdout; printf successful >status`},
		{"events are a FIFO", `rmdir job_events; mkfifo job_events; printf successful >status`},
		{"garbage as event", `echo '{"' >job_events/1-x.json; printf successful >status`},
		{"artifacts replaced by a link", `cd ..; mv "$ID" elsewhere; ln -s elsewhere "$ID"; printf failed >"$ID/status"`},
		{"nothing at all", `cd ..; rm -rf "$ID"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := request(t, "success.yml")
			res := must.Get(stub(t, req, tt.script).Run(t.Context(), req))(t)
			v := res.Verdict()
			if v.Success {
				t.Errorf("it is a success: %+v", res)
			}
			checkMessage(t, v)
		})
	}
}

func TestRun_NothingHappensWhenTheContextIsOver(t *testing.T) {
	cause := errors.New("shutdown")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	req := request(t, "success.yml")
	if _, err := New(Options{}).Run(ctx, req); !errors.Is(err, cause) {
		t.Errorf("error = %v, want the cause", err)
	}
	if _, err := os.Lstat(req.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private data dir: %v", err)
	}
}

func TestCheck_RealAnsible(t *testing.T) {
	t.Parallel()
	got := must.Get(ansible(t).Check(t.Context()))(t)
	if !versionPattern.MatchString(got.Runner) || !strings.HasPrefix(got.Core, "2.") {
		t.Errorf("versions = %+v", got)
	}
}

// The metadata says the same as the programs. If a requirement is missing, Look asks the programs, whose error says what.
func TestLook_IsCheck(t *testing.T) {
	r := ansible(t)
	want := must.Get(r.Check(t.Context()))(t)
	must.Be(t, "versions", want, must.Get(r.read(t.Context()))(t))

	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "Jinja2-1.0.dist-info"), 0o700))
	write(t, filepath.Join(dir, "Jinja2-1.0.dist-info", "METADATA"), "Name: Jinja2\nVersion: 1.0\n", 0o600)
	write(t, filepath.Join(dir, "jinja2.py"), "raise ImportError\n", 0o600)
	t.Setenv("PYTHONPATH", dir)
	_, err := New(Options{Path: r.opts.Path}).Look(t.Context())
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("error = %v", err)
	}
}

func TestCheck_Versions(t *testing.T) {
	core := "ansible-playbook [core 2.14.18]\n  config file = None\n  python version = 3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0] (/usr/bin/python3)\n  jinja version = 3.1.2"
	const python = "3.11.2 (/usr/bin/python3)"
	tests := []struct {
		name         string
		runner, core string // what they print
		want         Versions
		err          error
	}{
		{"as of Debian 12", "2.3.1", core, Versions{"2.3.1", "2.14.18", python}, nil},
		{"as of Debian 13", "0.0.0", "ansible-playbook [core 2.19.11]", Versions{"0.0.0", "2.19.11", ""}, nil},
		{"pre-release", "2.4.0a1", "ansible-playbook [core 2.20.0.dev0] (devel 1234) last updated\npython version = 3.12.1", Versions{"2.4.0a1", "2.20.0.dev0", "3.12.1"}, nil},
		{"before ansible-core", "2.3.1", "ansible-playbook 2.9.27", Versions{"2.3.1", "2.9.27", ""}, ErrUnavailable},
		{"old ansible-core", "2.3.1", "ansible-playbook [core 2.13.13]", Versions{"2.3.1", "2.13.13", ""}, ErrUnavailable},
		{"of another line", "2.3.1", "ansible-playbook [core 3.0.0]", Versions{"2.3.1", "3.0.0", ""}, nil},
		{"old ansible-runner", "1.4.9", core, Versions{"1.4.9", "2.14.18", python}, ErrUnavailable},
		{"no version", "usage: ansible-runner", core, Versions{"", "2.14.18", python}, ErrUnavailable},
		{"empty", "", core, Versions{"", "2.14.18", python}, ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"ansible-runner": tt.runner, "ansible-playbook": tt.core} {
				write(t, filepath.Join(dir, name), "#!/bin/sh\ncat <<'END'\n"+text+"\nEND\n", 0o755)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			got, err := New(Options{}).Check(t.Context())
			if !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want %v", err, tt.err)
			}
			must.Be(t, "versions", tt.want, got)
		})
	}
}

func TestCheck_TellsWhatFails(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ansible-runner"), "#!/bin/sh\necho 'No module named ansible_runner' >&2; exit 1\n", 0o755)
	write(t, filepath.Join(dir, "ansible-playbook"), "#!/bin/sh\necho 'ansible-playbook [core 2.14.18]'\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	_, err := New(Options{}).Check(t.Context())
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "No module named ansible_runner") {
		t.Errorf("error = %v", err)
	}
}

// If the process was frozen until the time to begin was over, nothing is started.
func TestRun_NotAfterItsTime(t *testing.T) {
	t.Parallel()
	r := New(Options{Path: program(t)})
	defer r.Close()
	for _, left := range []time.Duration{time.Hour, -time.Nanosecond, -time.Hour} {
		req := request(t, "success.yml")
		until := time.Now().Add(left)
		req.Until = func() time.Time { return until }
		_, err := r.Run(t.Context(), req)
		_, statErr := os.Stat(req.Dir)
		if left > 0 && (err != nil || statErr != nil) {
			t.Errorf("in time: %v, %v", err, statErr)
		}
		if left < 0 && (!errors.Is(err, ErrTooLate) || !errors.Is(statErr, os.ErrNotExist)) {
			t.Errorf("%s too late: %v, and its directory: %v", -left, err, statErr)
		}
	}
}
