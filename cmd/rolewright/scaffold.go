package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

func newInitCommand() *cobra.Command {
	var domain, name string
	var force, adopt bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the project of an operator in this directory",
		Long: `Make the project of an operator in this directory: Makefile, Dockerfile,
watches.yaml, the manifests below config/, and PROJECT, in the layout of
operator-sdk. "create api" adds kinds to it.

Called again it writes nothing. A file that exists with another text is shown,
and nothing is written, unless with --force.

With --from-operator-sdk it takes over the project that operator-sdk has made in
this directory: the lines of Dockerfile and Makefile that name ansible-operator
name Rolewright then, and nothing else changes.`,
		Example: `  rolewright init --domain example.com --name cache-operator
  rolewright init --from-operator-sdk`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if adopt {
				return adoptProject(cmd)
			}
			if name == "" {
				dir, err := os.Getwd()
				if err != nil {
					return err
				}
				name = strings.ToLower(filepath.Base(dir))
			}
			p, err := scaffold.New(domain, name)
			if err != nil {
				return usage(err)
			}
			switch there, err := scaffold.Read("."); {
			case err == nil && (there.Domain != domain || there.Name != name) && !force:
				return usage(fmt.Errorf("PROJECT is of %q in the domain %q: it is a project already; \"rolewright create api\" adds a kind", there.Name, there.Domain))
			case err == nil && len(there.Resources) > 0:
				fmt.Fprintln(cmd.ErrOrStderr(), "it is a project already, with kinds: nothing to do")
				return nil
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return usage(err)
			}
			files, err := p.Files()
			if err != nil {
				return err
			}
			return writeFiles(cmd.OutOrStdout(), cmd.ErrOrStderr(), files, force,
				"next: rolewright create api --group GROUP --version v1alpha1 --kind KIND")
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "example.com", "The domain of the API groups of all kinds.")
	cmd.Flags().StringVar(&name, "name", "", "The name of the operator: names of its objects begin with it; that of the directory if empty.")
	cmd.Flags().BoolVar(&force, "force", false, "Write over files that exist.")
	cmd.Flags().BoolVar(&adopt, "from-operator-sdk", false, "Take over the project of operator-sdk in this directory.")
	cmd.MarkFlagsMutuallyExclusive("from-operator-sdk", "domain")
	cmd.MarkFlagsMutuallyExclusive("from-operator-sdk", "name")
	return cmd
}

func adoptProject(cmd *cobra.Command) error {
	files, notes, err := scaffold.Adopt(".")
	if err != nil {
		return usage(err)
	}
	if err := writeFiles(cmd.OutOrStdout(), cmd.ErrOrStderr(), files, false,
		"next: rolewright validate, then rolewright dev; the migration guide has the differences"); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
	}
	return nil
}

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
	kind                 scaffold.Kind
	from                 string
	clusterScoped, force bool
}

func newCreateAPICommand() *cobra.Command {
	var o createAPIOptions
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Add a kind: its role, CRD, sample and permissions, and its entry in watches.yaml",
		Long: `Add a kind to the project in this directory: a role with its argument spec, the
CRD that is made of it, a sample, permissions, and an entry in watches.yaml.

A role or playbook that exists is used as it is, and the CRD is made of the
role's argument spec (meta/argument_specs.yml), or of its defaults.

Called again it writes nothing. A file that exists with another text is shown,
and nothing is written, unless with --force.`,
		Example: `  rolewright create api --group cache --version v1alpha1 --kind Memcached
  rolewright create api --group web --version v1 --kind Site --role site --finalizer
  rolewright create api --group infra --version v1 --kind Zone --playbook playbooks/zone.yml --cluster-scoped`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.kind.Group, "group", "", "The API group, to which the project's domain is added.")
	fs.StringVar(&o.kind.Version, "version", "", "The version, such as v1alpha1.")
	fs.StringVar(&o.kind.Kind, "kind", "", "The kind, such as Memcached.")
	fs.StringVar(&o.kind.Role, "role", "", "The role: one in roles/, or a new one; the kind in lower case if empty.")
	fs.StringVar(&o.kind.Playbook, "playbook", "", "Have a playbook run in place of the role: one that exists, or a new one that runs the role.")
	fs.StringVar(&o.from, "crd-from", "", "What the CRD is made of: argspec, defaults, or none for a spec that may be anything; the argument spec, or else the defaults, if empty.")
	fs.BoolVar(&o.clusterScoped, "cluster-scoped", false, "The objects are in no namespace.")
	fs.BoolVar(&o.kind.Finalizer, "finalizer", false, "Run for an object that is being deleted, too, with state=absent.")
	fs.BoolVar(&o.force, "force", false, "Write over files that exist.")
	return cmd
}

func (o *createAPIOptions) run(cmd *cobra.Command) error {
	p, err := scaffold.Read(".")
	if err != nil {
		return usage(err)
	}
	o.kind.Project, o.kind.Namespaced = p, !o.clusterScoped
	if o.kind.Role == "" {
		o.kind.Role = o.kind.Singular()
	}
	switch o.from {
	case "", scaffold.FromArgspec, scaffold.FromDefaults, scaffold.FromNone:
	default:
		return usage(fmt.Errorf("--crd-from %q: argspec, defaults or none expected", o.from))
	}
	fit, err := o.rulesFit(cmd)
	if err != nil {
		return err
	}
	files, notes, err := o.kind.All(".", o.from, extravars.ToSnake)
	if err != nil {
		return usage(err)
	}
	if err := writeFiles(cmd.OutOrStdout(), cmd.ErrOrStderr(), files, o.force, ""); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
	}
	again := []string{"generate", "rbac", "--offline", "--allow-unknown", "--output", rulesFile}
	if !fit {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s was changed by hand: look what it lacks with \"rolewright generate rbac\"\n", rulesFile)
		return nil
	}
	root := newRootCommand(programName)
	root.SetArgs(again)
	root.SetOut(cmd.OutOrStdout())
	root.SetErr(cmd.ErrOrStderr())
	if err := root.ExecuteContext(cmd.Context()); err != nil {
		return fmt.Errorf("the files are written, but for the permissions: %w", err)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "next: make dev, or make test")
	return nil
}

// rulesFile are the operator's permissions in a project.
const rulesFile = "config/rbac/role.yaml"

// rulesFit tells whether the permissions are as they were written, so that they
// may be written again.
func (o *createAPIOptions) rulesFit(cmd *cobra.Command) (bool, error) {
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
	rules := generateRBACOptions{watchesFile: "watches.yaml", name: "manager-role", definitions: defaultDefinitions, scan: true, offline: true, injectOwnerRef: true}
	needs, gaps, err := rules.generate(cmd.Context(), io.Discard)
	return err == nil && rules.yaml(needs, gaps) == string(there), nil
}

func newGenerateCRDCommand() *cobra.Command {
	var watchesFile, from string
	var check, allow bool
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
			return generateCRDs(cmd, watchesFile, from, check, allow)
		},
	}
	cmd.Flags().StringVar(&watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	cmd.Flags().StringVar(&from, "from", "", "What they are made of: argspec or defaults; the argument spec, or else the defaults, if empty.")
	cmd.Flags().BoolVar(&check, "check", false, "Write nothing, and fail if a CRD is not up to date.")
	cmd.Flags().BoolVar(&allow, "allow-breaking", false, "Write changes that objects which exist may violate.")
	return cmd
}

func generateCRDs(cmd *cobra.Command, watchesFile, from string, check, allow bool) error {
	definitions, err := readDefinitions(cmd.ErrOrStderr(), watchesFile, from)
	if err != nil {
		return err
	}
	var files []scaffold.File
	var breaks []string
	for _, d := range definitions {
		files, breaks = append(files, d.File), append(breaks, d.Breaks...)
	}
	if check {
		return checkFiles(files)
	}
	if len(breaks) > 0 && !allow {
		return fmt.Errorf("objects that exist may not be valid any more:\n  %s\nmake a new version of the kind, or write it with --allow-breaking", strings.Join(breaks, "\n  "))
	}
	return writeFiles(cmd.OutOrStdout(), cmd.ErrOrStderr(), files, true, "")
}

// readDefinitions returns what is made of the roles of the watches, and prints
// the notes about it.
func readDefinitions(stderr io.Writer, watchesFile, from string) ([]scaffold.Definition, error) {
	p, err := scaffold.Read(".")
	if err != nil {
		return nil, usage(err)
	}
	watched, problems, err := watches.Load(watchesFile, watches.Options{})
	if err != nil {
		return nil, usage(problemsError(err, problems))
	}
	var all []scaffold.Definition
	for _, w := range watched {
		d, err := scaffold.DefinitionOf(".", p, w, from, extravars.ToSnake)
		if err != nil {
			return nil, err
		}
		for _, n := range append(d.Notes, d.Guessed...) {
			fmt.Fprintln(stderr, "note:", n)
		}
		if d.File.Path != "" {
			all = append(all, d)
		}
	}
	return all, nil
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
			definitions, err := readDefinitions(cmd.ErrOrStderr(), watchesFile, from)
			if err != nil {
				return err
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

// checkFiles fails if a file has another text.
func checkFiles(files []scaffold.File) error {
	var stale []string
	for _, f := range files {
		if there, err := os.ReadFile(f.Path); err != nil || string(there) != f.Text {
			stale = append(stale, f.Path)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("not up to date with the roles: %s; run \"rolewright generate crd\"", strings.Join(stale, ", "))
	}
	return nil
}

// writeFiles writes into this directory, and lists what it did.
func writeFiles(out, stderr io.Writer, files []scaffold.File, force bool, next string) error {
	changes, err := scaffold.Write(".", files, force)
	if err != nil {
		return usage(fmt.Errorf("%w\nnothing was written; --force writes over what is there", err))
	}
	same := 0
	for _, c := range changes {
		if c.Did == "unchanged" {
			same++
			continue
		}
		fmt.Fprintf(out, "%-8s %s\n", c.Did, c.Path)
	}
	if same == len(changes) {
		fmt.Fprintln(stderr, "nothing to do: all files are as they would be written")
	} else if next != "" {
		fmt.Fprintln(stderr, next)
	}
	return nil
}
