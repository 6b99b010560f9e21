package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// Options are the options of the process in the container.
type Options struct {
	// Input is the path of a file that [Encode] has made; Pod is a unique name of this container.
	Input, Pod string
	// Termination is the file that gets the verdict, for people; empty for none.
	Termination string
	// Runner makes the run.
	Runner *runner.Runner
	// Say writes a message to the log of the container.
	Say func(text string)
	// Patience is how long artifacts are still sent after this process was told to end.
	Patience time.Duration
}

// Beat is the time after which the operator is asked whether the run is to go on, unless events were sent meanwhile.
const Beat = 10 * time.Second

// sendEvery is the shortest time between two requests with events. The reports of a command are checked
// every reportsEvery while new ones come, and else less and less often, up to every reportsIdle.
const (
	sendEvery    = 200 * time.Millisecond
	reportsEvery = 500 * time.Millisecond
	reportsIdle  = 4 * time.Second
)

// Inside makes the run of an input, and returns when the operator has received all artifacts and recorded
// the end. When ctx ends, the run is stopped. The error is nil if the operator has the outcome, whatever it is.
func Inside(ctx context.Context, opts Options) error {
	data, err := os.ReadFile(opts.Input) // a link, like all files in the volume of a Secret
	if err != nil {
		return fmt.Errorf("read the input of the run: %w", err)
	}
	in, err := Decode(data)
	if err != nil {
		return err
	}
	l, err := newLink(in, opts.Pod, opts.Say)
	if err != nil {
		return err
	}
	g, err := newGateway(ctx, in)
	if err != nil {
		return err
	}
	defer g.close()
	if kubeconfig, ok := in.Request.Files["kubeconfig"]; ok {
		in.Request.Files["kubeconfig"] = g.kubeconfig(kubeconfig, in)
	}
	opts.Say("asking the operator for leave to start run " + in.Request.ID)
	if err := l.post(ctx, startPath, nothing); err != nil {
		return err
	}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan struct{}, 1)
	var sending sync.WaitGroup
	ended := make(chan struct{})
	sending.Go(func() { l.follow(running, events, ended, cancel) })
	req := in.Request.runner()
	req.OnEvent = func(jobevent.Event) {
		select {
		case events <- struct{}{}:
		default:
		}
	}
	req.Files, req.Env = in.Request.allTime(time.Now())
	opts.Say("run " + in.Request.ID + " starts")
	res, err := opts.Runner.Run(running, req)
	close(ended)
	sending.Wait()
	if cause := context.Cause(running); errors.Is(cause, ErrGivenUp) {
		return cause
	}
	outcome := runner.OutcomeOf(res, err, int(g.cut.Load()))
	opts.conclude(res, err)
	patient, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(opts.Patience, func() { stop(context.Cause(ctx)) })
	})()
	if err := l.finish(patient, outcome); err != nil {
		return fmt.Errorf("the outcome was not received: %w", err)
	}
	opts.Say("the operator has all of run " + in.Request.ID)
	l.stay(ctx, outcome)
	return nil
}

// stayFor is how long the artifacts are kept for another operator. The Pod ends sooner, as soon as the end is recorded.
const stayFor = 10 * time.Minute

// stay sends everything again if the operator ends before it has recorded the end of the run, and another one adopts the
// run. It returns when the operator no longer knows the run, or ctx ends.
func (l *link) stay(ctx context.Context, o runner.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, stayFor)
	defer cancel()
	for d := time.Duration(0); pause(ctx, &d); {
		err := l.post(ctx, filesPath, nothing)
		if errors.Is(err, errNewEpoch) {
			err = l.finish(ctx, o)
		}
		if err != nil {
			return
		}
	}
}

// follow sends events until the run has ended. It ends the run if the operator has given it up.
func (l *link) follow(ctx context.Context, events, ended <-chan struct{}, stop context.CancelCauseFunc) {
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	var over sync.WaitGroup
	defer over.Wait()
	over.Go(func() {
		select {
		case <-ended:
			cancel()
		case <-sending.Done():
		}
	})
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	wait := reportsEvery
	look := time.NewTimer(wait)
	defer look.Stop()
	for sending.Err() == nil {
		select {
		case <-events:
		case <-tick.C:
		case <-look.C:
			if len(l.reported()) == 0 {
				wait = min(2*wait, reportsIdle)
				look.Reset(wait)
				continue
			}
			wait = reportsEvery
			look.Reset(wait)
		case <-sending.Done():
			return
		}
		if err := l.events(sending); errors.Is(err, ErrGivenUp) {
			stop(err)
			return
		}
		rest := time.NewTimer(sendEvery)
		select {
		case <-rest.C:
		case <-sending.Done():
			rest.Stop()
		}
	}
	cancel()
}

// runner returns the request for a [runner.Runner].
func (r request) runner() runner.Request {
	return runner.Request{
		ID: r.ID, Dir: r.Dir, Content: runner.Content{Playbook: r.Playbook, Role: r.Role, Command: r.Command}, ExtraVars: r.ExtraVars, Env: r.Env, Files: r.Files,
		Verbosity: r.Verbosity, Cmdline: r.Cmdline, Inventory: r.Inventory, SkipFacts: r.SkipFacts, MaxBytes: r.MaxBytes,
		Executor: runner.ExecutorRunner,
	}
}

// deadlineEnv is the variable with the time at which a command is stopped, which its input contains, too.
const deadlineEnv = "ROLEWRIGHT_DEADLINE"

// allTime returns the files and the environment of a run that begins now. The deadline in the request does not consider
// that the command has waited for its Pod; allTime replaces it, so that the command has all of its timeout.
func (r request) allTime(now time.Time) (files map[string][]byte, env map[string]string) {
	if r.Command == nil || r.Timeout <= 0 || r.Env[deadlineEnv] == "" {
		return r.Files, r.Env
	}
	files, env = maps.Clone(r.Files), maps.Clone(r.Env)
	env[deadlineEnv] = now.Add(r.Timeout).UTC().Format(time.RFC3339)
	var input, run map[string]json.RawMessage
	if json.Unmarshal(files[runner.InputFile], &input) == nil && json.Unmarshal(input["run"], &run) == nil {
		run["deadline"] = json.RawMessage(strconv.Quote(env[deadlineEnv]))
		if told, err := json.Marshal(run); err == nil {
			input["run"] = told
		}
		if told, err := json.Marshal(input); err == nil {
			files[runner.InputFile] = told
		}
	}
	return files, env
}

// verdict is the termination message of the container, which people see in the Pod's status.
type verdict struct {
	Run         string `json:"run"`
	Success     bool   `json:"success"`
	Reason      string `json:"reason"`
	ExitCode    int    `json:"exitCode"`
	OK          int    `json:"ok"`
	Changed     int    `json:"changed"`
	Failures    int    `json:"failures"`
	Unreachable int    `json:"unreachable"`
}

// conclude tells people how the run has ended. It leaves out the texts of the run: they may
// contain secrets, which only the operator can mask.
func (o Options) conclude(res runner.Result, err error) {
	v := res.Verdict()
	said := verdict{
		Run: res.ID, Success: v.Success && err == nil, Reason: string(v.Reason), ExitCode: res.ExitCode,
		OK: res.Summary.OK, Changed: res.Summary.Changed, Failures: res.Summary.Failures, Unreachable: res.Summary.Unreachable,
	}
	if err != nil {
		said.Reason = "NotRun"
	}
	data, encodeErr := json.Marshal(said)
	if encodeErr != nil {
		return
	}
	o.Say("run " + res.ID + " has ended: " + string(data))
	// It is a help for people, if the kubelet has made the file.
	if to, err := os.OpenFile(o.Termination, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_, _ = to.Write(data)
		_ = to.Close()
	}
}

// Install copies this program into dir, for a container of another image.
func Install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "rolewright"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return nil
}
