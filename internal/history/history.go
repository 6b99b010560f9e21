// Package history keeps what is known of runs that have ended: why they ran, what their
// tasks did, and what they wrote to the cluster. It is for people: the operator decides
// nothing by it, and judges a run by its artifacts.
//
// It knows neither Kubernetes nor Ansible. The caller masks all texts.
package history

import (
	"time"
)

// Run is a run that has ended or, if it comes from a [Recorder], may be in progress.
type Run struct {
	Brief
	// UID is the UID of the object.
	UID string `json:"uid"`
	// TraceID is the ID of its trace; empty if it is not traced or not sampled.
	TraceID string `json:"traceID,omitempty"`
	// Due is when the run was due. From then until Started, it waited for a place.
	Due time.Time `json:"due,omitzero"`
	// Prepared and Ended enclose the time in which Ansible or the command ran.
	Prepared time.Time `json:"prepared,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Message  string    `json:"message,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	// Idle is true for a run that has found everything as wanted, of an object that is checked all the
	// time. It is not kept: such runs would displace those that people look for.
	Idle bool `json:"-"`
	// Source is the source of the task that failed; nil if its file cannot be read.
	Source *Source `json:"source,omitempty"`
	// Versions has the versions of the software that made the run, by name.
	Versions map[string]string `json:"versions,omitempty"`
	Tasks    []Task            `json:"tasks,omitempty"`
	// TasksLeftOut and WritesLeftOut count those for which there was no room.
	TasksLeftOut  int     `json:"tasksLeftOut,omitempty"`
	Writes        []Write `json:"writes,omitempty"`
	WritesLeftOut int     `json:"writesLeftOut,omitempty"`
}

// Brief is what a list of runs shows of each run.
type Brief struct {
	ID string `json:"id"`
	Object
	Generation int64 `json:"generation,omitempty"`
	// Cause and Trigger say why it ran; Mode is "check" for a check.
	Cause    string    `json:"cause"`
	Trigger  string    `json:"trigger,omitempty"`
	Mode     string    `json:"mode,omitempty"`
	Executor string    `json:"executor,omitempty"`
	Started  time.Time `json:"started"`
	// Finished is zero for a run in progress.
	Finished time.Time `json:"finished,omitzero"`
	// Result is Succeeded, Failed or Interrupted; empty for a run in progress.
	Result string `json:"result,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Attempts is how many runs in a row have failed.
	Attempts int64  `json:"attempts,omitempty"`
	Counts   Counts `json:"counts"`
	// Memory is the highest measured memory of all processes of the run together, in bytes; 0 if it was not measured.
	Memory int64 `json:"memory,omitempty"`
	// CPU is the CPU time of Ansible and all processes that it has started, in seconds.
	CPU float64 `json:"cpu,omitempty"`
	// Task is the task that failed; for a run in progress, the current task.
	Task *TaskName `json:"task,omitempty"`
}

// Object is the object of a run.
type Object struct {
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Counts are the numbers of results of tasks, by outcome.
type Counts struct {
	OK          int64 `json:"ok"`
	Changed     int64 `json:"changed"`
	Skipped     int64 `json:"skipped,omitempty"`
	Failed      int64 `json:"failed,omitempty"`
	Unreachable int64 `json:"unreachable,omitempty"`
	Rescued     int64 `json:"rescued,omitempty"`
	Ignored     int64 `json:"ignored,omitempty"`
}

// TaskName identifies a task, with its place in the content.
type TaskName struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Path is file:line.
	Path string `json:"path,omitempty"`
	Host string `json:"host,omitempty"`
}

// Source is a part of a file.
type Source struct {
	// First is the number of the first line in Lines, and Line the number of the line in question.
	First int      `json:"first"`
	Line  int      `json:"line"`
	Lines []string `json:"lines"`
}

// Task is a task that has ended on a host.
type Task struct {
	TaskName
	Play   string `json:"play,omitempty"`
	Action string `json:"action,omitempty"`
	// Outcome is ok, changed, skipped, failed, ignored, unreachable or rescued.
	Outcome  string    `json:"outcome"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Items is how many items its loop had.
	Items   int    `json:"items,omitempty"`
	Message string `json:"message,omitempty"`
}

// Write is a write of a run that the API server has answered.
type Write struct {
	At   time.Time `json:"at"`
	Verb string    `json:"verb"`
	// Resource is, for example, "deployments.apps".
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Code is the HTTP status of the answer.
	Code int `json:"code"`
	// Result is created, changed, unchanged, deleted or refused.
	Result string `json:"result"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Fields are the changed fields, as far as they are known.
	Fields []string `json:"fields,omitempty"`
	// Task is the index in Tasks of the task that made the write; -1 if that is not known.
	Task int `json:"task"`
}
