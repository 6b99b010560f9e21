package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/report"
	"github.com/rolewright/rolewright/runner/supervise"
)

// reportPoll is the time between two looks at a command's reports, unless [Request].told announces them.
const reportPoll = 200 * time.Millisecond

// Bounds on the reports of a run.
const (
	maxStatusReports = 100 // conditions and statuses, each of which may be a write
	maxTitle         = 200 // bytes of the name of a task
	maxWarnings      = 20
)

// minRedacted is the length of the shortest value that is masked, in bytes without blanks.
const minRedacted = 6

// Reported is what a command or function has reported about its run.
type Reported struct {
	// Verdict, Changed and Message are those of its result; Verdict is empty if it has reported no result.
	Verdict report.Verdict
	Changed bool
	Message string
	// Problem is why its reports cannot be relied on; empty if they can.
	Problem string
	// Warnings are about reports without effect.
	Warnings []string

	// name stands for the command in messages.
	name string
	// requireResult is RequireResult of the command.
	requireResult bool
	// function is true for a [Function].
	function bool
	// last is the last line of its stderr.
	last string
	// unanswered is true if a report asked for something that [Request].Call was not there to do, or had no more time for.
	unanswered bool
	// exit is set when nothing is left of the run.
	exit supervise.Exit
	// stop stops the run; nil if the run is not in progress.
	stop context.CancelCauseFunc
}

// reportedIn returns a [Reported] for reading the reports of a run that has ended; nil for a run of Ansible.
func reportedIn(req Request, exit supervise.Exit) *Reported {
	if _, err := os.Lstat(filepath.Join(artifactsDir(req), ReportsFile)); err != nil {
		return nil
	}
	if exit.Notes == functionCalled {
		return &Reported{name: "handler", function: true, exit: exit}
	}
	return &Reported{name: "command", exit: exit}
}

// CommandEvents returns the events of a command's run that has ended; nil for a run of Ansible.
// dir is the run's private data directory. The events have no times. mask and redact are as
// in [Request].
func CommandEvents(ctx context.Context, dir, id string, mask Masker, redact func(context.Context, string)) (events []jobevent.Event) {
	req := Request{ID: id, Dir: dir, Mask: mask, Redact: redact, OnEvent: func(e jobevent.Event) {
		e.Created = time.Time{}
		events = append(events, e)
	}}
	exit, noExit := supervise.ReadExit(filepath.Join(dir, endRecord))
	if req.reports = reportedIn(req, exit); req.reports == nil {
		return nil
	}
	if noExit != nil {
		o, err := readOutcome(dir)
		if err != nil {
			return nil
		}
		req.reports.endElsewhere(o, nil)
	}
	done := make(chan struct{})
	close(done)
	req.reports.follow(ctx, req, done)
	return events
}

// errReports is the cause with which a run is stopped if its reports cannot be relied on.
var errReports = errors.New("the reports of the command cannot be relied on")

// translation turns the reports of a command into job events: each progress report becomes a task.
type translation struct {
	*Reported
	ctx      context.Context // of one run
	req      Request
	file     *os.File
	offset   int64
	digest   hash.Hash // of all that was read
	reader   report.Reader
	problem  error
	summary  jobevent.Summary
	counter  int
	tasks    int
	open     bool // a task has begun and not ended
	task     string
	diff     string // of the open task
	changed  int    // tasks that have changed something
	statuses int
	known    []string // the warnings of warnOnce so far
}

// follow reads the reports of a run until done is closed and the last report is read. ctx is for what the reports ask for.
func (c *Reported) follow(ctx context.Context, req Request, done <-chan struct{}) jobevent.Summary {
	t := &translation{Reported: c, ctx: ctx, req: req, digest: sha256.New()}
	t.emit(jobevent.PlaybookStart, jobevent.Data{})
	t.emit(jobevent.PlayStart, jobevent.Data{Name: c.name, Play: c.name})
	name := filepath.Join("artifacts", req.ID, ReportsFile)
	if t.file, t.problem = plainfile.OpenBelow(req.Dir, name); t.problem == nil {
		defer t.file.Close()
	}
	tick := time.NewTicker(reportPoll)
	defer tick.Stop()
	if req.told != nil {
		tick.Stop()
	}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-tick.C:
		case <-req.told:
		}
		if t.problem == nil {
			t.problem = t.read()
		}
		if t.problem == nil && ended {
			t.problem = t.whole(name)
		}
		if t.problem != nil && !ended && c.stop != nil {
			c.stop(errReports)
		}
	}
	t.finish()
	return t.summary
}

// read reads the new part of the file.
func (t *translation) read() error {
	info, err := t.file.Stat()
	switch {
	case err != nil || info.Size() == t.offset:
		return err
	case info.Size() < t.offset:
		return errors.New("the file with the reports has become shorter: only append to it (>>)")
	}
	piece := make([]byte, report.MaxLine)
	for err == nil {
		var n int
		n, err = t.file.ReadAt(piece, t.offset)
		t.offset += int64(n)
		t.digest.Write(piece[:n])
		if readErr := t.reader.Read(piece[:n], t.take); readErr != nil {
			return readErr
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// whole checks, after the command has ended, that the file has kept all that it has reported.
func (t *translation) whole(name string) error {
	if t.exit.Stopped {
		return nil // it had no time to finish its last line
	}
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	is, err := os.Lstat(filepath.Join(t.req.Dir, name))
	if err != nil && gone(t.req.Dir) {
		return errors.New("the directory of the run, $ROLEWRIGHT_DIR, is gone: a command may remove its own files only, and two operators may not share a --runner-root")
	}
	if err != nil || !os.SameFile(info, is) {
		return errors.New("the file with the reports was removed or replaced: only append to it (>>)")
	}
	again := sha256.New()
	if _, err := io.Copy(again, io.NewSectionReader(t.file, 0, t.offset)); err != nil {
		return err
	}
	if !bytes.Equal(again.Sum(nil), t.digest.Sum(nil)) {
		return errors.New("the file with the reports was overwritten: only append to it (>>)")
	}
	return t.reader.Close()
}

// take does what one report asks for.
func (t *translation) take(r report.Report) {
	if !r.Known() {
		t.warnOnce(fmt.Sprintf("reports of type %q have no effect in protocol %s", text.Clip(text.OneLine(string(r.Type)), 40), protocol), r)
		return
	}
	for _, field := range r.Unknown {
		t.warnOnce(fmt.Sprintf("the field %q of a report of type %s has no effect", text.Clip(text.OneLine(field), 40), r.Type), r)
	}
	if t.Verdict != "" && r.Type != report.Redact {
		t.warnOnce("reports after the result have no effect", r)
		return
	}
	switch r.Type {
	case report.Progress:
		t.end(false)
		t.begin(cmp.Or(t.title(r), t.name))
		t.diff = text.Plain(r.Diff)
	case report.Result:
		t.Verdict, t.Changed, t.Message = r.Verdict, r.Changed, r.Message
		if name := text.Clip(text.OneLine(r.Task), maxTitle); name != "" && name != t.task {
			t.end(false)
			t.begin(name)
		}
	case report.Requeue:
		t.summary.RequeueAfter = &jobevent.RequeueAfter{Period: r.After, Task: t.summary.Task}
	case report.Redact:
		if len(strings.Join(strings.Fields(r.Value), "")) < minRedacted {
			t.warnOnce(fmt.Sprintf("a value of fewer than %d characters is not masked, because any text contains such values by chance", minRedacted), r)
		}
		if t.req.Redact != nil {
			t.req.Redact(t.ctx, r.Value)
		}
	case report.Condition, report.Status:
		if t.statuses++; t.statuses > maxStatusReports {
			t.warnOnce(fmt.Sprintf("a run may report at most %d conditions and statuses: the others have no effect", maxStatusReports), r)
			return
		}
		t.call("status", r)
	case report.Event, report.Metric, report.Reference:
		t.call(string(r.Type), r)
	}
}

// call has the operator do what a report asks for, as for the modules of its collection.
func (t *translation) call(name string, r report.Report) {
	if t.req.Call == nil {
		t.unanswered = true
		return
	}
	if err := t.req.Call(t.ctx, name, r.Body); err != nil {
		t.unanswered = t.unanswered || t.ctx.Err() != nil
		t.warn(fmt.Sprintf("the report in line %d (%s) has no effect: %v", r.Line, r.Type, err))
	}
}

func (c *Reported) warn(warning string) {
	if len(c.Warnings) < maxWarnings {
		c.Warnings = append(c.Warnings, warning)
	}
}

// warnOnce gives each warning only once, with the line of the first report that it is about.
func (t *translation) warnOnce(warning string, r report.Report) {
	if len(t.known) < maxWarnings && !slices.Contains(t.known, warning) {
		t.known = append(t.known, warning)
		t.warn(fmt.Sprintf("%s (line %d)", warning, r.Line))
	}
}

// title is the name of the task for a progress report.
func (t *translation) title(r report.Report) string {
	name := strings.Trim(text.OneLine(r.Step)+": "+text.OneLine(r.Message), ": ")
	count := ""
	if r.Total > 0 {
		count = fmt.Sprintf(" (%d/%d)", r.Done, r.Total)
		if mask := t.req.Mask; mask != nil && len(name)+len(count) > maxTitle {
			name = mask.Mask(name) // later, the count hides that a value may be cut
		}
	}
	return text.Clip(name, maxTitle-len(count)) + count
}

const localhost = "localhost"

// begin begins a task.
func (t *translation) begin(name string) {
	t.tasks++
	t.open, t.task = true, name
	t.emit(jobevent.TaskStart, jobevent.Data{Name: name})
}

// end ends the open task, if there is one. A task with a diff counts as changed.
func (t *translation) end(changed bool) {
	if !t.open {
		return
	}
	result := map[string]any{"changed": changed || t.diff != ""}
	if t.diff != "" {
		result["diff"] = []any{map[string]any{"prepared": t.diff}}
		t.emit(jobevent.FileDiff, jobevent.Data{Host: localhost})
	}
	if changed || t.diff != "" {
		t.changed++
	}
	t.result(jobevent.RunnerOK, result)
}

func (t *translation) result(kind jobevent.Kind, result map[string]any) {
	t.open, t.diff = false, ""
	res, _ := json.Marshal(result) // of texts and booleans
	t.emit(kind, jobevent.Data{Host: localhost, Res: res})
}

// finish ends the open task and the play as the command ended. After a stop it leaves them open.
func (t *translation) finish() {
	t.name, t.stop = text.Clip(text.OneLine(t.name), maxTitle), nil
	if t.problem != nil {
		t.Problem = text.Plain(t.problem.Error())
	}
	t.hide()
	if t.exit.Stopped && t.Problem == "" {
		return
	}
	last, err := tailBelow(t.req.Dir, filepath.Join("artifacts", t.req.ID, stderrFile), tailLimit, t.req.Mask)
	if err == nil {
		t.last = lastLine(last)
	}
	reason, message := t.judge()
	failed := reason != Succeeded && reason != NotYet
	if !t.open && (failed || t.tasks == 0) {
		t.begin(t.name)
	}
	count := func(n int) map[string]int {
		if n > 0 {
			return map[string]int{localhost: n}
		}
		return map[string]int{}
	}
	failures := 0
	ok := map[string]int{localhost: t.tasks}
	if failed {
		ok[localhost]--
		failures++
		t.result(jobevent.RunnerFailed, map[string]any{"msg": message})
	} else {
		more := t.Changed && t.changed == 0
		if more && !t.open {
			t.begin(t.name)
		}
		t.end(more)
	}
	t.emit(jobevent.PlaybookStats, jobevent.Data{Stats: &jobevent.Stats{
		OK: ok, Changed: count(t.changed), Failures: count(failures), Dark: count(0), Skipped: count(0), Rescued: count(0),
		Ignored: count(0), Processed: count(1),
	}})
}

// emit adds an event to the summary, and passes it to OnEvent.
func (t *translation) emit(kind jobevent.Kind, d jobevent.Data) {
	t.counter++
	d.PlaybookUUID = t.req.ID
	if kind == jobevent.TaskStart || d.Host != "" {
		d.Task, d.TaskUUID, d.TaskAction = t.task, fmt.Sprintf("%s-%d", t.req.ID, t.tasks), "command"
	}
	if kind != jobevent.PlaybookStart {
		d.Play = t.name
	}
	e := jobevent.Event{Counter: t.counter, Kind: kind, Created: time.Now().UTC(), Data: d}
	if kind == jobevent.FileDiff {
		e.Stdout = t.diff
	}
	e = masked(e, t.req.Mask)
	if t.summary.Observe(e) && t.req.OnEvent != nil {
		t.req.OnEvent(e)
	}
}
