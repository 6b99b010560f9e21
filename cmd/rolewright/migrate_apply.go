package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/migrate"
)

func newMigrateApplyCommand() *cobra.Command {
	var o migrateOptions
	cmd := &cobra.Command{
		Use:   "apply [DIR]",
		Short: "Make the changes in a project that Rolewright needs",
		Long: `Make the smallest changes that Rolewright needs in the project in a directory, by default
this one: what "rolewright migrate report" lists as change, and other findings that have
only one right fix. Comments and layout of the files are kept. The report has what is left
for you to do.

  drop-in  base image, Makefile, permission to patch, schema of the status, grace time,
           memory
  safe     all that, and markUnsafe: true where a watch says false

In a git repository each step is a commit, and a work tree with other changes is refused.
Without git the files are written, and the diff is printed. Called again it finds nothing
to do.`,
		Example: `  rolewright migrate apply --dry-run
  rolewright migrate apply --level safe`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.apply(cmd, args) },
	}
	o.bindFile(cmd.Flags())
	cmd.Flags().StringVar(&o.level, "level", string(migrate.DropIn), "How far to go: drop-in or safe.")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "Print the diff, and write nothing.")
	return cmd
}

func (o *migrateOptions) apply(cmd *cobra.Command, args []string) error {
	level := migrate.Level(o.level)
	if !slices.Contains(migrate.Levels(), level) {
		return usage(fmt.Errorf("--level must be drop-in or safe, not %q", o.level))
	}
	dir, err := o.dir(args)
	if err != nil {
		return err
	}
	plan, err := migrate.NewPlan(dir, level, o.known())
	if err != nil {
		return usage(err)
	}
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if len(plan.Steps) == 0 {
		fmt.Fprintln(stderr, "nothing to do; \"rolewright migrate report\" has what is left to you")
		return nil
	}
	if o.dryRun {
		for _, s := range plan.Steps {
			fmt.Fprintf(stderr, "%s: %s\n", s.Subject, filesOf(s))
		}
		_, err := io.WriteString(out, plan.Diff())
		return err
	}
	done, before, err := plan.Make(cmd.Context(), dir)
	for _, s := range done {
		fmt.Fprintln(stderr, strings.TrimSpace(fmt.Sprintf("%s %s: %s", s.Commit, s.Subject, filesOf(s.Step))))
	}
	if len(done) > 0 && before != "" {
		fmt.Fprintf(stderr, "to take it back: git revert --no-edit %.12s..%s\n", before, done[len(done)-1].Commit)
	}
	if before == "" && len(done) > 0 {
		fmt.Fprintln(stderr, "there is no git repository: the files are written; to take it back, save the diff and call patch -R -p1 with it")
		_, writeErr := io.WriteString(out, migrate.DiffOf(done))
		err = errors.Join(err, writeErr)
	}
	return err
}

func filesOf(s migrate.Step) string {
	var names []string
	for _, f := range s.Files {
		names = append(names, f.Path)
	}
	return strings.Join(names, ", ")
}
