package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/console"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// replayOptions are the flags of replay.
type replayOptions struct{ root, output string }

// roots returns where runs are looked for: where the operator keeps them, and where dev and
// once do, unless --runner-root names a place.
func (o *replayOptions) roots(cmd *cobra.Command) []string {
	local := devRunnerRoot()
	if cmd.Flags().Changed("runner-root") || local == "" {
		return []string{o.root}
	}
	return []string{o.root, local}
}

func newReplayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Show a run that has ended: its tasks, and why it failed",
		Long: `Show a run that has ended from its artifacts: each task with its result, duration
and file:line, and how the run ended. Nothing runs. RUN is the ID of the run, as in
status.ansible.lastRun.id, or the first characters of it, or the directory of the run.

The artifacts are where the run was made: in the operator's Pod, or, for runs of dev and
once, on this machine in ~/.cache/rolewright/dev. Without --runner-root, both places are
searched. Names of tasks are not masked.

The exit code is 0 if the run has succeeded, and 1 if not, or if its end is not
known. The keys of -o json are those of "rolewright once".`,
		Example: `  kubectl exec -n memcached-operator-system deployment/controller-manager -- rolewright replay 4f0c12aa
  rolewright replay /tmp/ansible-operator/runner/cache.example.com/v1/Memcached/default/a`,
		Args:              oneArgument("give the ID of a run, its first characters, or its directory"),
		ValidArgsFunction: onlyFirst(o.completeRuns),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, runID(args[0])) },
	}
	fs := cmd.Flags()
	bindRunnerRoot(fs, &o.root)
	textOrJSON(cmd, &o.output, "result")
	return cmd
}

func (o *replayOptions) run(cmd *cobra.Command, name string) error {
	dir, err := find(o.roots(cmd), name)
	if err != nil {
		return usage(err)
	}
	ticket, run, err := runstore.Read(dir)
	if err != nil && !errors.Is(err, runstore.ErrNoEnd) {
		return usage(err)
	}
	if o.output == outputJSON {
		if err != nil {
			return err
		}
		// Ansible's exit code is not recorded.
		if err := printJSON(cmd.OutOrStdout(), onceJSONOf(controller.Once{Run: run, ExitCode: -1, Dir: dir})); err != nil {
			return err
		}
	} else {
		show(cmd.Context(), cmd.OutOrStdout(), dir, ticket, run)
	}
	if err != nil || run.Result == status.Succeeded {
		return err
	}
	return errInvalid
}

// find returns the directory of the run, below the first of the roots that has it.
func find(roots []string, name string) (string, error) {
	if filepath.Base(name) == name {
		var failed error
		for _, root := range roots {
			dir, err := runstore.Find(root, name)
			if err == nil {
				return dir, nil
			}
			switch {
			case failed == nil:
				failed = err
			case failed.Error() != err.Error(): // the errors of two roots differ if the name is not an ID
				failed = fmt.Errorf("%w\n%w", failed, err)
			}
		}
		return "", failed
	}
	dir, err := filepath.EvalSymlinks(name) // the path that ansible-operator documents is a symbolic link
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// askedMask hides what a command asked to be hidden.
type askedMask struct{ *redact.Masker }

// Name implements [runner.Masker].
func (m askedMask) Name(name, _ string) string { return m.Mask(name) }

// show writes the events of a run, each with its time, and the end of the run if it
// is known.
func show(ctx context.Context, out io.Writer, dir string, ticket runstore.Ticket, run status.Run) {
	now := run.Started
	screen := console.New(out, coloured(out), func() time.Time { return now.Local() })
	var shown *console.Run
	ended := make(chan struct{})
	close(ended)
	root := filepath.Join(dir, "../../..") // RUNNER-ROOT/.runs/UID/RUN
	if is, err := filepath.EvalSymlinks(root); err == nil {
		root = is // the names of the copies have the resolved path
	}
	asked := redact.New()
	redacted := func(ctx context.Context, value string) { asked.Add(ctx, value) }
	for _, event := range runner.CommandEvents(ctx, dir, ticket.Run, askedMask{asked}, redacted) {
		if shown == nil {
			shown = screen.Start(ticket.Kind+"/"+ticket.Name, run.Cause)
		}
		shown.Event(event)
	}
	for event, err := range jobevent.Follow(ctx, filepath.Join(dir, "artifacts", ticket.Run, "job_events"), ended) {
		if err != nil {
			screen.Problem(err)
			continue
		}
		event.Data.TaskPath = contentcopy.OriginalOf(root, event.Data.TaskPath)
		if now = event.Created; shown == nil {
			shown = screen.Start(ticket.Kind+"/"+ticket.Name, run.Cause)
		}
		shown.Event(jobevent.WithoutCensored(event))
	}
	if run.Result == "" {
		return
	}
	if now = run.Finished; shown == nil {
		shown = screen.Start(ticket.Kind+"/"+ticket.Name, run.Cause)
	}
	shown.End(run)
}
