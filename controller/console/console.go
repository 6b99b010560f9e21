// Package console writes the progress of runs to a terminal.
package console

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// maxLine limits the length of one line, in bytes.
const maxLine = 16 << 10

// maxDiff limits the length of one task's diff, in bytes.
const maxDiff = 64 << 10

// Console writes a line for each result of a task, in the words and colours of
// ansible-playbook, with its object, duration and file:line. It is safe for concurrent use.
type Console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	dir    string // of the project; file names are shown relative to it
	now    func() time.Time
}

// New returns a console. colour says whether out supports colours; now returns the time for
// each line.
func New(out io.Writer, colour bool, now func() time.Time) *Console {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/" // file names stay absolute
	}
	return &Console{out: out, colour: colour, dir: dir, now: now}
}

// The colours of ansible-playbook.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	cyan   = "36"
)

// Say writes a line that is not about a run.
func (c *Console) Say(format string, args ...any) {
	c.write("", fmt.Sprintf(format, args...))
}

// Problem writes a line about what has to be fixed.
func (c *Console) Problem(err error) { c.write(red, err.Error()) }

func (c *Console) write(code, line string) {
	line = text.Uncoloured(text.Cut(line, maxLine))
	if c.colour && code != "" {
		line = "\x1b[" + code + "m" + line + "\x1b[0m"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Ignore errors: a terminal that is gone must not end a run.
	_, _ = io.WriteString(c.out, c.now().Format(time.TimeOnly)+"  "+line+"\n")
}

// Run is one run on a console. Its methods are called from one goroutine.
type Run struct {
	console *Console
	object  string
	began   time.Time // when the current task began
}

// Start writes that a run of an object starts, and why.
func (c *Console) Start(object, cause string) *Run {
	c.write("", fmt.Sprintf("%s  run starts: %s", object, cause))
	return &Run{console: c, object: object}
}

// Event writes a line for the result of a task.
func (r *Run) Event(e jobevent.Event) {
	word, code := "", ""
	switch e.Kind {
	case jobevent.TaskStart, jobevent.HandlerTaskStart:
		r.began = e.Created
		return
	case jobevent.RunnerOK:
		word, code = "ok", green
		if e.Changed() {
			word, code = "changed", yellow
		}
	case jobevent.RunnerSkipped:
		word, code = "skipped", cyan
	case jobevent.RunnerFailed, jobevent.RunnerUnreach:
		word, code = "failed", red
		if e.Data.IgnoreErrors {
			word, code = "ignored", cyan
		}
	case jobevent.FileDiff:
		r.console.diff(r.object, e.Stdout)
		return
	default:
		return
	}
	took := time.Duration(0)
	if !r.began.IsZero() {
		took = max(e.Created.Sub(r.began), 0)
	}
	r.console.write(code, strings.TrimRight(fmt.Sprintf("%s  %-7s %5.1fs  %s  %s", r.object, word, took.Seconds(), text.OneLine(e.Data.Task), r.console.place(e.Data.TaskPath)), " "))
}

// diff writes a task's diff as Ansible shows it.
func (c *Console) diff(object, shown string) {
	for line := range strings.Lines(text.Uncoloured(text.Cut(shown, maxDiff))) {
		line = strings.TrimRight(line, "\r\n")
		code := ""
		switch {
		case strings.HasPrefix(line, "+"):
			code = green
		case strings.HasPrefix(line, "-"):
			code = red
		}
		if line != "" {
			c.write(code, object+"  | "+line)
		}
	}
}

// End writes how the run ended, and what has to be fixed.
func (r *Run) End(run status.Run) {
	took := run.Finished.Sub(run.Started).Round(10 * time.Millisecond)
	for _, w := range run.Warnings {
		r.console.write(yellow, r.object+"  warning: "+text.OneLine(w))
	}
	if run.NotYet() {
		why := run.Message
		if run.Wait != nil {
			why = run.Wait.String()
		}
		r.console.write(yellow, fmt.Sprintf("%s  not yet after %s: %s", r.object, took, text.OneLine(why)))
		return
	}
	if run.Result == status.Succeeded {
		r.console.write(green, fmt.Sprintf("%s  succeeded in %s: %d ok, %d changed", r.object, took, run.Counts.OK, run.Counts.Changed))
		return
	}
	place := ""
	if run.FailedTask != nil && run.FailedTask.Path != "" {
		place = "\n  " + r.console.place(run.FailedTask.Path)
	}
	r.console.write(red, fmt.Sprintf("%s  %s after %s: %s%s\n  %s", r.object, strings.ToLower(string(run.Result)), took, run.Reason, place,
		strings.ReplaceAll(run.Message, "\n", "\n  ")))
}

// place returns a file:line in a form that terminals can open.
func (c *Console) place(path string) string {
	if rel, err := filepath.Rel(c.dir, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return text.OneLine(path)
}
