package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// Level says how much of a run is logged.
type Level int

const (
	// Tasks logs the start of tasks, debug messages, items and failures.
	Tasks Level = iota
	// Everything logs every event with its data.
	Everything
	// Nothing logs no event; the recap at the end of a run remains.
	Nothing
)

// ParseLevel reads a value of --ansible-log-events, in upper or lower case. It returns
// Tasks and false for an invalid value.
func ParseLevel(s string) (Level, bool) {
	switch strings.ToLower(s) {
	case "tasks":
		return Tasks, true
	case "everything":
		return Everything, true
	case "nothing":
		return Nothing, true
	}
	return Tasks, false
}

// Options are the options of a [Logger]. Except for Command and Masked, they are the same
// for all runs of an operator.
type Options struct {
	Level Level
	// Lines logs one line for each task that has ended on a host ([Logger.Ended]), and no
	// blocks of text, in place of what ansible-operator logs of events.
	Lines bool
	// DebugLogs adds the whole output of a run at its end (ANSIBLE_DEBUG_LOGS).
	DebugLogs bool
	// Command is true for the run of a command, which has no recap.
	Command bool
	// Out takes the blocks of text. Give all loggers the same [Output], so that
	// blocks of concurrent runs do not mix; ideally, the sink of the structured
	// lines writes to it, too. Any other writer works for a single run. Write
	// errors are ignored, since a run must not fail because of its log.
	Out io.Writer
	// Masked hides secret values in the whole output of the run; nil hides
	// none. Events are masked already.
	Masked func(io.Reader) io.Reader
}

// Logger logs one run. Its methods are called from one goroutine.
type Logger struct {
	opts  Options
	out   *Output
	log   logr.Logger
	title string // (<gvk>, <name>/<namespace>)
	// raw prints the output of tasks unchanged instead of lines and blocks.
	raw bool
	// recap is the output of the stats event.
	recap string
}

// New returns the logger for a run of an object. log already has the keys job, name
// and namespace and, with Lines, gvk. verbosity comes from the object's annotation or
// from ANSIBLE_VERBOSITY; above 0, the level Tasks prints the raw output of tasks.
func New(opts Options, log logr.Logger, gvk, name, namespace string, verbosity int) *Logger {
	out, shared := opts.Out.(*Output)
	if !shared {
		out = NewOutput(opts.Out)
	}
	log = log.WithName("logging_event_handler")
	if !opts.Lines {
		log = log.WithValues("gvk", gvk)
	}
	return &Logger{
		opts: opts, out: out, raw: verbosity > 0, log: log,
		title: fmt.Sprintf("(%s, %s/%s)", gvk, name, namespace),
	}
}

// errTaskFailed is the error in the line for a failed task. Users search for its
// text.
var errTaskFailed = errors.New("[playbook task failed]")

// Event logs an event as the level requires. It keeps only the recap of the event.
func (l *Logger) Event(e jobevent.Event) {
	if e.Kind == jobevent.PlaybookStats {
		l.recap = shown(e.Stdout, maxBlock)
	}
	switch {
	case l.opts.Level == Everything:
		l.emit(e, func(log logr.Logger) { log.Info("", "EventData", eventData(e)) })
	case l.opts.Level == Tasks && e.Data.Task != "" && !l.opts.Lines:
		l.task(e)
	}
}

// Ended logs a task that has ended on a host, if Lines is set.
func (l *Logger) Ended(r jobevent.TaskResult) {
	if !l.opts.Lines || l.opts.Level == Nothing {
		return
	}
	values := []any{
		"task", r.Task.Name, "role", r.Task.Role, "path", r.Task.Path, "host", r.Host,
		"result", r.Outcome, "duration", taskTime(r).String(),
	}
	if r.Message != "" {
		values = append(values, "message", r.Message)
	}
	l.out.together(func() { l.log.Info("Task ended", values...) })
}

// taskTime returns the duration of a task; 0 if its start is not known.
func taskTime(r jobevent.TaskResult) time.Duration {
	if r.Task.Started.IsZero() || r.Finished.Before(r.Task.Started) {
		return 0
	}
	return r.Finished.Sub(r.Task.Started).Round(time.Millisecond)
}

// task logs an event of a task at the level Tasks.
func (l *Logger) task(e jobevent.Event) {
	debug := isAction(e, "debug")
	switch {
	case l.raw:
		if e.Stdout != "" {
			l.out.block(shown(e.Stdout, maxBlock) + "\n")
		}
	case isStart(e) && !debug && !isAction(e, "set_fact"):
		l.emit(e, func(log logr.Logger) {
			log.Info("[playbook task start]", "EventData.Name", shown(e.Data.Name, maxField))
		})
	case e.Kind == jobevent.RunnerOK && debug:
		l.emit(e, func(log logr.Logger) {
			log.Info("[playbook debug]", "EventData.TaskArgs", shown(e.Data.TaskArgs, maxField))
		})
	case e.Kind == jobevent.ItemOK:
		l.emit(e, func(logr.Logger) {})
	case e.Kind == jobevent.RunnerFailed, e.Kind == jobevent.RunnerUnreach:
		l.emit(e, func(log logr.Logger) {
			values := []any{"EventData.Task", shown(e.Data.Task, maxField), "EventData.TaskArgs", shown(e.Data.TaskArgs, maxField)}
			if e.Data.TaskPath != "" {
				values = append(values, "EventData.FailedTaskPath", shown(e.Data.TaskPath, maxField))
			}
			log.Error(errTaskFailed, "", values...)
		})
	}
}

// emit writes the line and the block of an event, next to each other.
func (l *Logger) emit(e jobevent.Event, line func(logr.Logger)) {
	l.out.together(func() {
		line(l.log.WithValues("event_type", string(e.Kind)))
		if block := taskBlock(e); block != "" && !l.opts.Lines {
			_, _ = io.WriteString(l.out, block)
		}
	})
}

// isStart reports whether an event is the start of a task or handler. Its output
// already names the task.
func isStart(e jobevent.Event) bool {
	return e.Kind == jobevent.TaskStart || e.Kind == jobevent.HandlerTaskStart
}

// isAction reports whether a task uses a module of ansible.builtin, under any of the
// module's names.
func isAction(e jobevent.Event, module string) bool {
	names := []string{module, "ansible.builtin." + module, "ansible.legacy." + module}
	return slices.Contains(names, e.Data.TaskAction) || slices.Contains(names, e.Data.ResolvedAction)
}

// taskBlock returns the output of an event between ruled lines; empty if it has none.
func taskBlock(e jobevent.Event) string {
	if e.Stdout == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n--------------------------- Ansible Task StdOut -------------------------------\n")
	if e.Data.Task != "" && !isStart(e) {
		fmt.Fprintf(&b, "\n TASK [%s] ******************************** \n", shown(e.Data.Task, maxField))
	}
	b.WriteString(shown(e.Stdout, maxBlock) + "\n")
	b.WriteString("\n" + strings.Repeat("-", 79) + "\n")
	return b.String()
}

// eventData returns the data of an event under ansible-runner's names.
func eventData(e jobevent.Event) map[string]any {
	data := map[string]any{}
	for key, value := range map[string]string{
		"playbook_uuid": e.Data.PlaybookUUID, "play": e.Data.Play, "task": e.Data.Task, "task_uuid": e.Data.TaskUUID,
		"task_action": e.Data.TaskAction, "resolved_action": e.Data.ResolvedAction, "task_args": e.Data.TaskArgs,
		"task_path": e.Data.TaskPath, "role": e.Data.Role, "host": e.Data.Host, "name": e.Data.Name,
	} {
		if value != "" {
			data[key] = shown(value, maxField)
		}
	}
	if e.Data.IgnoreErrors {
		data["ignore_errors"] = true
	}
	if res := e.Data.Res; len(res) > 0 {
		if len(res) <= maxField && json.Valid(res) {
			data["res"] = res
		} else {
			data["res"] = shown(string(res[:min(len(res), maxBlock)]), maxField)
		}
	}
	if s := e.Data.Stats; s != nil {
		for key, counts := range map[string]map[string]int{
			"ok": s.OK, "changed": s.Changed, "failures": s.Failures, "dark": s.Dark, "skipped": s.Skipped,
			"rescued": s.Rescued, "ignored": s.Ignored, "processed": s.Processed,
		} {
			data[key] = counts
		}
	}
	return data
}
