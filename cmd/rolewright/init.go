package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

func newInitCommand() *cobra.Command {
	var o filesOptions
	var domain, name, plugins string
	var adopt bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the project of an operator in this directory",
		Long: `Make the project of an operator in this directory: Makefile, Dockerfile,
watches.yaml, the manifests below config/, and PROJECT, in the layout of
operator-sdk. "create api" adds kinds to it.

If called again, it changes nothing. If a file exists with different content, the diff
is shown and nothing is written, except with --force. This does not apply to README.md
and .gitignore, which a new repository may already have: they are kept. A project with
kinds but without Makefile and Dockerfile, such as a copied example, gets the files that
it lacks outside config; "rolewright generate manifests" writes the rest.

With --plugins helm it is a project of Helm charts: "create api --helm-chart" adds
kinds to it.

With --from-operator-sdk it takes over the project that operator-sdk has made in
this directory: in Dockerfile and Makefile, the lines with ansible-operator are changed
to Rolewright, and nothing else changes.`,
		Example: `  rolewright init --domain example.com --name cache-operator
  rolewright init --domain example.com --plugins helm
  rolewright init --from-operator-sdk`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("unexpected argument %q: init makes the project in the current directory; make a directory, change to it, and call init there", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.start(cmd)
			if adopt {
				return o.adopt()
			}
			return o.initProject(domain, name, plugins, cmd.Flags().Changed)
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "example.com", "The domain of the API groups of all kinds.")
	cmd.Flags().StringVar(&name, "name", "", "The name of the operator, with which the names of its objects begin. If empty, the name of the directory.")
	cmd.Flags().StringVar(&plugins, "plugins", "ansible", "What the kinds are for: ansible, or helm for a project without roles and playbooks.")
	completeFlag(cmd, "plugins", fixed("ansible", "helm"))
	cmd.Flags().BoolVar(&o.force, "force", false, "Overwrite existing files.")
	o.bindOutput(cmd)
	cmd.Flags().BoolVar(&adopt, "from-operator-sdk", false, "Take over the project of operator-sdk in this directory.")
	cmd.MarkFlagsMutuallyExclusive("from-operator-sdk", "domain")
	cmd.MarkFlagsMutuallyExclusive("from-operator-sdk", "name")
	return cmd
}

// initProject makes a project, or completes an existing one, which it does not turn into
// another project.
func (o *filesOptions) initProject(domain, name, plugins string, given func(flag string) bool) error {
	there, err := scaffold.Read(".")
	isProject := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usage(err)
	}
	if len(there.Resources) > 0 && !given("domain") && !given("name") {
		domain, name = there.Domain, there.Name
	}
	if name == "" {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		name = strings.ToLower(filepath.Base(dir))
		if len(validation.IsDNS1123Label(name)) > 0 {
			return usage(fmt.Errorf("the name of this directory, %q, is not valid for an operator: lower-case letters, digits and - expected; set another one with --name", name))
		}
	}
	if isProject && there.Charts() && !given("plugins") {
		plugins = "helm"
	}
	p := there
	if err = nil; len(there.Resources) == 0 || there.Domain != domain || there.Name != name {
		p, err = scaffold.New(domain, name)
	}
	p, wrong := forPlugins(p, plugins)
	if err = errors.Join(err, wrong); err != nil {
		return usage(err)
	}
	switch {
	case isProject && (there.Domain != domain || there.Name != name) && (!o.force || len(there.Resources) > 0):
		return usage(fmt.Errorf("this is already a project: PROJECT has the name %q and the domain %q; \"rolewright create api\" adds a kind", there.Name, there.Domain))
	case len(there.Resources) > 0 && !exists("Makefile") && !exists("Dockerfile"):
		return o.completeProject(p)
	case len(there.Resources) > 0:
		fmt.Fprintln(o.stderr, "this is already a project with kinds: nothing to do; \"rolewright generate manifests\" writes what is missing in config")
		return o.print(nil, nil)
	}
	files, err := p.Files()
	if err != nil {
		return err
	}
	return o.write(files, nil, nextKind(p))
}

// nextKind says what people do next with a new project.
func nextKind(p scaffold.Project) string {
	if p.Charts() {
		return "next: rolewright create api --group GROUP --helm-chart CHART"
	}
	return "next: rolewright create api --group GROUP --version v1alpha1 --kind KIND"
}

// forPlugins returns the project for what operator-sdk calls plugins.
func forPlugins(p scaffold.Project, plugins string) (scaffold.Project, error) {
	switch word, _, _ := strings.Cut(plugins, "."); word {
	case "ansible":
		return p, nil
	case "helm":
		return p.ForCharts(), nil
	}
	return p, fmt.Errorf("--plugins %q: ansible or helm expected; for commands, copy examples/microservice-bash", plugins)
}

// completeProject writes what a project with kinds lacks outside config: files, and directories that the Dockerfile copies.
func (o *filesOptions) completeProject(p scaffold.Project) error {
	p.Commands = commandFiles()
	files, err := p.Files()
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f scaffold.File) bool {
		path := filepath.FromSlash(f.Path)
		if filepath.Base(path) == ".gitkeep" {
			path = filepath.Dir(path)
		}
		return strings.HasPrefix(f.Path, "config/") || exists(path)
	})
	return o.write(files, nil, "next: rolewright generate manifests")
}

// commandFiles returns the project's files and directories that its commands consist of.
// It returns none if a watch has a role or playbook.
func commandFiles() (names []string) {
	watched, _, err := watches.Load("watches.yaml", watches.Options{})
	if err != nil {
		return nil // the project is not complete: validate says what is wrong
	}
	for _, w := range watched {
		for _, content := range w.Contents() {
			if content.Command == nil {
				return nil
			}
			for _, file := range content.Command.Files() {
				if rel, err := filepath.Rel(content.Command.Dir, file); err == nil && filepath.IsLocal(rel) {
					top, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
					names = append(names, top)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// exists tells whether a path exists, or may exist.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// adopt takes over a project of operator-sdk.
func (o *filesOptions) adopt() error {
	files, notes, err := scaffold.Adopt(".")
	if err != nil {
		return usage(err)
	}
	return o.write(files, notes, "next: rolewright validate, then rolewright dev; the migration guide has the differences")
}
