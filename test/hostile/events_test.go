package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// stream is what a run left behind. A script writes it instead of ansible-runner, which would not write most of this.
type stream struct {
	// row is the row of the fault table.
	row, name string
	// events are the files in job_events.
	events map[string]string
	// files are further files of the artifacts.
	files  map[string]string
	status string
	rc     int
	want   runner.Reason
	// bad, gaps and foreign are other counts of the summary.
	bad, gaps, foreign int
}

const zero = `"changed": {}, "dark": {}, "ignored": {}, "rescued": {}, "skipped": {}`

// event returns an event of the run, with a number.
func event(counter int, kind, data string) string {
	return fmt.Sprintf(`{"uuid": "u%d", "counter": %d, "event": %q, "created": "2026-01-02T03:04:05.6", "event_data": {"playbook_uuid": "p"%s}}`, counter, counter, kind, data)
}

func startEvent() string { return event(1, "playbook_on_start", "") }

// statsEvent returns the stats of a run with this many failures.
func statsEvent(counter, failures int) string {
	return event(counter, "playbook_on_stats", fmt.Sprintf(`, "ok": {"h": 1}, "processed": {"h": 1}, "failures": {"h": %d}, %s`, failures, zero))
}

func failedEvent(counter int, msg string) string {
	return event(counter, "runner_on_failed", `, "host": "h", "task": "t", "task_uuid": "t", "task_action": "fail", "res": {"msg": `+msg+`}`)
}

// okWith returns a successful run with an additional file among its events.
func okWith(name, text string) map[string]string {
	return map[string]string{"1-u1.json": startEvent(), name: text, "3-u3.json": statsEvent(3, 0)}
}

func streams() []stream {
	const good = "successful"
	deep := strings.Repeat(`{"a":[`, 5000) + `1` + strings.Repeat(`]}`, 5000)
	all := []stream{
		{row: "F.1", name: "truncated", events: okWith("2-x.json", startEvent()[:40]), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "empty", events: okWith("2-x.json", ""), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "not UTF-8", events: okWith("2-x.json", `{"event": "runner_on_ok", "stdout": "`+"\xff\xfe"+`"}`), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "NUL", events: okWith("2-x.json", "\x00\x00\x00"), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "10 000 deep", events: okWith("2-x.json", event(2, "runner_on_ok", `, "res": `+deep)), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "10 000 open brackets", events: okWith("2-x.json", strings.Repeat("[", 10_000)), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "duplicate keys", events: okWith("2-x.json", `{"event": "playbook_on_stats", "event": "verbose", "uuid": "a", "uuid": "b"}`), status: good, want: runner.Succeeded},
		{row: "F.1", name: "huge numbers", events: okWith("2-x.json", `{"event": "verbose", "counter": 1e999, "start_line": -1e400, "end_line": 99999999999999999999}`), status: good, want: runner.Succeeded},
		{row: "F.1", name: "a list", events: okWith("2-x.json", `[{"event": "playbook_on_stats"}]`), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "byte order mark", events: okWith("2-x.json", "\ufeff"+startEvent()), status: good, want: runner.Succeeded, bad: 1},
		{row: "F.1", name: "truncated stats", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0)[:150]}, status: good, want: runner.ResultIncomplete, bad: 1},
		{row: "F.1", name: "stats of text", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": event(2, "playbook_on_stats", `, "ok": "all", "failures": "none", "processed": "h", `+zero)},
			status: good, want: runner.ResultIncomplete, bad: 1},
		{row: "F.1", name: "negative stats", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, -1)}, status: good, want: runner.ResultIncomplete, bad: 1},
		{row: "F.1", name: "duplicate failures in the stats", events: map[string]string{"1-u1.json": startEvent(),
			"2-u2.json": event(2, "playbook_on_stats", `, "ok": {"h": 1}, "processed": {"h": 1}, "failures": {"h": 0}, "failures": {"h": 2}, `+zero)}, status: good, want: runner.ResultIncomplete},
		{row: "F.1", name: "no events", status: good, want: runner.ResultIncomplete},
		{row: "F.1", name: "stats without a start", events: map[string]string{"1-u1.json": statsEvent(1, 0)}, status: good, want: runner.ResultIncomplete, foreign: 1},
		{row: "F.1", name: "stats that contradict the exit code", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0)}, status: "failed", rc: 2, want: runner.PlaybookFailed},
		{row: "F.1", name: "failures and exit code 0", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 1)}, status: good, want: runner.ResultIncomplete},

		{row: "F.4", name: "counters missing", events: map[string]string{"1-u1.json": startEvent(), "7-u7.json": statsEvent(7, 0)}, status: good, want: runner.Succeeded, gaps: 5},
		{row: "F.4", name: "a counter twice", events: map[string]string{"1-u1.json": startEvent(), "1-z.json": startEvent(), "2-u2.json": statsEvent(2, 0)}, status: good, want: runner.Succeeded, bad: 1},
		{row: "F.4", name: "counter reset", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(1, 0)}, status: good, want: runner.Succeeded},
		{row: "F.4", name: "stats before the failure", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0), "3-u3.json": failedEvent(3, `"late"`), "4-u4.json": statsEvent(4, 1)},
			status: "failed", rc: 2, want: runner.PlaybookFailed, foreign: 1},
		{row: "F.4", name: "absurd counters", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0), "0-x.json": failedEvent(0, `""`), "-1-x.json": "x",
			"99999999999999999999-x.json": "x", "+3-x.json": "x", "0x4-x.json": "x"}, status: good, want: runner.Succeeded},

		{row: "F.9", name: "partial files", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json.tmp": statsEvent(2, 0), "u2-partial.json": statsEvent(2, 0), "2-u2-partial.json.tmp": statsEvent(2, 0)},
			status: good, want: runner.ResultIncomplete},
		{row: "F.9", name: "a second start", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": strings.ReplaceAll(event(2, "playbook_on_start", ""), `"p"`, `"q"`),
			"3-u3.json": strings.ReplaceAll(statsEvent(3, 0), `"p"`, `"q"`)}, status: good, want: runner.ResultIncomplete, foreign: 2},
		{row: "F.9", name: "status with more to say", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0)}, status: "successful\nfailed", want: runner.RunnerDied},
		{row: "F.9", name: "an exit code beside the true one", events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": statsEvent(2, 0)}, files: map[string]string{"rc": "0"}, status: good, rc: 1, want: runner.PlaybookFailed},
	}
	for name, msg := range map[string]string{
		"1 MB": quoted(strings.Repeat("long ", 200_000)), "right to left": `"\u202edliaf\u202c \u2066x\u2069"`, "colours": `"\u001b[1;31mred\u001b[0m\u001b]0;title\u0007"`,
		"emoji": quoted(strings.Repeat("👩‍👩‍👧‍👦", 500)), "lone surrogates": `"\ud800 \udc00"`, "control characters": `"a\u0000\u0007\b\u007f\u0085\u009b31mb"`, "a map": `{"a": ["\u001b[K"]}`,
		"null": `null`, "markup": `"<script>alert(1)</script> {{ 1 + 1 }} %s %n"`, "line separators": `"a\u2028b\u2029c\r\nd"`,
	} {
		all = append(all, stream{row: "F.11", name: name, status: "failed", rc: 2, want: runner.TaskFailed,
			events: map[string]string{"1-u1.json": startEvent(), "2-u2.json": failedEvent(2, msg), "3-u3.json": statsEvent(3, 1)}})
	}
	return all
}

// leave makes a run whose artifacts are those of the stream.
func (s stream) leave(t *testing.T) runner.Result {
	t.Helper()
	root, id := t.TempDir(), uuid.NewString()
	left := filepath.Join(root, "left")
	must.Do(t, os.MkdirAll(filepath.Join(left, "job_events"), 0o700))
	for name, text := range s.events {
		write(t, filepath.Join(left, "job_events", name), text, 0o600)
	}
	for name, text := range s.files {
		write(t, filepath.Join(left, name), text, 0o600)
	}
	write(t, filepath.Join(left, "status"), s.status, 0o600)
	path := filepath.Join(root, "ansible-runner")
	// Each event is written completely or not at all, as by ansible-runner.
	write(t, path, fmt.Sprintf("#!/bin/sh\nmv %s %s/%s/artifacts/%s\nexit %d\n", left, root, id, id, s.rc), 0o700)
	r := runner.New(runner.Options{Path: path})
	defer r.Close()
	result := must.Get(r.Run(t.Context(), runner.Request{ID: id, Dir: filepath.Join(root, id), Content: runner.Content{Playbook: absolute(t, "testdata/probe.yml")}}))(t)
	return result
}

// TestStreams_NeverMakeAFalseVerdict: events that cannot be read are counted, and the verdict depends on the rest.
func TestStreams_NeverMakeAFalseVerdict(t *testing.T) {
	for _, s := range streams() {
		t.Run(s.row+" "+s.name, func(t *testing.T) {
			t.Parallel()
			result := s.leave(t)
			v := result.Verdict()
			if v.Reason != s.want {
				t.Errorf("verdict = %+v, want %s", v, s.want)
			}
			checkMessage(t, v)
			if sum := result.Summary; sum.Bad != s.bad || sum.Gaps != s.gaps || sum.Foreign != s.foreign {
				t.Errorf("bad %d, gaps %d, foreign %d; want %d, %d, %d", sum.Bad, sum.Gaps, sum.Foreign, s.bad, s.gaps, s.foreign)
			}
		})
	}
}
