package jobevent

import (
	"encoding/json"
	"time"
)

// Kind is ansible-runner's name of a kind of event.
type Kind string

// The kinds that Rolewright looks at; it passes events of other kinds through unread.
const (
	PlaybookStart    Kind = "playbook_on_start"
	PlayStart        Kind = "playbook_on_play_start"
	TaskStart        Kind = "playbook_on_task_start"
	HandlerTaskStart Kind = "playbook_on_handler_task_start"
	NoHostsMatched   Kind = "playbook_on_no_hosts_matched"
	PlaybookStats    Kind = "playbook_on_stats"
	RunnerOK         Kind = "runner_on_ok"
	RunnerFailed     Kind = "runner_on_failed"
	RunnerSkipped    Kind = "runner_on_skipped"
	RunnerUnreach    Kind = "runner_on_unreachable"
	ItemOK           Kind = "runner_item_on_ok"
	ItemFailed       Kind = "runner_item_on_failed"
	FileDiff         Kind = "runner_on_file_diff"
	Verbose          Kind = "verbose"
)

// Event is one job event. Strings that were longer than the decoder's limit
// are cut and end in "…".
type Event struct {
	// UUID identifies the event; empty for ansible-runner's own status events.
	UUID string
	// Counter numbers the events of a run from 1.
	Counter int
	Kind    Kind
	// Created is in UTC; zero if the event has no readable time.
	Created time.Time
	// Stdout is the event's part of the output, escape sequences included.
	Stdout string
	Data   Data
}

// Data is the event_data of an event, as far as Rolewright reads it.
type Data struct {
	PlaybookUUID   string
	Play           string
	Task           string
	TaskUUID       string
	TaskAction     string // as written in the task
	ResolvedAction string // the FQCN; newer ansible-runner only
	TaskArgs       string
	TaskPath       string // file:line
	Role           string
	Host           string
	Name           string // the name of the play or task that starts
	IgnoreErrors   bool
	// Handler is true on the start of a task that runs as a handler.
	Handler bool
	// Res is the task's result as JSON; nil if absent or dropped by Decode for
	// its size, {} if ansible-runner dropped it for its size.
	Res json.RawMessage
	// Stats is set on PlaybookStats only, and only if its counts are complete and valid.
	Stats *Stats
}

// Stats counts results by host, as playbook_on_stats gives them.
type Stats struct {
	OK, Changed, Failures, Dark, Skipped, Rescued, Ignored, Processed map[string]int
}
