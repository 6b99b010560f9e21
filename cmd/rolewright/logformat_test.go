package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// TestLogFormat_OneLineForEachTaskWithTheSameKeys logs more tasks than zap's sampling would keep of one message. The role
// tries to write lines and escape sequences of its own.
func TestLogFormat_OneLineForEachTaskWithTheSameKeys(t *testing.T) {
	const tasks = 150
	hostile := "a\nlevel=error task=\"forged\" \x1b[2J\x9b\u009b\u202e=\r{\"a\":1}"
	parsed := map[string]func(*testing.T, string) map[string]string{"json": jsonLine, "logfmt": logfmtLine, "console": consoleLine}
	want := map[string]string{
		"level": "info", "logger": "logging_event_handler", "msg": "Task ended", "namespace": "default", "name": "sample", "run": "42",
		"group": "cache.example.com", "kind": "Memcached", "role": "demo", "path": "/roles/demo/tasks/main.yml:1", "host": "localhost",
		"result": "failed", "duration": "1.5s", "message": "it broke",
	}
	for format, parse := range parsed {
		t.Run(format, func(t *testing.T) {
			var out, blocks bytes.Buffer
			o := &runOptions{}
			fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
			o.BindFlags(fs)
			must.Do(t, fs.Parse([]string{"--log-format=" + format}))
			must.Do(t, o.completeLog(fs))
			gvk := "cache.example.com/v1, Kind=Memcached"
			log := o.logger(&out).WithValues("namespace", "default", "name", "sample", "job", "42", "gvk", gvk)
			events := eventlog.New(eventlog.Options{Lines: true, Out: &blocks}, log, gvk, "sample", "default", 1)
			var summary jobevent.Summary
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			observe := func(kind jobevent.Kind, at time.Time, data jobevent.Data) {
				data.PlaybookUUID, data.TaskUUID = "p", "t"
				e := jobevent.Event{Kind: kind, Created: at, Stdout: hostile, Data: data}
				events.Event(e)
				if result, ended := summary.Result(e); ended {
					events.Ended(result)
				}
				summary.Observe(e)
			}
			observe(jobevent.PlaybookStart, at, jobevent.Data{})
			for range tasks {
				data := jobevent.Data{Task: hostile, Name: hostile, Role: "demo", TaskPath: "/roles/demo/tasks/main.yml:1", Host: "localhost", Res: json.RawMessage(`{"msg": "it broke"}`)}
				observe(jobevent.TaskStart, at, data)
				observe(jobevent.RunnerFailed, at.Add(1500*time.Millisecond), data)
			}
			events.Finish(summary, "", "")

			if blocks.Len() > 0 {
				t.Errorf("blocks of text: %q", blocks.String())
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			must.Be(t, "lines", tasks, len(lines))
			if strings.ContainsAny(lines[0], "\x1b\u009b\u202e\r") || !utf8.ValidString(lines[0]) {
				t.Errorf("control characters: %q", lines[0])
			}
			got := parse(t, lines[0])
			if got["task"] == "" || got["ts"] == "" {
				t.Errorf("no task or time: %q", lines[0])
			}
			delete(got, "task")
			delete(got, "ts")
			must.Be(t, "keys and values", want, got)
		})
	}
}

func jsonLine(t *testing.T, line string) map[string]string {
	t.Helper()
	got := map[string]string{}
	must.Do(t, json.Unmarshal([]byte(line), &got))
	return got
}

func logfmtLine(t *testing.T, line string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for line != "" {
		key, rest, _ := strings.Cut(line, "=")
		value, after, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(rest, `"`) {
			quoted := must.Get(strconv.QuotedPrefix(rest))(t)
			value, after = must.Get(strconv.Unquote(quoted))(t), strings.TrimPrefix(rest[len(quoted):], " ")
		}
		got[key], line = value, after
	}
	return got
}

func consoleLine(t *testing.T, line string) map[string]string {
	t.Helper()
	columns := strings.SplitN(line, "\t", 5)
	must.Be(t, "columns", 5, len(columns))
	got := jsonLine(t, columns[4])
	got["ts"], got["level"], got["logger"], got["msg"] = columns[0], strings.ToLower(columns[1]), columns[2], columns[3]
	return got
}

func TestLogFormat_AndTheFlagsOfAnsibleOperator(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		bad  string
	}{
		"the same twice": {[]string{"--log-format=json", "--zap-encoder=JSON", "--zap-devel"}, ""},
		"two formats":    {[]string{"--log-format=logfmt", "--zap-encoder=json"}, "--log-format=logfmt and --zap-encoder=json contradict each other: leave one of them out"},
		"none":           {[]string{"--zap-encoder=console"}, ""},
	} {
		o := &runOptions{}
		fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
		o.BindFlags(fs)
		must.Do(t, fs.Parse(tc.args))
		said := ""
		if err := o.completeLog(fs); err != nil {
			said = err.Error()
		}
		must.Be(t, name, tc.bad, said)
	}
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	(&runOptions{}).BindFlags(fs)
	if err := fs.Parse([]string{"--log-format=xml"}); err == nil || !strings.Contains(err.Error(), "write console, json or logfmt") {
		t.Errorf("error = %v", err)
	}
}

// Values may be of any kind, and keys need not be words.
func TestLogFormat_LogfmtOfAnyValue(t *testing.T) {
	var out bytes.Buffer
	o := &logOptions{logFormat: logLogfmt}
	must.Do(t, o.completeLog(&pflag.FlagSet{}))
	o.logger(&out).Info("m", "Go Version", "go 1", "n", 3, "empty", "", "map", map[string]any{"a": "b c"}, "list", []int{1, 2}, "none", nil)
	_, line, _ := strings.Cut(strings.TrimSpace(out.String()), " msg=")
	must.Be(t, "line", `m Go_Version="go 1" n=3 empty="" map="{\"a\":\"b c\"}" list=[1,2] none=""`, line)
}
