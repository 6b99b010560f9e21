package main

import (
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
	// incumbentName is what images link to this binary, so that entrypoints
	// written for the incumbent work. The program answers to it.
	incumbentName = "ansible-operator"
)

// newRootCommand returns the command line; arg0 is how the program was called.
func newRootCommand(arg0 string) *cobra.Command {
	name := programName
	if filepath.Base(arg0) == incumbentName {
		name = incumbentName
	}
	root := &cobra.Command{
		Use:   name,
		Short: "Turn Ansible content into a Kubernetes operator",
		Long: "Rolewright watches custom resources and answers each of them with an Ansible role\n" +
			"or playbook, as watches.yaml says.",
		// One place prints errors; a failure at run time is no reason to
		// print the usage.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(explainFlagError)
	root.AddCommand(newRunCommand(), newValidateCommand(), newDoctorCommand(), newGenerateCommand(), newProxyCommand(), newVersionCommand(name))
	return root
}

func newVersionCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which version this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Read().Line(program))
			return err
		},
	}
}

// explainFlagError adds to a flag that does not exist the one that may have
// been meant, and where the list is.
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

// nearestFlag is the flag that name was probably meant to be; empty if none is
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
