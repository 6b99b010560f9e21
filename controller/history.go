package controller

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// recordHistory begins to record the run of s in the history.
func (r *reconciler) recordHistory(s *scope) {
	s.recording = r.opts.History.Begin(history.Run{
		Brief: history.Brief{
			ID: s.runID, Object: r.historyObject(s.key), Generation: s.active.Generation, Cause: string(s.plan.cause), Trigger: s.trigger,
			Mode: s.plan.mode(), Started: s.active.Started,
		},
		UID: string(s.object.GetUID()), Due: s.due, Prepared: r.now(),
		Versions: map[string]string{"rolewright": version.Version},
	})
	s.progress.recording = s.recording
	if id := s.recording.TraceID(); id != "" {
		s.log = s.log.WithValues("trace_id", id)
	}
}

func (r *reconciler) historyObject(key types.NamespacedName) history.Object {
	return history.Object{Group: r.gvk.Group, Version: r.gvk.Version, Kind: r.gvk.Kind, Namespace: key.Namespace, Name: key.Name}
}

// concludeHistory records the end of a run in the history.
func (r *reconciler) concludeHistory(s *scope, run status.Run) {
	recording := s.recording
	if recording == nil { // the run did not start, or an earlier process executed it
		recording = r.opts.History.Begin(history.Run{Brief: history.Brief{ID: run.ID, Object: r.historyObject(s.key)}, UID: string(s.object.GetUID())})
	}
	recording.End(func(h *history.Run) {
		h.Idle = s.foundNothing(run)
		h.Generation, h.Cause, h.Trigger, h.Mode, h.Executor = run.Generation, run.Cause, run.Trigger, run.Mode, run.Executor
		h.Started, h.Finished, h.Result, h.Reason, h.Attempts = run.Started, run.Finished, string(run.Result), run.Reason, run.Attempts
		h.Message, h.Warnings, h.Counts, h.Task = run.Message, run.Warnings, historyCounts(run.Counts), nil
		h.Ended, h.Memory, h.CPU = s.result.Finished, s.result.Memory, s.result.CPU.Seconds()
		if t := run.FailedTask; t != nil {
			h.Task = &history.TaskName{Name: t.Name, Role: t.Role, Path: t.Path, Host: t.Host}
			if !hidesFailure(s.result.Summary) {
				h.Source = r.sourceLines(s, t.Path)
			}
		}
		for i := range h.Tasks {
			if t := &h.Tasks[i]; t.Outcome == string(jobevent.Failed) && s.result.Summary.Stats != nil && s.result.Summary.Stats.Failures[t.Host] == 0 {
				t.Outcome = "rescued"
			}
		}
		for i := range h.Writes {
			w := &h.Writes[i]
			w.Namespace, w.Name = s.mask.Mask(w.Namespace), s.mask.Mask(w.Name)
			w.Fields = slices.Clone(w.Fields) // readers of events share the original
			for n, field := range w.Fields {
				w.Fields[n] = s.mask.Mask(field)
			}
		}
	})
}

// hidesFailure reports whether the failed task has no_log, which also hides its arguments.
func hidesFailure(sum jobevent.Summary) bool {
	culprits := sum.Culprits()
	return len(culprits) > 0 && culprits[jobevent.Decisive(culprits)].Hidden()
}

func historyCounts(c status.Counts) history.Counts {
	return history.Counts{
		OK: c.OK, Changed: c.Changed, Skipped: c.Skipped, Failed: c.Failed, Unreachable: c.Unreachable, Rescued: c.Rescued, Ignored: c.Ignored,
	}
}

func historyTask(t jobevent.Task) history.TaskName {
	return history.TaskName{Name: t.Name, Role: t.Role, Path: t.Path}
}

// recordTask records the result of a task.
func recordTask(recording *history.Recording, t jobevent.TaskResult) {
	task := history.Task{
		TaskName: historyTask(t.Task), Play: t.Play, Action: t.Task.Action, Outcome: string(t.Outcome),
		Started: t.Task.Started, Finished: t.Finished, Items: t.Items, Message: t.Message,
	}
	task.Host = t.Host
	if t.Detail != "" {
		task.Message += "\n" + t.Detail
	}
	recording.Task(task)
}

// maxWrittenName is how many bytes of a name in a request the history keeps.
const maxWrittenName = 253

// plainName returns at most most bytes of a name in a request, in one line; the request may have any
// text in its place. The result is a copy, since name may be part of a text of megabytes.
func plainName(name string, most int) string {
	return strings.Clone(text.OneLine(text.Cut(name, most)))
}

// wrote records a write of the run of s.
func (r *reconciler) wrote(s *scope, w proxy.Written) {
	shown := func(name string) string { return s.mask.Mask(plainName(name, maxWrittenName)) }
	h := history.Write{
		At: r.now(), Verb: shown(w.Verb), Resource: plainName(w.Resource.GroupResource().String(), 2*maxWrittenName),
		Subresource: shown(w.Subresource), Namespace: shown(w.Namespace), Name: shown(w.Name),
		Code: w.Code, DryRun: w.DryRun, Result: resultOf(w),
	}
	for _, field := range w.Fields {
		h.Fields = append(h.Fields, shown(field))
	}
	s.recording.Write(h)
}

// resultOf returns the result of a write in the history's words.
func resultOf(w proxy.Written) string {
	deletes := w.Verb == "delete" || w.Verb == "deletecollection"
	switch {
	case w.Code < http.StatusOK || w.Code >= http.StatusMultipleChoices:
		return "refused"
	case deletes:
		return "deleted"
	case w.Code == http.StatusCreated:
		return "created"
	case w.Unchanged:
		return "unchanged"
	}
	return "changed"
}
