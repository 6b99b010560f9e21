package status

import (
	"maps"
	"time"
)

// Result is how a run ended, as recorded.
type Result string

// The recorded ends of a run.
const (
	Succeeded   Result = "Succeeded"
	Failed      Result = "Failed"
	Interrupted Result = "Interrupted"
)

// Reasons of a run that did not take place, or not to its end.
const (
	// ReasonUnavailable: ansible-runner could not be started.
	ReasonUnavailable = "RunnerUnavailable"
	// ReasonNotRun: the run could not be prepared.
	ReasonNotRun = "RunNotStarted"
	// ReasonLost: nobody saw the run's end.
	ReasonLost = "Lost"
	// ReasonTimedOut: the run was stopped at a limit of its watch.
	ReasonTimedOut = "TimedOut"
	// ReasonArtifactsTooLarge: the run was stopped because it had written too much.
	ReasonArtifactsTooLarge = "ArtifactsTooLarge"
)

// Run is the record of one finished run: status.ansible.lastRun.
type Run struct {
	// ID is the run's identifier and the name of its artifacts.
	ID string
	// Cause says why it ran: created, changed, content, period, ….
	Cause string
	// Generation is the object's generation that it ran for.
	Generation int64
	// Fingerprint identifies its inputs.
	Fingerprint string
	// Started and Finished enclose it; microseconds are kept.
	Started, Finished time.Time
	Result            Result
	// Reason and Message are the verdict's; the message is empty on success.
	Reason, Message string
	// Permanent is true where the same inputs cannot succeed (not recorded).
	Permanent bool
	Counts    Counts
	// FailedTask is the task that decided a failure; nil where there is none.
	FailedTask *Task
	// RequeueAfter is the wish of the run for the time until the next one; 0 if none.
	RequeueAfter time.Duration
	// Attempts counts the consecutive runs that failed, this one included.
	Attempts int64
	// Dependents are the resources of which the object owns objects
	// (status.ansible.dependents): what is watched for it after a restart.
	Dependents []string
	// Warnings are things that the author of the object should know.
	Warnings []string
	// Localhost are the counts of ansibleResult, Completed its completion.
	Localhost Counts
	Completed time.Time
}

// Counts are task results.
type Counts struct {
	OK, Changed, Skipped, Failed, Unreachable, Rescued, Ignored int64
}

// Task names a task.
type Task struct {
	Name, Role, Host, Path string
}

// Active is the record of the run that is under way: status.ansible.activeRun.
type Active struct {
	ID, Cause  string
	Generation int64
	Started    time.Time
	// Task, TasksStarted and Counts are the progress so far.
	Task         Task
	TasksStarted int64
	Counts       Counts
}

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// LastRun reads the recorded run. It is false where there is none, or none
// that can be relied on: somebody else may have written into the status.
func LastRun(st map[string]any) (Run, bool) {
	m := mapAt(mapAt(st, "ansible"), "lastRun")
	r := Run{
		ID:          text(m["id"]),
		Cause:       text(m["cause"]),
		Generation:  integer(m["generation"]),
		Fingerprint: text(m["fingerprint"]),
		Result:      Result(text(m["result"])),
		Reason:      text(m["reason"]),
		Message:     text(m["message"]),
		Attempts:    max(integer(m["attempts"]), 0),
	}
	var err error
	if r.Started, err = time.Parse(time.RFC3339Nano, text(m["started"])); err != nil {
		return Run{}, false
	}
	if r.Finished, err = time.Parse(time.RFC3339Nano, text(m["finished"])); err != nil {
		return Run{}, false
	}
	if s := text(m["requeueAfter"]); s != "" {
		if r.RequeueAfter, err = time.ParseDuration(s); err != nil || r.RequeueAfter < 0 {
			return Run{}, false
		}
	}
	switch r.Result {
	case Succeeded, Failed, Interrupted:
	default:
		return Run{}, false
	}
	return r, r.ID != ""
}

// Recorded is the part of a status that [LastRun] and [HasActiveRun] read. It
// shares memory with st.
func Recorded(st map[string]any) map[string]any {
	ansible := mapAt(st, "ansible")
	if ansible == nil {
		return map[string]any{}
	}
	kept := map[string]any{}
	for _, key := range []string{"lastRun", "activeRun"} {
		if run := mapAt(ansible, key); run != nil {
			run = maps.Clone(run)
			for _, long := range []string{"message", "counts", "failedTask", "task"} {
				delete(run, long)
			}
			kept[key] = run
		}
	}
	if dependents, ok := ansible["dependents"]; ok {
		kept["dependents"] = dependents
	}
	return map[string]any{"ansible": kept}
}

// Dependents reads the recorded resources of which the object owns objects.
func Dependents(st map[string]any) []string {
	list, _ := mapAt(st, "ansible")["dependents"].([]any)
	var resources []string
	for _, v := range list {
		if s := text(v); s != "" {
			resources = append(resources, s)
		}
	}
	return resources
}

// ActiveRun reads the run that was recorded as begun and not as ended; false if
// there is none.
func ActiveRun(st map[string]any) (Active, bool) {
	m := mapAt(mapAt(st, "ansible"), "activeRun")
	a := Active{ID: text(m["id"]), Cause: text(m["cause"]), Generation: integer(m["generation"])}
	a.Started, _ = time.Parse(time.RFC3339Nano, text(m["started"])) // a time that is none is no reason to forget the run
	return a, a.ID != ""
}

// HasActiveRun reports whether a run was recorded as begun and not as ended.
func HasActiveRun(st map[string]any) bool {
	return text(mapAt(mapAt(st, "ansible"), "activeRun")["id"]) != ""
}

func (r Run) encode() map[string]any {
	m := map[string]any{
		"id": r.ID, "cause": r.Cause, "generation": r.Generation, "fingerprint": r.Fingerprint,
		"started":  r.Started.UTC().Format(timeLayout),
		"finished": r.Finished.UTC().Format(timeLayout),
		"duration": r.Finished.Sub(r.Started).Round(time.Millisecond).String(),
		"result":   string(r.Result), "reason": r.Reason,
		"counts": r.Counts.encode(),
	}
	if r.Message != "" {
		m["message"] = r.Message
	}
	if r.FailedTask != nil {
		m["failedTask"] = r.FailedTask.encode()
	}
	if r.RequeueAfter > 0 {
		m["requeueAfter"] = r.RequeueAfter.String()
	}
	if r.Attempts > 0 {
		m["attempts"] = r.Attempts
	}
	return m
}

func (a Active) encode() map[string]any {
	m := map[string]any{
		"id": a.ID, "cause": a.Cause, "generation": a.Generation,
		"started": a.Started.UTC().Format(timeLayout),
	}
	if a.TasksStarted > 0 {
		m["task"] = a.Task.encode()
		m["tasksStarted"] = a.TasksStarted
		m["counts"] = a.Counts.encode()
	}
	return m
}

func (c Counts) encode() map[string]any {
	return map[string]any{
		"ok": c.OK, "changed": c.Changed, "skipped": c.Skipped, "failed": c.Failed,
		"unreachable": c.Unreachable, "rescued": c.Rescued, "ignored": c.Ignored,
	}
}

func (t Task) encode() map[string]any {
	m := map[string]any{"name": t.Name}
	for key, value := range map[string]string{"role": t.Role, "host": t.Host, "path": t.Path} {
		if value != "" {
			m[key] = value
		}
	}
	return m
}

// ansibleResult is the incumbent's counter block; completion is the creation
// time of the stats event in its layout.
func (r Run) ansibleResult() map[string]any {
	return map[string]any{
		"ok": r.Localhost.OK, "changed": r.Localhost.Changed, "skipped": r.Localhost.Skipped,
		"failures":   r.Localhost.Failed,
		"completion": r.Completed.UTC().Format("2006-01-02T15:04:05.99999999") + "+00:00",
	}
}

func mapAt(m map[string]any, key string) map[string]any {
	v, _ := m[key].(map[string]any)
	return v
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
