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
// installed, not executable, or of a version that Rolewright does not support.
var ErrUnavailable = errors.New("ansible-runner is unavailable")

// ErrCut is returned for a run that ended because a helper process was killed: its
// supervisor, the fork server, or the run head. The content is not to blame.
var ErrCut = errors.New("a process that supervised the run was killed")

// ErrPodEnded is an [ErrCut] of a run in a Pod whose container ended before the run, and was not ended by the cluster.
var ErrPodEnded = fmt.Errorf("%w: the container of its Pod has ended", ErrCut)

// ErrServerCut is an [ErrCut] that hit all runs of a fork server at once: the server's
// keeper or its supervisor was killed. No single run is to blame.
var ErrServerCut = fmt.Errorf("%w: its fork server, together with all runs of that server", ErrCut)

// ErrSurvivors is ErrSurvivors of package supervise: processes of the run are left.
var ErrSurvivors = supervise.ErrSurvivors

// ErrUnseen is ErrUnseen of package supervise: it is not known whether processes of the run are left.
var ErrUnseen = supervise.ErrUnseen

// ErrStoodStill is wrapped by the error of a run that its supervisor has stopped because
// this process gave no sign of life for five seconds. The content is not to blame.
var ErrStoodStill = errors.New("the operator process did not run for more than five seconds: raise its CPU limit, or look at its node, if this repeats")

// ErrTooLate is returned for a run that was not started because the time in
// [Request.Until] had passed.
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

// Request describes one run.
type Request struct {
	// ID identifies the run and names its artifacts directory. It is a UUID that
	// the caller has generated; data of a custom resource never becomes an ID.
	ID string
	// Dir is the private data directory, created by Run. It must not exist
	// yet; its parent must. Absolute.
	Dir string
	// Content is what is run.
	Content Content
	// ExtraVars is the literal content of env/extravars: JSON, or YAML if a value
	// needs a tag, which JSON cannot express.
	ExtraVars []byte
	// Env is added to the environment of the run through env/envvars.
	Env map[string]string
	// Files are written into the private data directory before the start, with
	// mode 0600, or 0400 in SecretsDir; keys are slash-separated local paths
	// (kubeconfig).
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
	// Until returns the latest moment at which the run may begin, with a monotonic
	// clock reading. It is called right before the order to start, and no process
	// carries out the order after that moment: [ErrTooLate]. nil is no limit.
	Until func() time.Time
	// Hurry is closed when a command that is stopped gets no more than 5 seconds of
	// grace; nil for never.
	Hurry <-chan struct{}
	// MaxBytes limits the disk space of the private data directory; a run that has
	// written more is stopped ([ErrTooLarge]). 0 is no limit. The check is about once
	// a second, so a run can exceed the limit for a moment.
	MaxBytes int64
	// OnEvent is called with every accepted event, in counter order, from one
	// goroutine; it must not keep the event's memory for long. May be nil.
	OnEvent func(jobevent.Event)
	// Mask hides values in events, Summary and Tail. nil hides nothing.
	Mask Masker
	// Call does what a command's report asks for and the operator also does for the modules
	// of its collection; name is the name of the call. nil does nothing. It is called from one
	// goroutine.
	Call func(ctx context.Context, name string, body []byte) error
	// Redact is called with values that Mask has to hide from then on. It may be nil.
	Redact func(ctx context.Context, value string)
	// Executor is [ExecutorRunner] for a run that starts a new Python even if the
	// Runner has fork servers.
	Executor Executor
	// JobRun is set for runs of [ExecutorJob] only.
	JobRun *JobRun

	// reports is what the command has reported; nil for Ansible.
	reports *Reported
	// told announces new reports in Dir, or the names of new event files; nil if Dir has to be watched instead.
	told <-chan string
	// server is the socket of the fork server that has to start the run; if empty,
	// the Runner chooses.
	server string
	// asked holds when a fork server was asked to fork the run; it holds nil if none
	// was, or if the fork failed.
	asked *atomic.Pointer[time.Time]
	// controlDir is the directory for ssh's control sockets; empty leaves it to Ansible.
	controlDir string
}

// Result is what is known about a run that took place.
type Result struct {
	// ID is the ID of the request.
	ID string
	// ExitCode is ansible-runner's exit code; -1 if a signal killed it.
	ExitCode int
	// Signal names the signal that ended ansible-runner; empty if none did.
	Signal string
	// Status is ansible-runner's own status of the run: successful, failed,
	// canceled, timeout, error; empty if it could not write one.
	Status string
	// Summary is what the accepted events add up to.
	Summary jobevent.Summary
	// Tail is the end of the run's output: valid UTF-8 without control
	// characters other than newline and tab, bounded.
	Tail string
	// NoSpace is true if the run did not succeed and the file system of its private
	// data directory was full while it ran or when it ended.
	NoSpace bool
	// Shortage says, for a run that did not succeed, what the container lacked meanwhile;
	// empty if it lacked nothing.
	Shortage string
	// Started and Finished enclose the life of the process tree.
	Started, Finished time.Time
	// Memory is the highest measured memory of all the run's processes together, in
	// bytes; 0 if the run ended before the first measurement.
	Memory int64
	// CPU is the CPU time of ansible-runner and its descendants; 0 if it is not known.
	CPU time.Duration
	// Command is what a command or function has reported; nil for a run of Ansible.
	Command *Reported
	// Notes are a fork server's notes about the run; see Executor and Unsuited.
	Notes string

	// fromPod is true for a run that was made in a Pod of its own.
	fromPod bool
}

// Executor is the way in which a run is made, in the words of users (package watches).
type Executor string

// The executors; see also [ExecutorJob].
const (
	// ExecutorWarm: the run is forked from a process that has imported Ansible already.
	ExecutorWarm Executor = "warm"
	// ExecutorRunner: ansible-runner is started for the run.
	ExecutorRunner Executor = "runner"
	// ExecutorCommand: a command makes the run, not Ansible.
	ExecutorCommand Executor = "command"
	// ExecutorHandler: Go code in the operator's own process makes the run.
	ExecutorHandler Executor = "handler"
)

// The lines, or beginnings of lines, that a fork server notes about runs; see warm/python/preload.py.
const (
	playbookForked   = "playbook forked"
	playbookExecuted = "playbook executed: "
	modulesCounted   = "modules "
	tasksCounted     = "tasks "
)

// Executor returns how the run was made: [ExecutorJob] in a Pod of its own,
// [ExecutorCommand] or [ExecutorHandler] without Ansible, [ExecutorWarm] if the playbook
// was forked from a process that had imported Ansible already, else [ExecutorRunner].
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

// Unsuited is why a fork server executed the playbook instead of forking it: for
// instance the variable in which its environment differs. It is empty otherwise.
func (r Result) Unsuited() string {
	_, why, _ := strings.Cut(r.Notes, playbookExecuted)
	why, _, _ = strings.Cut(why, "\n")
	return why
}

// Ways of modules: forked, or executed for a reason that has no name.
const (
	modulesForked = "forked"
	modulesOther  = "other"
)

// moduleWays are the ways of modules in warm/python/runtrace.py: forked, or the reason
// why a new Python executed them.
func moduleWays() []string {
	return []string{modulesForked, "async", "become", "connection", "pipelining", "interpreter", "environment", "libraries", modulesOther}
}

// Modules counts the modules of a run whose playbook was forked by way: "forked", or
// the reason why a new Python executed them. It is empty for other runs.
func (r Result) Modules() map[string]int64 { return r.counted(modulesCounted, moduleWays()) }

// taskWays are the reasons in warm/python/runtrace.py why tasks have a worker of their own.
func taskWays() []string {
	return []string{"none", "action", "option", "plugin", "template", "value", "message", "failed", "size", "other"}
}

// Tasks counts the tasks of a run whose playbook was forked, by the reason why they had a
// worker of their own; "none" counts those that had none. It is empty for other runs, and
// for lines of Ansible with which all tasks have a worker.
func (r Result) Tasks() map[string]int64 { return r.counted(tasksCounted, taskWays()) }

// counted returns the counts by way in the notes, in lines that begin with what.
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

// noted tells whether the notes contain the line.
func (r Result) noted(line string) bool {
	return slices.Contains(strings.Split(r.Notes, "\n"), line)
}
