package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/internal/version"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

const (
	programName = "rolewright"
	// ansibleOperator is the name of a link to this binary in images, for
	// entrypoints that were written for ansible-operator.
	ansibleOperator = "ansible-operator"
	// helmOperator is the name of another link, for entrypoints that were written for helm-operator.
	helmOperator = "helm-operator"
	// kubectlPlugin is the name by which kubectl finds a plugin. kubectlComplete is the name of the
	// program that kubectl asks to complete a plugin's arguments. Both are links, too.
	kubectlPlugin   = "kubectl-rolewright"
	kubectlComplete = "kubectl_complete-rolewright"
)

// newRootCommand returns the command line; arg0 is how the program was called.
func newRootCommand(arg0 string) *cobra.Command {
	name, shown := programName, programName
	switch filepath.Base(arg0) {
	case ansibleOperator, helmOperator:
		name, shown = filepath.Base(arg0), filepath.Base(arg0)
	case kubectlPlugin, kubectlComplete:
		shown = "kubectl " + programName
	}
	root := &cobra.Command{
		Use:         name,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: shown},
		Short:       "Turn Ansible content into a Kubernetes operator",
		Long: "Rolewright watches custom resources and runs an Ansible role or playbook for each,\n" +
			"as watches.yaml says.",
		Args: explainArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// exitCode prints errors. A failure at run time does not print the usage.
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Read().Line(name),
		Example: "  rolewright init                     # make the project of an operator in this directory\n" +
			"  rolewright validate                 # check watches.yaml and the roles, without a cluster\n" +
			"  rolewright doctor                   # check Ansible, directories, cluster and permissions\n" +
			"  rolewright run --log-format=console # run the operator against the current kubeconfig",
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(explainFlagError)
	root.AddCommand(
		newInitCommand(), newCreateCommand(), newGenerateCommand(), newDevCommand(), newTestCommand(), newClusterCommand(),
		newTemplateCommand(), newOnceCommand(), newReplayCommand(), newValidateCommand(), newLintCommand(),
		newMigrateCommand(),
		newRunCommand(), newDoctorCommand(), newSupportBundleCommand(), newProxyCommand(),
		newGetCommand(), newDescribeCommand(), newExplainCommand(), newInventoryCommand(), newTreeCommand(),
		newLogsCommand(), newUICommand(), newReportCommand(), newDiffCommand(), newTopCommand(),
		newWaitCommand(), newReconcileCommand(), newSuspendCommand(), newResumeCommand(), newCancelCommand(),
		newVersionCommand(name), newJobRunCommand(), newJobInstallCommand(),
	)
	if name == helmOperator {
		takeDefaults(root)
	}
	completeRoot(root)
	return root
}

// takeDefaults gives "run" the defaults of helm-operator where they differ.
func takeDefaults(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		for flag, value := range map[string]string{"health-probe-bind-address": ":8081", "metrics-bind-address": ":8080", "metrics-addr": ":8080"} {
			if f := cmd.Flags().Lookup(flag); cmd.Name() == "run" && f != nil && f.Value.Set(value) == nil {
				f.DefValue = value
			}
		}
	}
}

func newVersionCommand(program string) *cobra.Command {
	output := outputText
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Read()
			if output == outputJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v.Line(program))
			return err
		},
	}
	textOrJSON(cmd, &output, "version")
	return cmd
}

// explainFlagError adds to an error about an unknown flag the nearest flag, and
// where to find the list of flags.
func explainFlagError(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
	}
	if near := nearestFlag(cmd.Flags(), missing.GetSpecifiedName()); near != "" {
		return fmt.Errorf("%w; did you mean --%s? See %q", err, near, cmd.CommandPath()+" --help")
	}
	return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
}

// explainArgument refuses an argument that is not a subcommand of cmd, and suggests the nearest.
func explainArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
}

// noArguments refuses arguments of a command that has no subcommands.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; see %q", args[0], cmd.CommandPath()+" --help")
}

// oneArgument accepts exactly one argument. missing is the error if there is none.
func oneArgument(missing string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || len(args) == 1 && args[0] == "":
			return fmt.Errorf("%s; see %q", missing, cmd.CommandPath()+" --help")
		case len(args) == 1:
			return nil
		}
		return fmt.Errorf("one argument expected, there are %d; see %q", len(args), cmd.CommandPath()+" --help")
	}
}

// checkCompletion makes cobra's completion command refuse shells that it does not know.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args = explainArgument
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// nearestFlag returns the flag that was probably meant by name; empty if none is
// close.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return plaintext.Nearest(name, names)
}
