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
CRD that is made of it, a sample, permissions, and an entry in watches.yaml.

A role or playbook that exists is used as it is, and the CRD is made of the
role's argument spec (meta/argument_specs.yml), or of its defaults. A CRD that
exists keeps what is written by hand, and gets the version where it has others.

With --helm-chart, objects of the kind have releases of a chart: a directory, or the
archive that "helm package" makes. It is copied into helm-charts/. The CRD is made
of its values.schema.json, or of the types in its values.yaml; the sample names only
what the chart has no value for; the permissions are those for what its templates
make. The group is then charts, the version v1alpha1, and the kind the chart's name,
where none is given. With --force, a newer version of the chart is copied over the one
that is there; what the newer one does not have is named, and stays.

Called again it writes nothing. Where a file exists with another text, the diff is
shown and nothing is written, unless with --force. An entry of the kind in
watches.yaml is never changed: nothing is written where it has another role,
playbook or chart, or no finalizer with --finalizer.`,
		Example: `  rolewright create api --group cache --version v1alpha1 --kind Memcached
  rolewright create api --group web --version v1 --kind Site --role site --finalizer
  rolewright create api --group infra --version v1 --kind Zone --playbook playbooks/zone.yml --cluster-scoped
  rolewright create api --group shop --version v1 --helm-chart ../charts/shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.kind.Group, "group", "", "The API group, to which the project's domain is added; give \"\" for the domain alone.")
	fs.StringVar(&o.kind.Version, "version", "", "The version, such as v1alpha1.")
	fs.StringVar(&o.kind.Kind, "kind", "", "The kind, such as Memcached.")
	fs.StringVar(&o.kind.Role, "role", "", "The role: one in roles/, or a new one; the kind in lower case if empty.")
	fs.StringVar(&o.kind.Playbook, "playbook", "", "Have a playbook run in place of the role: one that exists, or a new one that runs the role.")
	fs.StringVar(&o.from, "crd-from", "", "What the CRD is made of: argspec, defaults, or none for a spec that may be anything; the argument spec, or else the defaults, if empty.")
	fs.StringVar(&o.chart, "helm-chart", "", "Have a Helm chart installed for each object in place of the role: a directory or an archive.")
	fs.BoolVar(&o.clusterScoped, "cluster-scoped", false, "The objects are in no namespace.")
	fs.BoolVar(&o.kind.Finalizer, "finalizer", false, "Run for an object that is being deleted, too, with state=absent.")
	fs.BoolVar(&o.force, "force", false, "Write over files that exist.")
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
		return fmt.Errorf("the files are written, but for the permissions: %w", err)
	}
	fmt.Fprintln(o.stderr, "next: make dev, or make test")
	return nil
}

// takeChart reads the chart, and takes from it what the flags do not say.
func (o *createAPIOptions) takeChart(cmd *cobra.Command) (err error) {
	if watches.ChartProgramIn(os.Getenv("PATH")) == "" {
		return fmt.Errorf("%s, which runs charts, is neither beside rolewright nor in PATH, and nothing was written: run \"make build\" in a checkout of Rolewright, and put its bin/ in PATH", watches.ChartProgram)
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
the schema of the spec. What an argument spec does not say is kept as it is in
the CRD: limits, patterns, columns, other versions, comments.

An option becomes the field from which its variable is made: foo_bar becomes
fooBar. A default is part of the description only, so that a new default of the
role applies to objects that exist.

Changes that objects which exist may violate are listed, and nothing is written,
unless with --allow-breaking: another type, a new required field, fewer choices.`,
		Example: `  rolewright generate crd
  rolewright generate crd --check`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	cmd.Flags().StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().StringVar(&o.from, "from", "", "What they are made of: argspec or defaults; the argument spec, or else the defaults, if empty.")
	cmd.Flags().BoolVar(&o.checkOnly, "check", false, "Write nothing, show the diff, and fail if a CRD is not up to date.")
	cmd.Flags().BoolVar(&o.allow, "allow-breaking", false, "Write changes that objects which exist may violate.")
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
		return fmt.Errorf("objects that exist may not be valid any more:\n  %s\nmake a new version of the kind, or write it with --allow-breaking", strings.Join(breaks, "\n  "))
	}
	o.force = true // what is there is merged into what is written
	return o.write(files, notes, "")
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
	for _, w := range watched {
		d, err := scaffold.DefinitionOf(".", p, w, from, extravars.ToSnake)
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
			all = append(all, d)
		}
	}
	return all, notes, nil
}

func newGenerateSampleCommand() *cobra.Command {
	var watchesFile, from string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Print an object of each kind",
		Long: `Print an object of each kind that watches.yaml names, made of the role's argument
spec or of its defaults: with the values of the defaults, and for a required
option with one that the schema allows.`,
		Example: "  rolewright generate sample > config/samples/cache_v1_memcached.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			definitions, notes, err := readDefinitions(watchesFile, from)
			if err != nil {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
			}
			if len(definitions) == 0 {
				return usage(fmt.Errorf("%s has no kind of which a sample can be made: add one with \"rolewright create api\"", watchesFile))
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
	cmd.Flags().StringVar(&from, "from", "", "What they are made of: argspec or defaults; the argument spec, or else the defaults, if empty.")
	return cmd
}
