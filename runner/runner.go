package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/supervise"
)

// ErrUnavailable is returned when ansible-runner cannot be started: not
// installed, not executable, or of a version that Rolewright does not know.
var ErrUnavailable = errors.New("ansible-runner is unavailable")

// ErrCut is returned for a run that ended with a helper process that was killed:
// its supervisor, the fork server, or the run head. It says nothing of the content.
var ErrCut = errors.New("a process that supervised the run was killed")

// ErrPodEnded is an [ErrCut] of a run in a Pod whose container has ended before the run was over, and not by the cluster.
var ErrPodEnded = fmt.Errorf("%w: the container of its Pod has ended", ErrCut)

// ErrServerCut is an [ErrCut] that all runs of a fork server had at once: the server's
// keeper or its supervising process was killed. No single run has caused it.
var ErrServerCut = fmt.Errorf("%w: its fork server, with all runs of that", ErrCut)

// ErrSurvivors is that of package supervise: processes of the run are left.
var ErrSurvivors = supervise.ErrSurvivors

// ErrUnseen is that of package supervise: it is not known whether processes of the run are left.
var ErrUnseen = supervise.ErrUnseen

// ErrStoodStill is wrapped by the error of a run whose supervisor has stopped it, since
// this process did not say for five seconds that it lives. It says nothing of the content.
var ErrStoodStill = errors.New("the operator process did not run for more than five seconds: raise its CPU limit, or look at its node, if this repeats")

// ErrTooLate is returned for a run that was not started because
// [Request.Until] was over.
var ErrTooLate = errors.New("the operator could not prove in time that it leads, and did not start the run")

// ErrNoRecord is returned by [Runner.Recover] if it is not known how the run
// ended.
var ErrNoRecord = errors.New("the end of the run is not known")

// Content names the Ansible content of a run. Exactly one field is set.
type Content struct {
	// Playbook is the path of a playbook file; absolute.
	Playbook string
	// Role is the path of a role's directory, absolute or relative to the
	// operator's working directory.
	Role string
	// Command is an executable that is started in place of Ansible.
	Command *Command
	// Function is Go code of this process that is called in place of Ansible.
	Function *Function
}

// Request is everything that there is to say about one run.
type Request struct {
	// ID identifies the run and names its artifacts directory. It is a UUID
	// drawn by the caller; data of a custom resource never becomes an ID.
	ID string
	// Dir is the private data directory, created by Run. It must not exist
	// yet; its parent must. Absolute.
	Dir string
	// Content is what is run.
	Content Content
	// ExtraVars is the literal content of env/extravars: JSON, or YAML where
	// a value needs a tag that JSON cannot carry.
	ExtraVars []byte
	// Env is added to the environment of the run through env/envvars.
	Env map[string]string
	// Files are written into the private data directory before the start,
	// with mode 0600; keys are slash-separated local paths (kubeconfig).
	Files map[string][]byte
	// Verbosity is the number of v's given to ansible-playbook; clamped to 0…7.
	Verbosity int
	// Cmdline is the text for env/cmdline (--ansible-args).
	Cmdline string
	// Inventory is a file or directory that replaces the built-in inventory of
	// the one local host (ANSIBLE_INVENTORY); empty for the built-in one.
	Inventory string
	// SkipFacts turns fact gathering off for role runs (ANSIBLE_GATHERING=explicit).
	SkipFacts bool
	// Until is the latest moment at which the run may begin, with a monotonic
	// clock reading; it is asked right before the order to start, which no process
	// carries out later: [ErrTooLate]. nil is no limit.
	Until func() time.Time
	// Hurry is closed where a command that is stopped gets no longer grace than 5 seconds
	// any more; nil for never.
	Hurry <-chan struct{}
	// MaxBytes is how much of the disk the private data directory may take; a run
	// that has written more is stopped ([ErrTooLarge]). 0 is no limit. It is
	// looked at about once a second, so that more may be written.
	MaxBytes int64
	// OnEvent is called with every accepted event, in counter order, from one
	// goroutine; it must not keep the event's memory for long. May be nil.
	OnEvent func(jobevent.Event)
	// Mask hides values in all that leaves the run: events, Summary and Tail.
	// nil hides nothing.
	Mask Masker
	// Call does what a command reports that the operator does for the modules of its
	// collection, by the name of the call; nil does nothing. It is called from one goroutine.
	Call func(ctx context.Context, name string, body []byte) error
	// Redact is called with values that Mask has to hide from then on. It may be nil.
	Redact func(ctx context.Context, value string)
	// Executor is [ExecutorRunner] for a run that starts a new Python although the
	// Runner has fork servers.
	Executor Executor
	// JobRun is set for runs of [ExecutorJob] only.
	JobRun *JobRun

	// reports is what the command says of its run; nil for Ansible.
	reports *Reported
	// told has a value once there are further reports in Dir, and the names of further events; nil where that has to be found out.
	told <-chan string
	// server is the socket of the fork server that has to start the run; empty
	// leaves that to the Runner.
	server string
	// asked is when the fork server was asked for the run that it has forked; it points
	// to nil while it has forked none.
	asked *atomic.Pointer[time.Time]
	// controlDir is where ssh has the sockets of connections; empty leaves that to
	// Ansible.
	controlDir string
}

// Result is what is known about a run that took place.
type Result struct {
	// ID is the request's.
	ID string
	// ExitCode is ansible-runner's exit code; -1 when it died of a signal.
	ExitCode int
	// Signal names the signal that ended ansible-runner; empty if none did.
	Signal string
	// Status is ansible-runner's own word for the end: successful, failed,
	// canceled, timeout, error; empty if it could not write it.
	Status string
	// Summary is what the accepted events add up to.
	Summary jobevent.Summary
	// Tail is the end of the run's output: valid UTF-8 without control
	// characters other than newline and tab, bounded.
	Tail string
	// NoSpace is true if the run is no success and the file system of its private
	// data directory was full while it ran or when it ended.
	NoSpace bool
	// Shortage says what was short in the container while a run was in progress that
	// died; it is empty if nothing was.
	Shortage string
	// Started and Finished enclose the process tree's life.
	Started, Finished time.Time
	// Memory is the most that the run's processes were seen to take together, in
	// bytes; 0 if the run ended before anybody looked.
	Memory int64
	// CPU is what ansible-runner and its descendants have taken; 0 where that is not known.
	CPU time.Duration
	// Command is what a command or function has said of its run; nil for a run of Ansible.
	Command *Reported
	// Notes are what a fork server has noted of the run; see Executor and Unsuited.
	Notes string

	// apart is true for a run that was made in a Pod of its own.
	fromPod bool
}

// Executor is how a run is made, in the words of users (package watches).
type Executor string

// The ways.
const (
	// ExecutorWarm: forked from an interpreter that has imported Ansible already.
	ExecutorWarm Executor = "warm"
	// ExecutorRunner: ansible-runner is started for each run.
	ExecutorRunner Executor = "runner"
	// ExecutorCommand: the run is of a command, not of Ansible.
	ExecutorCommand Executor = "command"
	// ExecutorHandler: the run is of Go code of the operator's own process.
	ExecutorHandler Executor = "handler"
)

// What a fork server notes of runs, a line each; see warm/python/preload.py.
const (
	playbookForked   = "playbook forked"
	playbookExecuted = "playbook executed: "
	modulesCounted   = "modules "
	tasksCounted     = "tasks "
)

// Executor is how the run was made: [ExecutorWarm] if the playbook was forked
// from an interpreter that had imported Ansible already, [ExecutorJob] in a Pod of its own,
// [ExecutorCommand] or [ExecutorHandler] if there was no Ansible, else [ExecutorRunner].
func (r Result) Executor() Executor {
	switch {
	case r.fromPod:
		return ExecutorJob
	case r.noted(functionCalled):
		return ExecutorHandler
	case r.Command != nil:
		return ExecutorCommand
	}
	if r.noted(playbookForked) {
		return ExecutorWarm
	}
	return ExecutorRunner
}

// Unsuited is why the playbook was not forked although there was a server: for
// instance the variable in which its environment differs. It is empty otherwise.
func (r Result) Unsuited() string {
	_, why, _ := strings.Cut(r.Notes, playbookExecuted)
	why, _, _ = strings.Cut(why, "\n")
	return why
}

// Ways of modules: it was forked, or it was not for no reason that has a name.
const (
	modulesForked = "forked"
	modulesOther  = "other"
)

// moduleWays are the ways of modules, as warm/python/runtrace.py has them: forked, or
// why a new Python has executed them.
func moduleWays() []string {
	return []string{modulesForked, "async", "become", "connection", "pipelining", "interpreter", "environment", "libraries", modulesOther}
}

// Modules counts the modules of a run whose playbook was forked: those that were
// "forked" too, and others by the reason why a new Python has executed them. It is
// empty for other runs.
func (r Result) Modules() map[string]int64 { return r.counted(modulesCounted, moduleWays()) }

// taskWays are why tasks have a worker of their own, as warm/python/runtrace.py has it.
func taskWays() []string {
	return []string{"none", "action", "option", "plugin", "template", "value", "message", "failed", "size", "other"}
}

// Tasks counts the tasks of a run whose playbook was forked, by why they had a worker of
// their own: "none" had none. It is empty for other runs, and for lines of Ansible with
// which all tasks have one.
func (r Result) Tasks() map[string]int64 { return r.counted(tasksCounted, taskWays()) }

// counted are the counts of one of the ways each that are among the notes, in lines that
// begin with what is counted.
func (r Result) counted(what string, ways []string) map[string]int64 {
	counts := map[string]int64{}
	for line := range strings.Lines(r.Notes) {
		way, number, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), what), ": ")
		n, err := strconv.ParseUint(number, 10, 32)
		if err == nil && n > 0 && strings.HasPrefix(line, what) && slices.Contains(ways, way) {
			counts[way] = int64(n)
		}
	}
	return counts
}

// noted tells whether there is such a line among the notes.
func (r Result) noted(line string) bool {
	return slices.Contains(strings.Split(r.Notes, "\n"), line)
}
