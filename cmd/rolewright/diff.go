package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/history"
)

// runsDiff is the difference between two runs.
type runsDiff struct {
	Runs [2]history.Brief `json:"runs"`
	history.Diff
}

func newDiffCommand() *cobra.Command {
	o := readerOptions{several: true}
	output := outputText
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Compare two runs: inputs, results of tasks, writes",
		Long: `Compare two runs of the history: their causes and inputs, tasks whose result differs or
that took at least twice as long, and writes that differ. A unique prefix of an ID is
enough. The history has no values: writes are compared by the names of objects and fields.
The exit code is 1 if something differs. See "rolewright get runs --help" for how the
operator is found.`,
		Example: `  rolewright diff 45f58c2c 8c51a3f0 --operator-namespace operators`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer r.close()
			d, err := r.diff(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if output == outputJSON {
				err = printJSON(cmd.OutOrStdout(), d)
			} else {
				err = printDiff(cmd.OutOrStdout(), d)
			}
			if err == nil && !d.None() {
				return errInvalid // which is not printed
			}
			return err
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeRunIDs(cmd, args, begun)
	}
	textOrJSON(cmd, &output, "differences")
	return cmd
}

func (r *reader) diff(ctx context.Context, first, second string) (runsDiff, error) {
	var runs [2]history.Run
	for i, id := range []string{first, second} {
		answer, err := r.run(ctx, id)
		if err != nil {
			return runsDiff{}, err
		}
		runs[i] = answer.Run
	}
	return runsDiff{[2]history.Brief{runs[0].Brief, runs[1].Brief}, history.Compare(runs[0], runs[1])}, nil
}

func printDiff(out io.Writer, d runsDiff) error {
	rows := [][]string{{"", d.Runs[0].ID, d.Runs[1].ID}, {"started", d.Runs[0].Started.UTC().Format(time.RFC3339), d.Runs[1].Started.UTC().Format(time.RFC3339)}}
	took := func(b history.Brief) string {
		if b.Finished.IsZero() {
			return "in progress"
		}
		return b.Finished.Sub(b.Started).Round(time.Millisecond).String()
	}
	rows = append(rows, []string{"took", took(d.Runs[0]), took(d.Runs[1])})
	for _, part := range []struct {
		name string
		are  []history.Difference
	}{{"", d.Inputs}, {"TASKS", d.Tasks}, {"WRITES", d.Writes}} {
		if part.name != "" && len(part.are) > 0 {
			rows = append(rows, []string{part.name})
		}
		for _, is := range part.are {
			rows = append(rows, []string{is.What, orNone(is.A), orNone(is.B)})
		}
	}
	if err := (&table{out: out}).print(rows...); err != nil {
		return err
	}
	if d.None() {
		fmt.Fprintln(out, "no other differences")
	}
	return nil
}
