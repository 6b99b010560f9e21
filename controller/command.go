package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// input is what a command or handler reads.
type input struct {
	Protocol int      `json:"protocol"`
	Run      inputRun `json:"run"`
	// Object is the live object.
	Object map[string]any `json:"object"`
	// PreviousSpec, ChangedFields and MoreChangedFields are as in [about].
	PreviousSpec      json.RawMessage `json:"previousSpec,omitempty"`
	ChangedFields     []string        `json:"changedFields,omitempty"`
	MoreChangedFields int             `json:"moreChangedFields,omitempty"`
}

type inputRun struct {
	ID       string         `json:"id"`
	Action   string         `json:"action"`
	Cause    string         `json:"cause"`
	Trigger  string         `json:"trigger,omitempty"`
	Attempt  int64          `json:"attempt"`
	Deadline *time.Time     `json:"deadline,omitempty"`
	Previous *inputPrevious `json:"previous,omitempty"`
}

// inputPrevious is the previous run.
type inputPrevious struct {
	Verdict    string    `json:"verdict"`
	Reason     string    `json:"reason"`
	Generation int64     `json:"generation"`
	Finished   time.Time `json:"finished"`
}

// inputOf returns the input of the run of s.
func (r *reconciler) inputOf(s *scope) input {
	in := input{
		Protocol: 1, Object: s.object.Object,
		Run: inputRun{ID: s.runID, Action: actionOf(s), Cause: string(s.plan.cause), Trigger: s.trigger, Attempt: s.attempts() + 1},

		PreviousSpec: s.previous.raw, ChangedFields: s.previous.fields, MoreChangedFields: s.previous.more,
	}
	if s.settings.timeout > 0 {
		deadline := r.now().Add(s.settings.timeout).UTC().Truncate(time.Second)
		in.Run.Deadline = &deadline
	}
	if last := s.memory.last; last != nil {
		in.Run.Previous = &inputPrevious{verdictOf(*last), last.Reason, last.Generation, last.Finished}
	}
	return in
}

// commandRequest returns the request for a run of a command. The object's content is only in
// files; its names, which the API server has validated, are also in the environment.
func (r *reconciler) commandRequest(s *scope, command *watches.Command, sources []extravars.Source) (runner.Request, error) {
	in := r.inputOf(s)
	env := map[string]string{
		"ROLEWRIGHT_ACTION": in.Run.Action, "ROLEWRIGHT_CAUSE": in.Run.Cause, "ROLEWRIGHT_ATTEMPT": strconv.FormatInt(in.Run.Attempt, 10),
		"ROLEWRIGHT_GROUP": r.gvk.Group, "ROLEWRIGHT_VERSION": r.gvk.Version, "ROLEWRIGHT_KIND": r.gvk.Kind,
		"ROLEWRIGHT_NAMESPACE": s.key.Namespace, "ROLEWRIGHT_NAME": s.key.Name, "ROLEWRIGHT_UID": s.uid(),
	}
	if in.Run.Deadline != nil {
		env["ROLEWRIGHT_DEADLINE"] = in.Run.Deadline.Format(time.RFC3339)
	}
	told, err := json.Marshal(in)
	if err != nil {
		return runner.Request{}, fmt.Errorf("the input of the command: %w", err)
	}
	object, err := json.Marshal(in.Object)
	if err != nil {
		return runner.Request{}, fmt.Errorf("the input of the command: %w", err)
	}
	files := map[string][]byte{runner.InputFile: told, runner.ObjectFile: object}
	if command.Chart != nil {
		if files[runner.SettingsFile], err = json.Marshal(r.chartSettings(s, command.Chart, sources)); err != nil {
			return runner.Request{}, fmt.Errorf("the settings of the chart: %w", err)
		}
		sources = nil
	}
	for _, secret := range sources {
		for name, value := range secret.Data {
			files[runner.SecretsDir+"/"+name] = []byte(value)
		}
	}
	return runner.Request{
		Content: runner.Content{Command: commandIn(s.content.copy, command)},
		Files:   files, Env: env, MaxBytes: r.opts.RunMaxBytes, Mask: s.masker(s.mask), Executor: runner.Executor(r.watch.Executor),
		Call: r.callsOfCommand(s), Redact: func(ctx context.Context, value string) { s.mask.Add(ctx, value) },
	}, nil
}

func isChart(w watches.Watch) bool { return w.Content.Command != nil && w.Content.Command.Chart != nil }

// chartSettings is what the program for charts gets beside the object.
type chartSettings struct {
	Chart                  string             `json:"chart"`
	OverrideValues         map[string]string  `json:"overrideValues,omitempty"`
	SuppressOverrideValues bool               `json:"suppressOverrideValues,omitempty"`
	Values                 map[string]any     `json:"values,omitempty"`
	ValuesOverride         map[string]any     `json:"valuesOverride,omitempty"`
	ValuesFrom             []extravars.Source `json:"valuesFrom,omitempty"`
	DryRunOption           string             `json:"dryRunOption,omitempty"`
	Wait                   bool               `json:"wait,omitempty"`
	CRDs                   watches.CRDs       `json:"crds"`
	MaxHistory             int                `json:"maxHistory"`
	TakeOwnership          bool               `json:"takeOwnership,omitempty"`
	ExposeManifest         bool               `json:"exposeManifest,omitempty"`
	Test                   bool               `json:"test,omitempty"`
}

func (r *reconciler) chartSettings(s *scope, c *watches.Chart, sources []extravars.Source) chartSettings {
	return chartSettings{
		Chart: s.content.copy.Path(c.Dir), OverrideValues: c.OverrideValues, SuppressOverrideValues: r.opts.SuppressOverrideValues,
		Values: c.Values, ValuesOverride: c.ValuesOverride, ValuesFrom: sources, DryRunOption: c.DryRunOption, Wait: c.Wait,
		CRDs: c.CRDs, MaxHistory: c.MaxHistory, TakeOwnership: c.TakeOwnership, ExposeManifest: c.ExposeManifest, Test: c.Test,
	}
}

func commandIn(c *contentcopy.Copy, command *watches.Command) *runner.Command {
	return &runner.Command{
		Path: c.Path(command.Path), Args: command.Args, Dir: c.Path(command.Dir), InheritEnv: command.InheritEnv, Env: command.Env,
		StopSignal: unix.SignalNum(command.Stop.Signal), Grace: max(command.Stop.Grace, time.Nanosecond), RequireResult: command.RequireResult,
	}
}

// actionOf returns what the run of s is for: reconcile, finalize or check.
func actionOf(s *scope) string {
	switch {
	case s.deleting:
		return strings.ToLower(actionFinalize)
	case s.plan.check:
		return strings.ToLower(actionCheck)
	}
	return strings.ToLower(actionReconcile)
}

// verdictOf returns the verdict on a run in the words that commands use.
func verdictOf(run status.Run) string {
	switch {
	case run.Result == status.Succeeded && run.NotYet():
		return "waiting"
	case run.Result == status.Succeeded:
		return "ok"
	case run.Result == status.Interrupted:
		return "interrupted"
	}
	return "failed"
}

// contentsOfCommand returns the contents of a watch with a command: the executable, and the
// files that its arguments name.
func contentsOfCommand(w watches.Watch, opts *Options) *contents {
	var files []string
	for _, content := range w.Contents() {
		if content.Command != nil {
			files = append(files, content.Command.Files()...)
		}
	}
	what := "files of the command"
	if w.Content.Command.Chart != nil {
		what = "chart"
	}
	c := &contents{
		files: fingerprint.Contents{MaxAge: contentMaxAge}, roots: fingerprint.Roots{Trees: files}, what: what, ofObject: ofObject(w),
	}
	// The command gets no other environment variables.
	w.Inputs.Env = slices.Concat([]string{"-*"}, w.Content.Command.InheritEnv, w.Inputs.Env)
	c.fix(w, opts)
	c.nameFiles(func(path string) string { return path })
	return c
}
