package runner

import (
	"cmp"
	"fmt"

	"github.com/rolewright/rolewright/runner/report"
)

// The reasons of runs of commands.
const (
	// CommandFailed: the command says so, by its exit code or its result.
	CommandFailed Reason = "CommandFailed"
	// CommandNotRunnable: the command, or what it starts, is missing or not executable.
	CommandNotRunnable Reason = "CommandNotRunnable"
	// InputRefused: the command says that only other inputs can help.
	InputRefused Reason = "InputRefused"
	// NotYet: the command says that the object is not as wanted yet, and that it has not
	// failed. The verdict is a success.
	NotYet Reason = "NotYet"
	// ProtocolError: the reports of the command cannot be relied on.
	ProtocolError Reason = "ProtocolError"
	// ContradictoryResult: the command has reported ok, and its exit code says another thing.
	ContradictoryResult Reason = "ContradictoryResult"
	// LeftProcesses: the command has ended before processes that it had started.
	LeftProcesses Reason = "LeftProcesses"
)

// The exit codes of commands with a special meaning; see sysexits.h and the manual of bash.
const (
	exitNotYet       = 75
	exitInput        = 78
	exitNotRunnable  = 126
	exitNotFound     = 127
	codeNotAvailable = -1
)

// judge returns how the command ended, and a message that explains it.
func (c *Reported) judge() (Reason, string) {
	code := c.exit.Code
	said := cmp.Or(c.Message, c.last)
	switch {
	case c.Problem != "":
		return ProtocolError, "what the command reports cannot be relied on: " + c.Problem
	case c.exit.Signal != "" || code <= codeNotAvailable:
		return RunnerDied, "the command was killed by " + cmp.Or(c.exit.Signal, "a signal")
	case code != 0 && c.Verdict == report.OK:
		return ContradictoryResult, fmt.Sprintf("the command has reported the result ok and ended with exit code %d", code)
	case code == exitInput:
		return InputRefused, cmp.Or(said, "the command says, by its exit code 78, that the object has to be changed")
	case code == exitNotRunnable, code == exitNotFound:
		return CommandNotRunnable, cmp.Or(said, fmt.Sprintf("exit code %d: a program is missing or not executable", code))
	case code != 0 && code != exitNotYet:
		return CommandFailed, cmp.Or(said, fmt.Sprintf("the command ended with exit code %d", code))
	case c.Verdict == report.Failed:
		return CommandFailed, cmp.Or(said, "the command has reported the result failed")
	case c.exit.Killed > 0:
		left := "a child process"
		if c.exit.Killed > 1 {
			left = fmt.Sprintf("%d child processes", c.exit.Killed)
		}
		return LeftProcesses, "the command ended while " + left + " still ran, and the operator killed what was left: wait for child processes before the command ends"
	case code == 0 && c.Verdict == "" && c.requireResult:
		return CommandFailed, "the command ended without a result, which the watch requires (requireResult)"
	case code == exitNotYet, c.Verdict == report.Waiting:
		return NotYet, cmp.Or(said, "the command says that the object is not as wanted yet")
	}
	return Succeeded, ""
}

// verdict judges the run of a command.
func (c *Reported) verdict(r Result) Verdict {
	reason, message := c.judge()
	switch {
	case reason == Succeeded:
		return Verdict{Success: true, Reason: reason}
	case reason == NotYet:
		return Verdict{Success: true, Reason: reason, Message: compose(message, "")}
	case r.NoSpace && (reason == ProtocolError || fullDisk.MatchString(r.Tail)):
		reason, what, place := r.explainNoSpace()
		return Verdict{Reason: reason, Message: compose(what, place)}
	}
	place := fmt.Sprintf("the command ended with exit code %d", r.ExitCode)
	if r.Signal != "" || c.function {
		place = ""
	}
	if task := r.Summary.Task; task.Name != "" && task.Name != c.name {
		place = describe(task, "") + "\n" + place
	}
	return Verdict{Reason: reason, Message: compose(message, r.withShortage(place))}
}
