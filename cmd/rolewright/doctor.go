package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// doctorOptions are the flags of rolewright doctor.
type doctorOptions struct {
	ansibleRunner, executor string
}

func newDoctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine has what runs need, without a cluster",
		Long: `Check whether this machine, with this environment, has what runs need: one line for
each check, with what was found or what to do. No cluster is contacted, but
Ansible is run: run it where the operator runs, as its user.

  Ansible   which ansible-core, ansible-runner and Python are found
  executor  whether runs can be forked from an interpreter that has imported
            Ansible already; the check is that of the operator's start

The first word of a line is "ok", "note" for what costs only speed, or "failed".
The exit code is 1 if a check has failed, else 0.`,
		Example: `  rolewright doctor
  rolewright doctor --executor=warm && echo runs can be forked`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.bindFlags(cmd.Flags())
	return cmd
}

func (o *doctorOptions) bindFlags(fs *pflag.FlagSet) {
	bindAnsibleRunner(fs, &o.ansibleRunner)
	fs.StringVar(&o.executor, "executor", string(watches.ExecutorAuto), "The executor that the operator is to use, as for \"run\": auto, warm or runner. That runs cannot be forked is a note with auto, and a failed check with warm.")
}

// finding is the result of a check: what is there, and what is wrong.
type finding struct {
	found string
	err   error
	// tolerable says that the operator does without.
	tolerable bool
}

func (f finding) word() string {
	switch {
	case f.err == nil:
		return "ok"
	case f.tolerable:
		return "note"
	}
	return "failed"
}

// healthCheck is a thing that doctor looks at.
type healthCheck struct {
	name string
	look func(context.Context) finding
}

func (o *doctorOptions) checks() []healthCheck {
	return []healthCheck{
		{"Ansible", o.checkAnsible},
		{"executor", o.checkExecutor},
	}
}

// run makes all checks. It returns errInvalid if one has failed.
func (o *doctorOptions) run(ctx context.Context, out io.Writer) error {
	if all := executors(); !slices.Contains(all, watches.Executor(o.executor)) {
		return fmt.Errorf("--executor %q: give one of %q", o.executor, all)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	failed := false
	for _, check := range o.checks() {
		f := check.look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text := f.found
		if f.err != nil {
			text = f.err.Error()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.word(), check.name, text)
		failed = failed || f.word() == "failed"
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed {
		return errInvalid
	}
	return nil
}

func (o *doctorOptions) checkAnsible(ctx context.Context) finding {
	r := runner.New(runner.Options{Path: o.ansibleRunner})
	defer r.Close()
	v, err := r.Check(ctx)
	if err != nil {
		err = fmt.Errorf("%w; install ansible-core and ansible-runner, or see --ansible-runner", err)
	}
	return finding{found: fmt.Sprintf("ansible-core %s, ansible-runner %s, Python %s", v.Core, v.Runner, v.Python), err: err}
}

func (o *doctorOptions) checkExecutor(ctx context.Context) finding {
	if watches.Executor(o.executor) == watches.ExecutorRunner {
		return finding{found: "ansible-runner is started for each run"}
	}
	pool := runner.NewPool(runner.Options{Path: o.ansibleRunner}, nil)
	defer pool.Close()
	f := finding{found: "runs can be forked", tolerable: watches.Executor(o.executor) == watches.ExecutorAuto}
	if err := pool.Wait(ctx); err != nil {
		f.err = fmt.Errorf("runs start Python anew: %w", err)
	}
	return f
}
