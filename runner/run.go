package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/collection"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
)

// Options configure a [Runner]. The zero value runs the ansible-runner that is
// found in PATH, with the operator's environment.
type Options struct {
	// Path is the ansible-runner executable; a name without a slash is looked
	// up in PATH. Empty means ansible-runner.
	Path string
	// Environ is the environment that runs inherit, except for variables that
	// concern only the operator; nil means the environment of this process.
	Environ []string
	// Warm has the fork servers that start the runs, unless no server is ready or
	// the request says otherwise. Their environment must be Environ. nil means that
	// every run starts a new Python.
	Warm *warm.Pool
	// WarmContent is Content of [warm.Options], for [NewPool].
	WarmContent []string
	// WarmIdle is Idle of [warm.Options], for [NewPool].
	WarmIdle time.Duration
	// ForkTimeout is how long a fork server may take to fork a run; 0 means
	// 15 seconds. A fork that comes late halves the number of concurrent runs, and
	// the run is forked when it is its turn. If it was the only run, the server is
	// replaced.
	ForkTimeout time.Duration
	// OnLimit is called with the new limit of concurrent runs when forks come late,
	// and with 0 when there is no limit any more. Calls do not overlap. It must not
	// call the Runner. It may be nil.
	OnLimit func(int)
	// TrustLine and Trace are those of [warm.Options], for [NewPool].
	TrustLine bool
	Trace     string
	// Temp is the directory for the temporary files of runs; nil leaves the
	// directory to TMPDIR in Environ.
	Temp *Temp
	// Collections has the collections that runs find in addition to the user's; nil has none.
	Collections *collection.Dir
}

// Runner executes runs. It is safe for concurrent use.
type Runner struct {
	opts Options
	// grace is the grace period of runs; 0 except in tests.
	grace time.Duration
	// patience is [fullPatience] except in tests.
	patience time.Duration

	supervisor *supervise.Launcher
	throttle   *throttle
	pressure   *pressure
}

// New returns a Runner. It does not check that the programs are installed; see [Runner.Check].
func New(opts Options) *Runner {
	opts = opts.complete()
	return &Runner{
		opts: opts, patience: fullPatience,
		supervisor: supervise.NewLauncher(), throttle: newThrottle(opts.OnLimit), pressure: newPressure(),
	}
}

// Close ends what the Runner keeps between runs. It is called when no run is in
// progress and none will begin.
func (r *Runner) Close() { r.supervisor.Close() }

// installIt is the advice for users without ansible-runner.
const installIt = "install it, make it executable, or name another one with --ansible-runner"

// endRecord is the file of the private data directory that says how the
// process tree ended. It exists once nothing is left of the run.
const endRecord = "end.json"

// tailLimit bounds each of the two parts of [Result.Tail]. ansible-playbook
// answers bad arguments with one line of error message and 7 KiB of help.
const tailLimit = 16 << 10

// Run executes the request and blocks until its whole process tree is gone.
// If ctx ends before the run does, the run gets SIGTERM, a grace period and
// SIGKILL, and the error wraps [context.Cause]. If the run ended by itself
// before the stop took effect, there is no error: what it achieved is known.
//
// Other errors mean that
//   - there was no run ([ErrUnavailable], a private data directory that could not
//     be created). Then the directory does not exist, except if ansible-runner was
//     started and Ansible said that it is too old;
//   - a helper process of the run was killed ([ErrCut]);
//   - the run was stopped because this process stood still ([ErrStoodStill]);
//   - processes of the run survived ([supervise.ErrSurvivors]), or may have
//     ([supervise.ErrUnseen]).
func (r *Runner) Run(ctx context.Context, req Request) (Result, error) {
	res := Result{ID: req.ID, ExitCode: -1}
	req, err := req.normalise()
	if err != nil {
		return res, fmt.Errorf("run request: %w", err)
	}
	if req.Executor == ExecutorJob {
		return res, fmt.Errorf("run %s not started: %w: this operator makes no Jobs, or did not when it started: start it again", req.ID, ErrUnavailable)
	}
	if ctx.Err() != nil {
		return res, fmt.Errorf("run %s not started: %w", req.ID, context.Cause(ctx))
	}
	executable, err := r.provide(req)
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if req.reports != nil {
		req.reports.stop = cancel
	}
	res.Started = time.Now()
	controlDir, ended := r.opts.Temp.begin()
	req.controlDir = controlDir
	g := r.watch(req, cancel)
	relieve := r.pressure.begin(req.ID, cancel)
	before := r.pressure.shortage()
	var exit supervise.Exit
	var summary jobevent.Summary
	if req.Content.Function != nil {
		exit, summary, err = r.call(ctx, req)
	} else {
		exit, summary, err = r.supervise(ctx, executable, req)
	}
	relieve()
	g.stop()
	if !errors.Is(err, ErrSurvivors) && !errors.Is(err, ErrUnseen) {
		ended()
	}
	res.Finished = time.Now()
	if errors.Is(err, supervise.ErrNotStarted) {
		return Result{ID: req.ID, ExitCode: -1}, errors.Join(notStarted(ctx, req, err), os.RemoveAll(req.Dir))
	}
	res.fill(req, exit, summary)
	res.NoSpace = !res.proved() && (g.noSpace || full(req.Dir) || exhausted(req.Dir))
	if exit.Cut && !errors.Is(err, ErrCut) && !(req.reports != nil && req.reports.Problem != "" && gone(req.Dir)) { // the record is gone with the directory
		err = errors.Join(ErrCut, err)
	}
	cause := context.Cause(ctx)
	if !res.proved() {
		res.Shortage = r.pressure.shortage().since(before)
	}
	if exit.Stopped && !res.ended() || !res.proved() && (errors.Is(cause, ErrMemory) || errors.Is(cause, ErrProcesses)) {
		err = errors.Join(fmt.Errorf("run %s cut short: %w", req.ID, cmp.Or(cause, ErrStoodStill)), err)
	}
	err = cmp.Or(err, res.tooOld())
	// The link is a convenience for people: without it, the result is no error.
	_ = linkLatest(req.Dir, req.ID)
	return res, err
}

// provide returns the program that the run starts, after it has made the run's private data directory.
func (r *Runner) provide(req Request) (executable string, err error) {
	if executable, err = r.executable(req); err != nil {
		return "", err
	}
	err = r.opts.Temp.ensure()
	if err == nil && req.reports == nil {
		err = r.opts.Collections.Ensure()
	}
	if err != nil {
		return "", fmt.Errorf("run %s not started: %w", req.ID, err)
	}
	if err := createPrivateDir(req, r.opts.Environ); IsNoSpace(err) {
		return "", fmt.Errorf("%w: %w", ErrNoSpace, err)
	} else if err != nil {
		return "", err
	}
	return executable, nil
}

// notStarted says why there was no run.
func notStarted(ctx context.Context, req Request, err error) error {
	switch {
	case errors.Is(err, ErrNoTurn):
		return fmt.Errorf("run %s not started: %w: %w", req.ID, ErrNoTurn, context.Cause(ctx))
	case ctx.Err() != nil:
		return fmt.Errorf("run %s not started: %w", req.ID, context.Cause(ctx))
	case req.Until != nil && !time.Now().Before(req.Until()):
		return fmt.Errorf("%w: %w", ErrTooLate, err)
	case IsNoSpace(err) || exhausted(req.Dir):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case req.reports != nil:
		return fmt.Errorf("%w: %w", ErrNotRunnable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// Recover returns what Run would have returned for a run whose operator process
// ended first. It reads the private data directory and waits for nothing.
// [ErrNoRecord] means that the end is not known; then the rest of the Result must
// not be relied on either. requireResult is RequireResult of the run's [Command], mask is as
// [Request.Mask].
func (r *Runner) Recover(ctx context.Context, dir, id string, requireResult bool, mask Masker) (Result, error) {
	req := Request{ID: id, Dir: dir, Mask: mask}
	res := Result{ID: id, ExitCode: -1}
	exit, err := supervise.ReadExit(filepath.Join(dir, endRecord))
	if err != nil {
		return res, fmt.Errorf("%w: %w", ErrNoRecord, err)
	}
	req.reports = reportedIn(req, exit)
	if req.reports != nil {
		req.reports.requireResult = requireResult && !req.reports.function
	}
	done := make(chan struct{})
	close(done)
	res.Started, res.Finished = exit.Started, exit.Finished
	// All events are read even if ctx has ended: otherwise a run that has succeeded would look incomplete.
	res.fill(req, exit, follow(context.WithoutCancel(ctx), req, done))
	if exit.Cut || exit.Stopped && !res.ended() {
		return res, fmt.Errorf("%w: it was stopped", ErrNoRecord)
	}
	if req.reports != nil && req.reports.unanswered {
		return res, fmt.Errorf("%w: the outcome of its reports is unknown", ErrNoRecord)
	}
	if exit.Signal == "SIGKILL" && !res.ended() {
		// [Runner.Reap] may have killed it before the supervisor noticed that the operator was gone.
		return res, fmt.Errorf("%w: it was killed", ErrNoRecord)
	}
	return res, nil
}

// Reap kills what is left on this machine of a run that another process has
// begun, and returns when nothing is left.
func (r *Runner) Reap(id string) error {
	if !rundir.IsID(id) {
		return nil // no run of ours
	}
	if err := r.supervisor.Reap(supervise.Command{Cookie: cookieName + "=" + id, Run: id}); err != nil {
		return fmt.Errorf("end what is left of run %s: %w", id, err)
	}
	return nil
}

// supervise runs ansible-runner, or the command of the run, and follows its events.
func (r *Runner) supervise(ctx context.Context, executable string, req Request) (supervise.Exit, jobevent.Summary, error) {
	// All events are read even if ctx has ended: what was done until then is part
	// of the result.
	done := make(chan struct{})
	summaries := make(chan jobevent.Summary, 1)
	req.asked = &atomic.Pointer[time.Time]{}
	begun := sync.OnceFunc(func() {
		if asked := req.asked.Load(); asked != nil {
			r.throttle.begun(*asked)
		}
	})
	observe := req.OnEvent
	req.OnEvent = func(e jobevent.Event) {
		begun()
		if observe != nil {
			observe(e)
		}
	}
	following := ctx // for what a command's reports ask for
	if req.reports == nil {
		following = context.WithoutCancel(ctx)
	}
	go func() { summaries <- follow(following, req, done) }()

	exit, err := r.start(ctx, req, r.order(req, executable))
	if req.reports != nil {
		req.reports.exit = exit
		if errors.Is(err, supervise.ErrNotStarted) {
			req.reports.exit.Stopped = true // there is nothing to judge
		}
	}
	close(done)
	return exit, <-summaries, err
}

// follow adds up the events of a run until done is closed and the last event is
// read.
func follow(ctx context.Context, req Request, done <-chan struct{}) jobevent.Summary {
	if req.reports != nil {
		return req.reports.follow(ctx, req, done)
	}
	var summary jobevent.Summary
	dir := filepath.Join(artifactsDir(req), "job_events")
	for event, err := range jobevent.FollowTold(ctx, dir, req.told, done) {
		if err != nil {
			summary.ObserveError(err)
			continue
		}
		event = masked(jobevent.WithoutCensored(event), req.Mask)
		if summary.Observe(event) && req.OnEvent != nil {
			req.OnEvent(event)
		}
	}
	return summary
}

func artifactsDir(req Request) string {
	return filepath.Join(req.Dir, "artifacts", req.ID)
}

// fill adds how the process tree ended, and what the run has left in its directory.
func (r *Result) fill(req Request, exit supervise.Exit, summary jobevent.Summary) {
	r.ExitCode, r.Signal, r.Notes, r.Memory, r.CPU = exit.Code, exit.Signal, exit.Notes, exit.Memory, exit.CPU
	r.Summary, r.Command = summary, req.reports
	r.Status, r.Tail = readArtifacts(req)
}

// ended tells whether the run is known to have ended by itself. For a command that was stopped
// that is not known, unless it was stopped because of its reports.
func (r Result) ended() bool {
	if r.Command != nil {
		return r.Command.Problem != ""
	}
	return r.Summary.Complete && (r.Status == statusSuccessful || r.Status == statusFailed)
}

// readArtifacts reads ansible-runner's status of the run and the end of the
// output: the playbook's first, then ansible-runner's own. What cannot be read is
// empty; the verdict then rests on the rest.
func readArtifacts(req Request) (status, tail string) {
	dir := filepath.Join("artifacts", req.ID)
	status, _ = tailBelow(req.Dir, filepath.Join(dir, "status"), 64, nil)
	var parts []string
	for _, name := range []string{filepath.Join(dir, stdoutFile), filepath.Join(dir, stderrFile), runnerLog} {
		if said, err := tailBelow(req.Dir, name, tailLimit, req.Mask); err == nil && strings.TrimSpace(said) != "" {
			parts = append(parts, strings.TrimRight(said, "\n"))
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			parts = append(parts, text.Plain(err.Error()))
		}
	}
	return strings.TrimSpace(status), strings.Join(parts, "\n")
}
