package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/manifests"
	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/scaffold"
)

// generateManifestsOptions are the flags of rolewright generate manifests.
type generateManifestsOptions struct {
	filesOptions

	watchesFile string
	checkOnly   bool
}

func newGenerateManifestsCommand() *cobra.Command {
	var o generateManifestsOptions
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Write the manifests that are missing in config for the watches",
		Long: `Write the manifests in config as "init" and "create api" would write them now, for
the kinds in watches.yaml and the project in PROJECT: missing files are written, and
lists get the files of kinds that they lack. If a watch has "executor: job",
config/jobs and the flag --job-url are included.

A file that exists with different content is kept: the diff is shown, and the exit
code is 1. --force overwrites such files; to write only one of them again, delete it
first. Existing CRDs and samples are not changed: "rolewright generate crd" brings
CRDs up to date. A project of operator-sdk has other manifests: look at the diffs of
--check first.

If watches.yaml refers to a kind that is not Kubernetes' own and whose CRD is not below
config/crd, the permissions lack it, and the exit code is 1, too. A CRD of another
operator can be in config/crd/external, where it is read but not installed.`,
		Example: `  rolewright generate manifests
  rolewright generate manifests --check`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().BoolVar(&o.checkOnly, "check", false, "Write nothing, and fail if a file is missing or has different content.")
	cmd.Flags().BoolVar(&o.force, "force", false, "Overwrite existing files that have different content.")
	cmd.MarkFlagsMutuallyExclusive("check", "force")
	o.bindOutput(cmd)
	return cmd
}

func (o *generateManifestsOptions) run(cmd *cobra.Command) error {
	o.start(cmd)
	p, err := scaffold.Read(".")
	if err != nil {
		return usage(err)
	}
	watched, err := usableWatches(o.watchesFile, os.LookupEnv)
	if err != nil {
		return err
	}
	made, err := scaffold.ManifestsOf(".", p, watched, extravars.ToSnake)
	if err != nil {
		return usage(err)
	}
	rules := generateRBACOptions{watchesFile: o.watchesFile, name: "manager-role", definitions: defaultDefinitions, scan: true, offline: true, injectOwnerRef: true}
	for _, k := range made.Kinds {
		rules.own = append(rules.own, rbac.Resource{Group: k.FullGroup(), Kind: k.Kind, Name: k.Plural(), Namespaced: k.Namespaced})
	}
	needs, gaps, err := rules.generate(cmd.Context(), io.Discard)
	if err != nil {
		return err
	}
	for _, g := range gaps {
		made.Notes = append(made.Notes, fmt.Sprintf("%s: the permissions that it needs are not known: %s", g.Place, g.What))
	}
	before := rules.yaml(needs, gaps)
	rules.jobs = false // config/jobs has them
	file := scaffold.File{Path: rulesFile, Text: rules.yaml(needs, gaps)}
	there, err := os.ReadFile(rulesFile)
	file.Replaces = err == nil && string(there) == before
	files := append(made.Files, file)
	if o.checkOnly {
		err = o.check(files, made.Notes, `run "rolewright generate manifests"`)
	} else {
		err = o.restore(files, made.Notes)
	}
	return errors.Join(err, ownUnknown(gaps, defaultDefinitions))
}

// restore writes the files that are missing. It keeps files that exist with another
// text, unless force is set.
func (o *filesOptions) restore(files []scaffold.File, notes []string) error {
	var kept []*scaffold.Differs
	files = slices.DeleteFunc(files, func(f scaffold.File) bool {
		there, err := os.ReadFile(f.Path)
		if err != nil || string(there) == f.Text || f.Replaces || o.force {
			return false
		}
		kept = append(kept, &scaffold.Differs{Path: f.Path, Old: string(there), Text: f.Text})
		return true
	})
	if len(kept) == 0 {
		return o.write(files, notes, "")
	}
	changes, err := scaffold.Write(".", files, o.force)
	if err != nil {
		return usage(err)
	}
	all := ofDiffering(kept)
	for _, c := range changes {
		all = append(all, fileJSON{Path: c.Path, Did: c.Did})
	}
	if err := o.print(all, notes); err != nil {
		return err
	}
	return fmt.Errorf("kept: %s with different content: %s\nuse --force to overwrite; to have a single file written again, remove it",
		counted(len(kept), "file", "files"), strings.Join(pathsOf(kept), ", "))
}

// newGenerateHealthLuaCommand returns the command that prints health checks for Argo CD.
func newGenerateHealthLuaCommand() *cobra.Command {
	var watchesFile, output string
	cmd := &cobra.Command{
		Use:   "health-lua [KIND...]",
		Short: "Print a health check for Argo CD, for the kinds of this project",
		Long: `Print Argo CD's ConfigMap with a health check in Lua for each kind in watches.yaml, or
for the given kinds. An object is Healthy if its current spec has run successfully,
Degraded if the run has failed, Suspended while it is paused, and otherwise
Progressing. The check reads the conditions Ready, Reconciling and Stalled, and their
observedGeneration; kinds with manageStatus: false have none, and are left out.

With -o lua it prints the script alone, which is the same for all kinds.`,
		Example: `  rolewright generate health-lua > argocd-cm.yaml
  rolewright generate health-lua -o lua > health.lua`,
		ValidArgsFunction: watchedKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds, err := managedKinds(cmd.ErrOrStderr(), watchesFile, args)
			if err != nil {
				return usage(err)
			}
			text := manifests.HealthLua()
			if output == outputYAML {
				text = manifests.ArgoCDHealth(kinds)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().StringVarP(&output, "output", "o", outputYAML, "What to print: yaml, the ConfigMap, or lua, the script.")
	oneOf(cmd, "output", outputYAML, outputLua)
	return cmd
}

// The values of health-lua's --output.
const (
	outputYAML = "yaml"
	outputLua  = "lua"
)

// managedKinds returns the kinds of the watches file whose status the operator writes; if
// kinds are named, only those.
func managedKinds(stderr io.Writer, watchesFile string, named []string) ([]schema.GroupKind, error) {
	watched, err := usableWatches(watchesFile, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupKind
	var all []string
	for _, w := range watched {
		all = append(all, w.GVK.Kind)
		switch {
		case len(named) > 0 && !slices.Contains(named, w.GVK.Kind), slices.Contains(kinds, w.GVK.GroupKind()):
		case !w.ManageStatus:
			fmt.Fprintf(stderr, "note: %s is left out: its watch says manageStatus: false, so it has no conditions\n", w.GVK.Kind)
		default:
			kinds = append(kinds, w.GVK.GroupKind())
		}
	}
	for _, name := range named {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s has no watch of the kind %s; it has %q", watchesFile, name, all)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("%s has no kind whose status is written: there is nothing to check", watchesFile)
	}
	return kinds, nil
}
