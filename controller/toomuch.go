package controller

import (
	"errors"
	"fmt"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner"
)

// tookTooMuch fills in the record of a run that was stopped for its memory or number of processes.
func tookTooMuch(s *scope, run *status.Run, said string) {
	run.Result, run.Reason = status.Failed, status.ReasonOutOfMemory
	remedy := "raise the container's memory limit, lower --max-concurrent-runs, or make the role use less memory"
	if s.result.Executor() == runner.ExecutorJob {
		remedy = "raise the memory limit in the watch's job, or make the role use less memory"
	}
	switch {
	case errors.Is(s.err, runner.ErrMemoryShared):
		run.Reason = status.ReasonNoMemory
		remedy = "raise the container's memory limit, or lower --max-concurrent-runs"
	case errors.Is(s.err, runner.ErrProcesses):
		run.Reason = status.ReasonTooManyProcesses
		remedy = "find out what the task keeps starting; if the role needs that many processes, raise the container's process limit, " +
			"or its CPU limit if it has no process limit"
	}
	run.Message = short(stoppedAt(s, said) + "; " + remedy)
	run.Counts = countsOf(s.result.Summary)
	run.FailedTask = taskAt(s)
}

// noSpace returns the message for a run that failed because a disk was full.
func (r *reconciler) noSpace(s *scope, message string) string {
	const room = 700 // bytes for the message, so that what to do is not cut off
	remedy := fmt.Sprintf("free space on the file system of --runner-root %s, or lower --artifacts-max-bytes; old runs, if any, have been removed already", r.opts.RunnerRoot)
	if s.result.Executor() == runner.ExecutorJob {
		remedy = "free space on the node of its Pod, or request more ephemeral-storage in the watch's job"
	}
	return short(text.Clip(message, room) + "\n" + remedy)
}
