package runner

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/internal/ansibleerror"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// Reason says in one word how a run ended. The words are stable: they stand in
// conditions, metrics and logs.
type Reason string

// The reasons of a run that took place.
const (
	// Succeeded: exit code 0, complete stats, no failure, no unreachable host.
	Succeeded Reason = "Succeeded"
	// TaskFailed: a task failed and nothing rescued it.
	TaskFailed Reason = "TaskFailed"
	// ItemFailed: one or more items of a loop failed.
	ItemFailed Reason = "ItemFailed"
	// HandlerFailed: a handler failed.
	HandlerFailed Reason = "HandlerFailed"
	// ConditionFailed: a task's failed_when was true.
	ConditionFailed Reason = "ConditionFailed"
	// ArgumentSpecNotMet: the arguments of a role do not meet its argument specification.
	ArgumentSpecNotMet Reason = "ArgumentSpecNotMet"
	// UndefinedVariable: a task used a variable that is not defined.
	UndefinedVariable Reason = "UndefinedVariable"
	// Unreachable: a host could not be reached.
	Unreachable Reason = "Unreachable"
	// NoHostsMatched: no play found a host.
	NoHostsMatched Reason = "NoHostsMatched"
	// PlaybookInvalid: the content could not be parsed.
	PlaybookInvalid Reason = "PlaybookInvalid"
	// RoleNotFound: a role or playbook that is used does not exist.
	RoleNotFound Reason = "RoleNotFound"
	// VaultError: something could not be decrypted.
	VaultError Reason = "VaultError"
	// BadArguments: ansible-playbook refused its arguments.
	BadArguments Reason = "BadArguments"
	// RunnerDied: ansible-runner or ansible-playbook ended without a result.
	RunnerDied Reason = "RunnerDied"
	// ResultIncomplete: the exit code and the events do not add up to a proof.
	ResultIncomplete Reason = "ResultIncomplete"
	// NoSpace: the file system of the run's files was full, and what is missing
	// or failed is most likely missing or failed for that.
	NoSpace Reason = "NoSpace"
	// PlaybookFailed: ansible-playbook failed without saying more.
	PlaybookFailed Reason = "PlaybookFailed"
)

// Verdict is the judgement on a run that took place.
type Verdict struct {
	// Success is true only when exit code and stats prove it.
	Success bool
	// Reason is the kind of end.
	Reason Reason
	// Message explains a failure: what happened, task, host, file:line. Its first
	// line is the task's own message. It has at most 1 KiB of valid UTF-8 without
	// control characters other than newline, and is usually empty on success.
	Message string
}

// The values of ansible-runner's status for a playbook that ended by itself.
const (
	statusSuccessful = "successful"
	statusFailed     = "failed"
)

// Verdict judges the run. It is a pure function of the Result: success rests on
// the exit code, ansible-runner's status and the stats; events and output only
// explain a failure.
func (r Result) Verdict() Verdict {
	if r.Command != nil {
		return r.Command.verdict(r)
	}
	if r.proved() {
		return Verdict{Success: true, Reason: Succeeded}
	}
	reason, what, place := r.explain()
	return Verdict{Reason: reason, Message: compose(what, r.withShortage(place))}
}

// withShortage puts what the container lacked before the place of a failure: when the memory is used up,
// the kernel mostly kills a module or a command, and the task only says that it was killed.
func (r Result) withShortage(place string) string {
	if r.Shortage == "" {
		return place
	}
	return r.Shortage + "\n" + place
}

// proved tells whether the run is known to have succeeded. A run that processed
// no host is a success if a play ended early or has no tasks, and a failure if no
// play found a host.
func (r Result) proved() bool {
	s := r.Summary
	if r.Command != nil {
		reason, _ := r.Command.judge()
		return !r.Command.exit.Stopped && (reason == Succeeded || reason == NotYet)
	}
	return r.ExitCode == 0 && r.Signal == "" && r.Status == statusSuccessful &&
		s.Complete && s.Failures == 0 && s.Unreachable == 0 && !r.noHosts() && !r.noResults()
}

// noResults tells whether tasks were begun and none has a result on any host:
// ansible-core 2.19 passes over tasks whose worker processes cannot work, for
// instance on a failing disk, and ends with exit code 0. It is false if a meta
// task ended the play first, or for an include, for which ansible-core 2.14 counts
// no host.
func (r Result) noResults() bool {
	s := r.Summary
	return s.Acted && !s.Answered && s.Stats != nil && len(s.Stats.Processed) == 0
}

// noHosts tells whether a play found no host and no other play found one. The stats alone
// do not tell: a play without tasks, or that ends early, adds no host to them.
func (r Result) noHosts() bool {
	s := r.Summary
	return s.NoHostsMatched && !s.HostsMatched && (s.Stats == nil || len(s.Stats.Processed) == 0)
}

// explain says why a run is no success: the reason, the text that explains it,
// and the lines that say where it happened.
func (r Result) explain() (Reason, string, string) {
	culprits := r.Summary.Culprits()
	switch {
	case r.lackedSpace(culprits):
		return r.explainNoSpace()
	case r.died():
		return r.explainDeath()
	case r.ExitCode == 0:
		return r.explainDoubt(culprits)
	case len(culprits) > 0:
		return explainTasks(culprits)
	case r.Summary.Complete && r.Summary.Unreachable > 0:
		return Unreachable, "unreachable: " + hosts(r.Summary.Stats.Dark), "the events that say more are missing"
	case r.Summary.Complete && r.Summary.Failures > 0:
		return PlaybookFailed, "failed on " + hosts(r.Summary.Stats.Failures), "the events that say more are missing"
	default:
		return r.explainOutput()
	}
}

// explainDoubt explains why exit code 0 is not believed.
func (r Result) explainDoubt(culprits []jobevent.Failure) (Reason, string, string) {
	switch {
	case !r.Summary.Complete:
		return ResultIncomplete, "exit code 0 without a complete account of what was done", r.lastTask()
	case r.noHosts():
		return NoHostsMatched, "no hosts matched", "no play of the playbook found a host in the inventory"
	case r.noResults():
		return ResultIncomplete, "exit code 0, and none of the tasks that were begun has a result", r.lastTask()
	}
	s := r.Summary
	text := fmt.Sprintf("exit code 0, status %q and stats (ok=%d failed=%d unreachable=%d) contradict each other",
		r.Status, s.OK, s.Failures, s.Unreachable)
	if len(culprits) == 0 {
		return ResultIncomplete, text, ""
	}
	f := culprits[jobevent.Decisive(culprits)]
	return ResultIncomplete, text, describe(f.Task, f.Host)
}

// died tells whether ansible-runner or ansible-playbook ended without a
// result. ansible-runner exits with 0 when a signal ended ansible-playbook,
// and writes no status when it crashes.
func (r Result) died() bool {
	if r.Command != nil {
		return r.Signal != "" || r.ExitCode < 0
	}
	return r.Signal != "" || r.ExitCode < 0 ||
		r.Status != statusSuccessful && r.Status != statusFailed ||
		r.Status == statusFailed && r.ExitCode == 0 && !r.Summary.Complete
}

func (r Result) explainDeath() (Reason, string, string) {
	place := r.lastTask()
	switch {
	case r.Signal != "":
		return RunnerDied, "ansible-runner was killed by " + r.Signal, place
	case r.Status == statusFailed:
		return RunnerDied, "ansible-playbook was killed by a signal", place
	case r.Status != "":
		return RunnerDied, fmt.Sprintf("ansible-runner ended with exit code %d and status %q", r.ExitCode, r.Status), place
	case badCmdline.MatchString(r.Tail):
		return BadArguments, "the arguments for ansible-playbook cannot be split: " + lastLine(r.Tail), ""
	}
	text := fmt.Sprintf("ansible-runner crashed with exit code %d", r.ExitCode)
	if line := lastLine(r.Tail); line != "" {
		text += ": " + line
	}
	return RunnerDied, text, place
}

// lackedSpace tells whether a run failed because its disk was full, and not for
// another reason that Ansible gives.
func (r Result) lackedSpace(culprits []jobevent.Failure) bool {
	switch {
	case !r.NoSpace:
		return false
	case r.died(), r.ExitCode == 0, fullDisk.MatchString(r.Tail):
		return true
	case len(culprits) > 0:
		return fullDisk.MatchString(culprits[0].Message + culprits[0].Detail)
	}
	_, said := ansibleerror.Last(r.Tail)
	return !said
}

// explainNoSpace explains the end of a run on a full disk.
func (r Result) explainNoSpace() (Reason, string, string) {
	place := r.lastTask()
	if line := lastLine(r.Tail); fullDisk.MatchString(line) {
		place += "\n" + text.Clip(text.OneLine(line), 200)
	}
	return NoSpace, "no space left on the file system of the run's files: its result cannot be relied on", place
}

// lastTask says how far the run got.
func (r Result) lastTask() string {
	if t := r.Summary.Task; t.Name != "" || t.Path != "" {
		return "last " + describe(t, "")
	}
	return "before the first task"
}

// explainTasks explains failures of tasks; the decisive one gives the reason.
func explainTasks(culprits []jobevent.Failure) (Reason, string, string) {
	first := jobevent.Decisive(culprits)
	f := culprits[first]
	// The most important comes first: compose cuts at the end.
	place := []string{describe(f.Task, f.Host)}
	if f.Detail != "" {
		place = append(place, text.Clip(text.OneLine(f.Detail), 200))
	}
	for _, item := range f.Items {
		place = append(place, "item "+text.Clip(text.OneLine(item), 120))
	}
	if more := f.ItemsFailed - len(f.Items); more > 0 && len(f.Items) > 0 {
		place = append(place, fmt.Sprintf("and %d more items", more))
	}
	for i, other := range culprits {
		if i != first {
			place = append(place, "also "+describe(other.Task, other.Host)+": "+text.Clip(text.OneLine(withoutStatus(other.Message)), 120))
		}
	}
	return taskReason(f), withoutStatus(f.Message), strings.Join(place, "\n")
}

func taskReason(f jobevent.Failure) Reason {
	switch {
	case f.Unreachable:
		return Unreachable
	case f.Handler:
		return HandlerFailed
	case f.ItemsFailed > 0:
		return ItemFailed
	case f.FailedWhen:
		return ConditionFailed
	case speaksForItself.MatchString(f.Task.Action):
		return TaskFailed
	case validates.MatchString(f.Task.Action) && strings.HasPrefix(f.Message, "Validation of arguments failed"):
		return ArgumentSpecNotMet
	default:
		return classify(f.Message, TaskFailed)
	}
}

// speaksForItself matches the actions whose message is written by the content's author.
var speaksForItself = regexp.MustCompile(`(^|\.)(fail|assert)$`)

// validates matches the action of the task that Ansible puts before the tasks of a
// role with an argument specification.
var validates = regexp.MustCompile(`(^|\.)validate_argument_spec$`)

// describe names a task, where it ran, and where it is written.
func describe(t jobevent.Task, host string) string {
	var parts []string
	if t.Name != "" || t.Action != "" {
		parts = append(parts, fmt.Sprintf("task %q", text.Clip(text.OneLine(cmp.Or(t.Name, t.Action)), 120)))
	}
	if t.Role != "" {
		parts = append(parts, fmt.Sprintf("role %q", text.Clip(text.OneLine(t.Role), 80)))
	}
	if host != "" {
		parts = append(parts, "host "+text.Clip(text.OneLine(host), 80))
	}
	if t.Path != "" {
		parts = append(parts, "at "+text.OneLine(t.Path))
	}
	return strings.Join(parts, ", ")
}

// hosts lists the names of a stats map.
func hosts(counts map[string]int) string {
	return text.Clip(text.OneLine(strings.Join(slices.Sorted(maps.Keys(counts)), ", ")), 200)
}

// messageLimit bounds a verdict's message; placeLimit is the part of it that is
// kept for the place if the text is long. Both are in bytes.
const (
	messageLimit = 1 << 10
	placeLimit   = 512
)

// compose makes the message of a verdict: the text, followed by the place on
// lines of its own, both shortened as needed.
func compose(what, place string) string {
	what = strings.TrimSpace(plain(what))
	place = strings.TrimSpace(plain(place))
	if place == "" {
		return text.Clip(what, messageLimit)
	}
	place = text.Clip(place, max(placeLimit, messageLimit-len(what)-1))
	return text.Clip(what, messageLimit-len(place)-1) + "\n" + place
}

// plain returns s as printable text with newlines as the only control characters.
func plain(s string) string {
	return strings.ReplaceAll(text.Plain(s), "\t", " ")
}
