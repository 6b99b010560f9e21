package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/localcluster"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// localClusterOptions are the flags of rolewright cluster.
type localClusterOptions struct {
	download    bool
	dir, output string
}

func newClusterCommand() *cobra.Command {
	var o localClusterOptions
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Start and stop an API server on this machine",
		Long: `Start and stop an API server on this machine, for development: etcd and
kube-apiserver, and kube-controller-manager if it is in the same directory, which
removes dependents of deleted objects, and deleted namespaces. There are no nodes and
no other controllers, so no Pod starts. All objects are lost when it stops.

The programs are those of envtest, from the directory KUBEBUILDER_ASSETS, as
setup-envtest installs them, or from PATH. With --download, missing programs are
downloaded. envtest does not include kube-controller-manager; without it, dependents
of deleted objects stay.`,
		Example: `  eval "$(rolewright cluster up --download)"
  rolewright cluster down
  rolewright cluster exec -- make install`,
		Args: explainArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	up, down, command, serve := o.upCommand(), o.downCommand(), o.execCommand(), o.serveCommand()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	for _, c := range []*cobra.Command{up, down, serve} {
		c.Flags().StringVar(&o.dir, "dir", filepath.Join(cache, "rolewright", "cluster"), "Where the cluster keeps its files: one cluster for each directory.")
		c.Flags().Lookup("dir").DefValue = "~/.cache/rolewright/cluster" // in documents
	}
	for _, c := range []*cobra.Command{up, command, serve} {
		c.Flags().BoolVar(&o.download, "download", false, "Fetch etcd and kube-apiserver from the releases of controller-tools where they are missing.")
	}
	cmd.AddCommand(up, down, command, serve)
	return cmd
}

func (o *localClusterOptions) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start an API server in the background, and print the line that sets KUBECONFIG",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.up(cmd) },
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", outputText, "How to print it: text, the line for a shell, or json, an object with the key kubeconfig.")
	oneOf(cmd, "output", outputText, outputJSON)
	return cmd
}

func (o *localClusterOptions) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the API server that \"cluster up\" started",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.down(cmd) },
	}
}

func (o *localClusterOptions) execCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec -- COMMAND [ARG...]",
		Short: "Run a command with an API server of its own",
		Long: `Start an API server, run the command with KUBECONFIG set, and stop the API server.
The exit code is that of the command.`,
		Example: "  rolewright cluster exec -- kubectl get namespaces",
		Args:    cobra.MinimumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // programs and files, as the shell completes them
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.exec(cmd, args) },
	}
}

// serveCommand returns the command that up starts in the background.
func (o *localClusterOptions) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "serve",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return explainPrograms(localcluster.Background{Dir: o.dir}.Serve(cmd.Context(), localcluster.Options{Download: o.download}))
		},
	}
}

func (o *localClusterOptions) up(cmd *cobra.Command) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"cluster", "serve", "--dir=" + o.dir}
	if o.download {
		args = append(args, "--download")
	}
	b := localcluster.Background{Dir: o.dir}
	if err := b.Up(cmd.Context(), self, args...); err != nil {
		return err
	}
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), map[string]string{"kubeconfig": b.Kubeconfig()})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", plaintext.ShellWord(b.Kubeconfig()))
	return err
}

func (o *localClusterOptions) down(cmd *cobra.Command) error {
	err := localcluster.Background{Dir: o.dir}.Down(cmd.Context())
	if errors.Is(err, localcluster.ErrNotRunning) {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
		return nil
	}
	return err
}

func (o *localClusterOptions) exec(cmd *cobra.Command, args []string) (err error) {
	c, err := localcluster.StartKept(localcluster.Options{Download: o.download})
	if err != nil {
		return explainPrograms(err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	streams := localcluster.Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
	code, err := c.Exec(cmd.Context(), streams, args[0], args[1:]...)
	if code > 0 {
		return coded(fmt.Errorf("%s ended with exit code %d", args[0], code), code)
	}
	return err
}

// explainPrograms adds how to get the programs to an error about missing ones.
func explainPrograms(err error) error {
	if errors.Is(err, localcluster.ErrNoPrograms) {
		return fmt.Errorf("%w; fetch them with --download", err)
	}
	return err
}
