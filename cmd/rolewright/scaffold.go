package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/chartdir"
	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

func newCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Add to the project of an operator",
		Args:  explainArgument,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCreateAPICommand())
	return cmd
}

// createAPIOptions are the flags of rolewright create api.
type createAPIOptions struct {
	filesOptions

	kind          scaffold.Kind
	from, chart   string
	clusterScoped bool
}

func newCreateAPICommand() *cobra.Command {
	var o createAPIOptions
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Add a kind: its role or chart, CRD, sample and permissions, and its entry in watches.yaml",
		Long: `Add a kind to the project in this directory: a role with its argument spec, the
CRD that is generated from it, a sample, permissions, and an entry in watches.yaml.

An existing role or playbook is used as it is, and the CRD is generated from the
role's argument spec (meta/argument_specs.yml), or from its defaults. An existing
CRD keeps manual changes; the version is added if the CRD has only others.

With --helm-chart, each object of the kind is a release of a chart: a directory, or an
archive made by "helm package". The chart is copied into helm-charts/. The CRD is
generated from its values.schema.json, or from the types in its values.yaml; the sample
sets only what has no value in the chart; the permissions cover what its templates
create. Defaults: the group charts, the version v1alpha1, and the chart's name as the
kind. With --force, a newer version of the chart is copied over the existing one;
files that only the old version has are listed and kept.

If called again, it changes nothing. If a file exists with different content, the diff
is shown and nothing is written, except with --force. An existing entry of the kind in
watches.yaml is never changed: nothing is written if it has another role, playbook or
chart, or if it has no finalizer and --finalizer is given.`,
		Example: `  rolewright create api --group cache --version v1alpha1 --kind Memcached
  rolewright create api --group web --version v1 --kind Site --role site --finalizer
  rolewright create api --group infra --version v1 --kind Zone --playbook playbooks/zone.yml --cluster-scoped
  rolewright create api --group shop --version v1 --helm-chart ../charts/shop`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.kind.Group, "group", "", "The API group, to which the project's domain is added; give \"\" for the domain alone.")
	fs.StringVar(&o.kind.Version, "version", "", "The version, such as v1alpha1.")
	fs.StringVar(&o.kind.Kind, "kind", "", "The kind, such as Memcached.")
	fs.StringVar(&o.kind.Role, "role", "", "The role: one in roles/, or a new one; the kind in lower case if empty.")
	fs.StringVar(&o.kind.Playbook, "playbook", "", "Run this playbook instead of the role: an existing one, or a new one that runs the role.")
	fs.StringVar(&o.from, "crd-from", "", "What the CRD is generated from: argspec, defaults, or none for a spec with any fields. If empty, the argument spec, or the defaults if there is no argument spec.")
	fs.StringVar(&o.chart, "helm-chart", "", "Install this Helm chart for each object, instead of running a role: a directory or an archive.")
	fs.BoolVar(&o.clusterScoped, "cluster-scoped", false, "Make the kind cluster-scoped.")
	fs.BoolVar(&o.kind.Finalizer, "finalizer", false, "Add a finalizer: when an object is deleted, run with state=absent.")
	fs.BoolVar(&o.force, "force", false, "Overwrite existing files.")
	o.bindOutput(cmd)
	for _, flag := range []string{"role", "playbook", "crd-from", "finalizer", "cluster-scoped"} {
		cmd.MarkFlagsMutuallyExclusive("helm-chart", flag) // releases belong to namespaces, and are uninstalled
	}
	return cmd
}

func (o *createAPIOptions) run(cmd *cobra.Command) error {
	o.start(cmd)
	p, err := scaffold.Read(".")
	if err != nil {
		return usage(err)
	}
	if o.chart == "" && p.Charts() {
		return usage(errors.New("this project is for Helm charts, and its image has no Ansible: give --helm-chart, or make a project for roles with \"rolewright init\" in another directory"))
	}
	if o.chart != "" {
		if err := o.takeChart(cmd); err != nil {
			return usage(err)
		}
	} else if !cmd.Flags().Changed("group") {
		return usage(errors.New("--group is missing: give one such as cache, to which the project's domain is added, or --group \"\" for the domain alone"))
	}
	o.kind.Project, o.kind.Namespaced = p, !o.clusterScoped
	if o.kind.Role == "" && o.chart == "" {
		o.kind.Role = o.kind.Singular()
	}
	switch o.from {
	case "", scaffold.FromArgspec, scaffold.FromDefaults, scaffold.FromNone:
	default:
		return usage(fmt.Errorf("--crd-from %q: argspec, defaults or none expected", o.from))
	}
	rules := generateRBACOptions{watchesFile: "watches.yaml", name: "manager-role", definitions: defaultDefinitions, scan: true, offline: true, allow: true, injectOwnerRef: true, output: rulesFile}
	fit, err := o.rulesFit(cmd.Context(), rules)
	if err != nil {
		return err
	}
	files, notes, err := o.files()
	if err != nil {
		return usage(err)
	}
	if err := o.write(files, notes, ""); err != nil {
		return err
	}
	if !fit {
		fmt.Fprintf(o.stderr, "%s lacks what the kinds need, or was changed by hand, and is kept: see \"rolewright lint\"; \"make generate\" writes it again\n", rulesFile)
		return nil
	}
	if err := rules.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
		return fmt.Errorf("all files except the permissions were written: %w", err)
	}
	fmt.Fprintln(o.stderr, "next: make dev, or make test")
	return nil
}

// takeChart reads the chart, and takes from it what the flags do not say.
func (o *createAPIOptions) takeChart(cmd *cobra.Command) (err error) {
	if watches.ChartProgramIn(os.Getenv("PATH")) == "" {
		return fmt.Errorf("%s, which runs charts, is neither in the directory of rolewright nor in PATH, and nothing was written: run \"make build\" in a checkout of Rolewright, and put its bin/ in PATH", watches.ChartProgram)
	}
	if o.kind.Chart, err = chartdir.Read(o.chart); err != nil {
		return fmt.Errorf("--helm-chart: %w", err)
	}
	for flag, or := range map[string]string{"group": "charts", "version": "v1alpha1", "kind": scaffold.KindOfChart(o.kind.Chart.Name)} {
		if !cmd.Flags().Changed(flag) {
			if err := cmd.Flags().Set(flag, or); err != nil {
				return err
			}
		}
	}
	return nil
}

// files returns the files of the kind, and notes about them.
func (o *createAPIOptions) files() (files []scaffold.File, notes []string, err error) {
	if o.kind.Chart != nil {
		for _, path := range o.kind.LeftOver(".") {
			notes = append(notes, path+" is not in "+o.chart+": remove it, unless it is yours; it is part of each release")
		}
		files, err = o.kind.AllOfChart(".")
		return files, notes, err
	}
	if files, notes, err = o.kind.All(".", o.from, extravars.ToSnake); err != nil {
		return nil, nil, err
	}
	more, err := o.checkContent()
	return files, append(notes, more...), err
}

// checkContent reads the tasks of an existing role or playbook before anything is
// written for it. It returns where the role's defaults contradict its argument spec.
func (o *createAPIOptions) checkContent() (notes []string, err error) {
	what := content.Content{Role: filepath.Join("roles", o.kind.Role)}
	if o.kind.Playbook != "" {
		what = content.Content{Playbook: filepath.Clean(o.kind.Playbook)}
	}
	if _, err := os.Stat(what.Role + what.Playbook); err != nil {
		return nil, nil //nolint:nilerr // it is written now
	}
	options := content.Options{RolesPath: assembly.RolesDirs(os.LookupEnv), CollectionsPath: installedCollections(os.LookupEnv)}
	if _, err := tasks.Scan(what, options); err != nil {
		return nil, fmt.Errorf("%w; nothing was written", err)
	}
	return contradictions(filepath.Join("roles", o.kind.Role))
}

// contradictions lists where the defaults of a role contradict its argument spec.
func contradictions(role string) (notes []string, err error) {
	found, err := scaffold.Mismatches(absolutePath(role))
	for _, m := range found {
		if !m.Undocumented {
			notes = append(notes, fmt.Sprintf("%s:%d: %s: change one of them", relative(m.File), m.Line, m.Message))
		}
	}
	return notes, err
}

// rulesFile has the permissions of a project's operator.
const rulesFile = "config/rbac/role.yaml"

// rulesFit tells whether the permissions are still as they were generated, so that they
// may be written again.
func (o *createAPIOptions) rulesFit(ctx context.Context, rules generateRBACOptions) (bool, error) {
	there, err := os.ReadFile(rulesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if len(o.kind.Project.Resources) == 0 {
		return strings.HasSuffix(strings.TrimSpace(string(there)), "rules: []"), nil
	}
	needs, gaps, err := rules.generate(ctx, io.Discard)
	return err == nil && rules.yaml(needs, gaps) == string(there), nil
}

func newGenerateCRDCommand() *cobra.Command {
	var o generateCRDOptions
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Bring the CRDs up to date with the argument specs of the roles",
		Long: `Bring the CRDs in config/crd/bases up to date with the roles that watches.yaml
names: with their argument specs (meta/argument_specs.yml), or else with their
defaults. Types, choices, required options, nested options and their rules become
the schema of the spec. What an argument spec cannot say is kept in the CRD: limits,
patterns, columns, other versions, comments.

The option foo_bar becomes the field fooBar, which the role gets as foo_bar. Defaults
are written only into the description, so that a new default of the role applies to
existing objects, too.

Changes that existing objects may violate (another type, a new required field, fewer
choices, a tighter limit) are listed, and nothing is written, except with
--allow-breaking.`,
		Example: `  rolewright generate crd
  rolewright generate crd --check`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	cmd.Flags().StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().StringVar(&o.from, "from", "", "What they are generated from: argspec or defaults. If empty, the argument spec, or the defaults if there is no argument spec.")
	cmd.Flags().BoolVar(&o.checkOnly, "check", false, "Write nothing, show the diff, and fail if a CRD is not up to date.")
	cmd.Flags().BoolVar(&o.allow, "allow-breaking", false, "Write changes that existing objects may violate.")
	o.bindOutput(cmd)
	return cmd
}

// generateCRDOptions are the flags of rolewright generate crd.
type generateCRDOptions struct {
	filesOptions

	watchesFile, from string
	checkOnly, allow  bool
}

func (o *generateCRDOptions) run(cmd *cobra.Command) error {
	o.start(cmd)
	definitions, notes, err := readDefinitions(o.watchesFile, o.from)
	if err != nil {
		return err
	}
	var files []scaffold.File
	var breaks []string
	for _, d := range definitions {
		files, breaks = append(files, d.File), append(breaks, d.Breaks...)
	}
	if o.checkOnly {
		return o.check(files, notes, `run "rolewright generate crd"`)
	}
	if len(breaks) > 0 && !o.allow {
		for _, n := range notes {
			fmt.Fprintln(o.stderr, "note:", n)
		}
		return fmt.Errorf("existing objects may no longer be valid:\n  %s\nadd a new version of the kind, or write the change with --allow-breaking", strings.Join(breaks, "\n  "))
	}
	o.force = true // what is there is merged into what is written
	return o.write(files, notes, "")
}

// specOf returns the path of what says what a spec is.
func specOf(c watches.Content) string {
	if c.Command != nil && c.Command.Chart != nil {
		return c.Command.Chart.Dir
	}
	return c.Role + c.Playbook
}

// readDefinitions returns the CRDs that are made from the roles of the watches, and notes
// about them.
func readDefinitions(watchesFile, from string) (all []scaffold.Definition, notes []string, err error) {
	if from != "" && from != scaffold.FromArgspec && from != scaffold.FromDefaults {
		return nil, nil, usage(fmt.Errorf("--from %q: argspec or defaults expected", from))
	}
	p, err := scaffold.Read(".")
	if err != nil {
		return nil, nil, usage(err)
	}
	watched, err := usableWatches(watchesFile, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	first := map[schema.GroupVersionKind]watches.Content{}
	for _, w := range watched {
		if used, again := first[w.GVK]; again {
			if specOf(used) != specOf(w.Content) {
				notes = append(notes, fmt.Sprintf("%s: several watches of %s run different content: the CRD is made from the first one", w.GVK.Kind, w.GVK.Version))
			}
			continue
		}
		d, err := scaffold.DefinitionOf(".", p, w, from, extravars.ToSnake, all...)
		if err != nil {
			return nil, nil, usage(err)
		}
		notes = slices.Concat(notes, d.Notes, d.Guessed)
		if w.Content.Role != "" && from != scaffold.FromDefaults {
			more, err := contradictions(w.Content.Role)
			if err != nil {
				return nil, nil, usage(err)
			}
			notes = append(notes, more...)
		}
		if d.File.Path != "" {
			first[w.GVK], all = w.Content, withDefinition(all, d)
		}
	}
	return all, notes, nil
}

// withDefinition adds the CRD of another watch. It replaces the one of an earlier version of the kind, from which it was made.
func withDefinition(all []scaffold.Definition, d scaffold.Definition) []scaffold.Definition {
	i := slices.IndexFunc(all, func(is scaffold.Definition) bool { return is.File.Path == d.File.Path })
	if i < 0 {
		return append(all, d)
	}
	d.Sample, d.Breaks = all[i].Sample+d.Sample, slices.Concat(all[i].Breaks, d.Breaks)
	all[i] = d
	return all
}

func newGenerateSampleCommand() *cobra.Command {
	var watchesFile, from string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Print an object of each kind",
		Long: `Print an object of each kind in watches.yaml, from the role's argument spec or its
defaults: options have their defaults, and required options a value that the schema
allows.`,
		Example: "  rolewright generate sample > config/samples/cache_v1_memcached.yaml",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			definitions, notes, err := readDefinitions(watchesFile, from)
			if err != nil {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
			}
			if len(definitions) == 0 {
				return usage(fmt.Errorf("%s has no kind for which a sample can be made: add one with \"rolewright create api\"", watchesFile))
			}
			for _, d := range definitions {
				if _, err := io.WriteString(cmd.OutOrStdout(), d.Sample); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().StringVar(&from, "from", "", "What they are generated from: argspec or defaults. If empty, the argument spec, or the defaults if there is no argument spec.")
	return cmd
}
