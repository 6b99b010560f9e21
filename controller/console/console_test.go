package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner/jobevent"
)

func TestConsole(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	c := New(&out, false, func() time.Time { return now })
	c.dir = "/project"
	r := c.Start("Site/a", "created")
	result := func(kind jobevent.Kind, task, path, res string, ignored bool) {
		r.Event(jobevent.Event{Kind: jobevent.TaskStart, Created: now})
		r.Event(jobevent.Event{Kind: kind, Created: now.Add(1500 * time.Millisecond),
			Data: jobevent.Data{Task: task, TaskPath: path, Res: json.RawMessage(res), IgnoreErrors: ignored}})
	}
	result(jobevent.RunnerOK, "Look", "/project/roles/a/tasks/main.yml:3", `{}`, false)
	result(jobevent.RunnerOK, "Write", "/elsewhere/main.yml:4", `{"changed": true}`, false)
	result(jobevent.RunnerFailed, "Try", "", `{}`, true)
	r.Event(jobevent.Event{Kind: jobevent.FileDiff, Stdout: "\x1b[31m-a: 1\x1b[0m\r\n\x1b[32m+a: 2\x1b[0m\r\n\r\n same"})
	// What a role prints is not taken for a line of the console's own, and contains no control sequences for the
	// terminal.
	result(jobevent.RunnerFailed, "x\n10:00:00  Site/b  \x1b[2Jsucceeded", "", `{}`, false)
	r.End(status.Run{Result: status.Failed, Reason: "TaskFailed", Message: "one\ntwo", Started: now, Finished: now.Add(time.Second),
		FailedTask: &status.Task{Path: "/project/roles/a/tasks/main.yml:9"}})
	r.End(status.Run{Result: status.Succeeded, Reason: "NotYet", Message: "1 of 3", Started: now, Finished: now.Add(time.Second)})
	want := strings.ReplaceAll(`@Site/a  run starts: created
@Site/a  ok        1.5s  Look  roles/a/tasks/main.yml:3
@Site/a  changed   1.5s  Write  /elsewhere/main.yml:4
@Site/a  ignored   1.5s  Try
@Site/a  | -a: 1
@Site/a  | +a: 2
@Site/a  |  same
@Site/a  failed    1.5s  x 10:00:00 Site/b succeeded
@Site/a  failed after 1s: TaskFailed
  roles/a/tasks/main.yml:9
  one
  two
@Site/a  not yet after 1s: 1 of 3
`, "@", "10:00:00  ")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
