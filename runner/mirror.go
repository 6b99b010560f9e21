package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/supervise"
)

// ExecutorJob: the run is made in a Pod of its own. A [Runner] refuses such requests. Another Runner, in the
// Pod, makes the run with [ExecutorRunner], or as a command, and its artifacts are sent to the operator.
const ExecutorJob Executor = "job"

// ErrCluster is wrapped by the error of a run in a Pod that the cluster has ended or hindered.
// The content is not to blame.
var ErrCluster = errors.New("the cluster has ended the run")

// ErrUnanswered is an [ErrCluster] of a run that has not succeeded, and some of whose requests to the API server had no
// answer, or whose connections were cut. The result that is returned with it is whole.
var ErrUnanswered = fmt.Errorf("%w: the operator could not be reached", ErrCluster)

// ErrPod is wrapped by the error of a run whose Pod was made and could not begin it: its image lacks
// something, for instance.
var ErrPod = errors.New("the Pod could not start the run")

// ErrHandedOver is returned for a run that goes on, and that a later process adopts.
var ErrHandedOver = errors.New("the run continues without this process")

// ErrNotFollowed is wrapped by the error of a run that goes on but could not be adopted: this process cannot follow it now.
var ErrNotFollowed = errors.New("the run continues, but cannot be followed now")

// JobRun is what a run as a Job needs in addition to the rest of its [Request].
type JobRun struct {
	// Template is the Pod template of the watch as JSON; nil for none.
	Template []byte
	// Subject is the UID of the object; an object has one run at a time.
	Subject string
	// Timeout limits both how long the run may wait to begin and how long it may take then; 0 is no limit.
	Timeout time.Duration
	// Token is the run's token for the API proxy; Server and CA are those of the run's kubeconfig.
	Token, Server string
	CA            []byte
	// Ticket is kept with the run for a process that adopts it; Adopted is true if this
	// process adopts the run.
	Ticket  []byte
	Adopted bool
	// GoesOn reports whether the run goes on although its context has ended with cause.
	GoesOn func(cause error) bool
	// Replaced is closed when this process begins no more runs of the object, and another process waits for those in
	// progress to end; nil means never.
	Replaced <-chan struct{}
	// OnPhase is called with what the run waits for, and with an empty text once the run has begun.
	OnPhase func(text string)
	// OnBegun is called when the run has begun, or is found to have begun, with the time since then.
	OnBegun func(ago time.Duration)
	// MakeRoom frees space for the run's artifacts when the disk is full; nil if nothing can be freed.
	MakeRoom func() bool
}

// OutcomeFile is the file of a private data directory with the outcome of a run that was made
// elsewhere. It exists once nothing is left of the run and all of its artifacts have arrived.
const OutcomeFile = "job.json"

// outcomeLimit is more bytes than any outcome has.
const outcomeLimit = 64 << 10

// Outcome is what [Runner.Run] returned elsewhere, except for what the artifacts contain.
type Outcome struct {
	ExitCode          int
	Signal            string
	NoSpace           bool
	Shortage          string
	Started, Finished time.Time
	Memory            int64
	CPU               time.Duration
	// For a command, Problem says why its reports cannot be relied on, Killed how many processes
	// it left behind, and Stopped whether it was stopped.
	Problem string
	Killed  int
	Stopped bool
	// Kinds are the names of the errors that Error wraps.
	Kinds []string
	Error string
	// Cut counts the run's requests to the API server that got no answer because the
	// operator could not be reached.
	Cut int
}

// The names of the errors of a run that was stopped, or whose process stood still, in its Pod.
const kindStopped, kindStoodStill = "stopped", "stoodStill"

// errorKinds maps the names that errors of Run have in an [Outcome] to these errors.
func errorKinds() map[string]error {
	return map[string]error{
		"unavailable": ErrUnavailable, "notRunnable": ErrNotRunnable, "cut": ErrCut, kindStoodStill: ErrStoodStill, "noSpace": ErrNoSpace, "tooLarge": ErrTooLarge,
		"memory": ErrMemory, "processes": ErrProcesses, "survivors": ErrSurvivors, "unseen": ErrUnseen, kindStopped: context.Canceled,
	}
}

// OutcomeOf returns the outcome for what Run has returned; cut is [Outcome.Cut].
func OutcomeOf(res Result, err error, cut int) Outcome {
	o := Outcome{
		ExitCode: res.ExitCode, Signal: res.Signal, NoSpace: res.NoSpace, Shortage: res.Shortage, Started: res.Started,
		Finished: res.Finished, Memory: res.Memory, CPU: res.CPU, Cut: cut,
	}
	if c := res.Command; c != nil {
		o.Problem, o.Killed, o.Stopped = c.Problem, c.exit.Killed, c.exit.Stopped
	}
	if err != nil {
		o.Error = err.Error()
		for name, kind := range errorKinds() {
			if errors.Is(err, kind) {
				o.Kinds = append(o.Kinds, name)
			}
		}
	}
	return o
}

// farError is an error of a run that was made elsewhere.
type farError struct {
	text  string
	kinds []error
}

func (e *farError) Error() string   { return e.text }
func (e *farError) Unwrap() []error { return e.kinds }

// err returns the error that the outcome contains; nil if there is none.
func (o Outcome) err() error {
	if o.Error == "" {
		return nil
	}
	e, known := &farError{text: o.Error}, errorKinds()
	for _, name := range o.Kinds {
		if kind := known[name]; name == kindStopped || name == kindStoodStill { // not this process, but the Pod or its node was stopped or stood still
			e.kinds = append(e.kinds, ErrCluster)
		} else if kind != nil {
			e.kinds = append(e.kinds, kind)
		}
	}
	return e
}

// CreateMirror creates the private data directory for the artifacts of a run that is made
// elsewhere, and writes the files of req into it. An existing directory is completed.
func CreateMirror(req Request) error {
	if !rundir.IsID(req.ID) || !filepath.IsAbs(req.Dir) {
		return fmt.Errorf("create private data dir: %.40q is not the ID of a run, or %q is not an absolute path", req.ID, req.Dir)
	}
	if err := os.MkdirAll(filepath.Join(artifactsDir(req), "job_events"), dirMode); err != nil {
		return mirrorError(err)
	}
	root, err := plainfile.OpenDir(req.Dir)
	if err != nil {
		return mirrorError(err)
	}
	defer root.Close()
	for name, data := range req.Files {
		if err := plainfile.ReplaceIn(root, name, data); err != nil {
			return mirrorError(err)
		}
	}
	if req.Content.Command == nil {
		return nil
	}
	reports, err := root.OpenFile(path.Join("artifacts", req.ID, ReportsFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
	if err == nil {
		err = reports.Close()
	}
	if err != nil {
		return mirrorError(err)
	}
	return nil
}

func mirrorError(err error) error {
	if IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("create private data dir: %w", err)
}

// Mirrored follows the events of a run, or the reports of a command, whose artifacts this process puts into req.Dir,
// until done is closed, and returns what Run would have returned. told announces new artifacts. If there is no outcome,
// the error wraps [ErrCluster]. When ctx has ended, the requests in a command's reports are no longer carried out.
func Mirrored(ctx context.Context, req Request, told <-chan string, done <-chan struct{}) (Result, error) {
	res := Result{ID: req.ID, ExitCode: -1, fromPod: true}
	req.told = told
	var o Outcome
	var err error
	if req.reports = req.Content.reported(); req.reports == nil {
		ctx = context.WithoutCancel(ctx)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-done
		if o, err = readOutcome(req.Dir); req.reports != nil {
			req.reports.endElsewhere(o, err)
		}
	}()
	summary := follow(ctx, req, ended)
	<-ended
	if err != nil {
		res.Summary = summary
		_, res.Tail = readArtifacts(req)
		return res, fmt.Errorf("%w: %w", ErrCluster, err)
	}
	res.Started, res.Finished, res.NoSpace, res.Shortage = o.Started, o.Finished, o.NoSpace, o.Shortage
	res.fill(req, supervise.Exit{Code: o.ExitCode, Signal: o.Signal, Memory: o.Memory, CPU: o.CPU}, summary)
	_ = linkLatest(req.Dir, req.ID) // a convenience, as in Run
	err = o.err()
	if err == nil && o.Cut > 0 && !res.proved() {
		// The role is not to blame for a failure that follows from that.
		err = fmt.Errorf("%w: %d of its requests had no answer, or were cut", ErrUnanswered, o.Cut)
	}
	return res, err
}

// endElsewhere notes how a command ended that was run elsewhere; err is not nil if that is not known.
func (c *Reported) endElsewhere(o Outcome, err error) {
	c.exit = supervise.Exit{Code: o.ExitCode, Signal: o.Signal, Killed: o.Killed, Stopped: o.Stopped}
	if c.Problem = text.Clip(plain(o.Problem), messageLimit); err != nil || o.Started.IsZero() {
		c.exit.Stopped = true // or it was never started
	}
}

func readOutcome(dir string) (o Outcome, err error) {
	data, err := plainfile.Read(filepath.Join(dir, OutcomeFile), outcomeLimit)
	if err != nil {
		return o, fmt.Errorf("its outcome is not known: %w", err)
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("its outcome cannot be read: %w", err)
	}
	o.Memory, o.CPU, o.Cut = max(o.Memory, 0), max(o.CPU, 0), max(o.Cut, 0)
	return o, nil
}
