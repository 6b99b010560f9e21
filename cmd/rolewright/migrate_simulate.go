package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/migrate"
)

func newMigrateSimulateCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "simulate DIR",
		Short: "Show which past runs of ansible-operator would have another result with Rolewright",
		Long: `Read the artifacts of past runs in DIR, and say how many would have another result with
Rolewright: runs that ansible-operator reports as successful although a host was
unreachable, or as failed although the failed task was rescued, or whose end it missed.
Nothing runs, and nothing is written.

DIR is a copy of the directory in the operator's Pod: /tmp/ansible-operator/runner.

The exit code is 0 if runs could be judged, whatever their results.`,
		Example: `  kubectl cp my-operator-system/POD:/tmp/ansible-operator/runner runs
  rolewright migrate simulate runs`,
		Args: oneArgument("give the directory with the artifacts of past runs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := migrate.Simulate(cmd.Context(), args[0])
			if err != nil {
				return usage(err)
			}
			if output == outputJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return printSimulation(cmd.OutOrStdout(), s)
		},
	}
	textOrJSON(cmd, &output, "result")
	return cmd
}

func printSimulation(out io.Writer, s migrate.Simulation) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s of %s: %d with the same result, %d with another", counted(s.Runs, "run", "runs"), counted(s.Objects, "object", "objects"), s.Same, len(s.Differ))
	if s.Unfinished > 0 {
		fmt.Fprintf(&text, "; %s without an exit code left out", counted(s.Unfinished, "run", "runs"))
	}
	text.WriteString("\n")
	for _, j := range s.Differ {
		fmt.Fprintf(&text, "\n%s, run %s: ansible-operator %s, Rolewright %s\n", j.Object, j.Run, j.AnsibleOperator, j.Rolewright)
		if j.Message != "" {
			fmt.Fprintf(&text, "    %s\n", strings.ReplaceAll(j.Message, "\n", "\n    "))
		}
	}
	for _, u := range s.Unread {
		fmt.Fprintf(&text, "\nnot read: %s\n", u)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
