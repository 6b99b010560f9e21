package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/config"
	"github.com/rolewright/rolewright/internal/manifests"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

const (
	// chartSources are the parts of the chart that a project writes by hand.
	chartSources = "config/chart"
	firstVersion = "0.1.0"
)

func newGenerateChartCommand() *cobra.Command {
	var output, version string
	cmd := &cobra.Command{
		Use:   "chart",
		Short: "Make a Helm chart from the manifests on standard input",
		Long: `Make a Helm chart from the manifests on standard input, which kustomize builds from
config/default. Image, resources, namespaces, permissions, metrics, alerts,
dashboards and network policies become values; jobs.enabled is true if a watch of
watches.yaml has "executor: job".

Files in config/chart, such as Chart.yaml, values.yaml or templates/NOTES.txt, replace
the generated ones.`,
		Example: "  kubectl kustomize config/default | rolewright generate chart",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, stream, err := versionAndManifests(version, cmd.InOrStdin())
			if err != nil {
				return err
			}
			var own fs.FS
			if _, err := os.Stat(chartSources); err == nil {
				own = os.DirFS(chartSources)
			}
			// "rolewright lint" says what is wrong in it.
			watched, _, _ := watches.Load("watches.yaml", watches.Options{LookupEnv: os.LookupEnv})
			files, err := manifests.Chart(stream, version, own, makesJobs(watched))
			if err != nil {
				return usage(err)
			}
			if err := checkChartOutput(output, files["Chart.yaml"]); err != nil {
				return usage(err)
			}
			return replaceDirectory(cmd, output, "Chart.yaml", files)
		},
	}
	cmd.Flags().StringVar(&output, "output", "dist/chart", "The directory of the chart; it is replaced.")
	completeFlag(cmd, "output", directories)
	cmd.Flags().StringVar(&version, "version", "", "The version; that of config/chart/Chart.yaml if empty, or else "+firstVersion+".")
	return cmd
}

// versionAndManifests returns what chart and bundle are made of.
func versionAndManifests(given string, stdin io.Reader) (version string, stream []byte, err error) {
	if version, err = projectVersion(given); err != nil {
		return "", nil, usage(err)
	}
	stream, err = io.ReadAll(stdin)
	return version, stream, err
}

func newGenerateBundleCommand() *cobra.Command {
	var image, version string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Make an OLM bundle from the manifests on standard input",
		Long: `Make an OLM bundle from the manifests on standard input, which kustomize builds from
config/manifests: those of config/default, the samples, and a ClusterServiceVersion.
The Deployment, permissions, kinds and samples are written into the
ClusterServiceVersion. The bundle is written to bundle/, and bundle.Dockerfile builds
its image. bundle/manifests/ is replaced; other files in bundle/, such as
metadata/dependencies.yaml, are kept.`,
		Example: "  kubectl kustomize config/manifests | rolewright generate bundle --version 0.2.0 --image REGISTRY/cache-operator:v0.2.0",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, stream, err := versionAndManifests(version, cmd.InOrStdin())
			if err != nil {
				return err
			}
			files, dockerfile, err := manifests.Bundle(stream, version, image)
			if err != nil {
				return usage(err)
			}
			if err := isOwnBundle(dockerfile); err != nil {
				return usage(err)
			}
			if err := replaceDirectory(cmd, "bundle", "metadata/annotations.yaml", files, "manifests"); err != nil {
				return err
			}
			return os.WriteFile(bundleDockerfile, dockerfile, 0o644)
		},
	}
	cmd.Flags().StringVar(&image, "image", "", "The operator's image; that of the Deployment if empty.")
	cmd.Flags().StringVar(&version, "version", "", "The version; that of config/chart/Chart.yaml if empty, or else "+firstVersion+".")
	return cmd
}

const bundleDockerfile = "bundle.Dockerfile"

// isOwnBundle refuses to overwrite a bundle that another tool, such as operator-sdk, has made: the Dockerfile of a bundle
// from this command has the same first line as the new one.
func isOwnBundle(dockerfile []byte) error {
	mark, _, _ := bytes.Cut(dockerfile, []byte("\n"))
	is, err := os.ReadFile(bundleDockerfile)
	if err == nil && !bytes.HasPrefix(is, mark) {
		return fmt.Errorf("%s: its first line is not %q: this command did not write it; move it and bundle/ away, and copy back what you wrote there", bundleDockerfile, mark)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func newGenerateAlertsCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print manifests to scrape the operator's metrics, and its alerts",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				p, err := scaffold.Read(".")
				if err != nil {
					return usage(fmt.Errorf("%w; or give --name", err))
				}
				name = p.Name
			}
			if err := scaffold.CheckName(name); err != nil {
				return usage(err)
			}
			data, err := manifests.Common("prometheus", name)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "The operator's name: the label app.kubernetes.io/name of its Pods; that of PROJECT if empty.")
	return cmd
}

func newGenerateDashboardCommand() *cobra.Command {
	all := config.Dashboards()
	return &cobra.Command{
		Use:   "dashboard [" + strings.Join(all, "|") + "]",
		Short: "Print a Grafana dashboard for operators",
		Long: `Print a Grafana dashboard; choose the operator in it. The dashboards link to each
other.

  overview  all kinds: what fails, what waits; the default
  kind      the runs for one kind
  process   the operator itself: its process, its requests, its fork server`,
		Example: `  rolewright generate dashboard > overview.json
  rolewright generate dashboard kind > kind.json`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: all,
		RunE: func(cmd *cobra.Command, args []string) error {
			which := all[0]
			if len(args) > 0 {
				which = args[0]
			}
			if !slices.Contains(all, which) {
				return usage(fmt.Errorf("%q is not a dashboard: give one of %s", which, strings.Join(all, ", ")))
			}
			data, err := config.Files.ReadFile("grafana/" + which + ".json")
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
}

// projectVersion returns the given version, or else the one in the project's own Chart.yaml.
func projectVersion(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	path := chartSources + "/Chart.yaml"
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return firstVersion, nil
	}
	var chart struct {
		Version string `json:"version"`
	}
	if err == nil {
		err = yaml.Unmarshal(data, &chart)
	}
	if err != nil || chart.Version == "" {
		return "", errors.Join(fmt.Errorf("%s: set version", path), err)
	}
	return chart.Version, nil
}

// checkChartOutput refuses a directory with a chart that people write: config/chart, and a chart with another name.
func checkChartOutput(dir string, made []byte) error {
	if same(dir, chartSources) {
		return fmt.Errorf("--output %s: this directory has files written by hand; choose another one", dir)
	}
	there, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil //nolint:nilerr // replaceDirectory looks at it
	}
	var was, is struct {
		Name string `json:"name"`
	}
	if err := yaml.Unmarshal(made, &is); err != nil {
		return err
	}
	if yaml.Unmarshal(there, &was) != nil || was.Name != is.Name {
		return fmt.Errorf("--output %s: it has the chart %q, and this command writes the chart %q: remove the directory, or choose another one", dir, was.Name, is.Name)
	}
	return nil
}

// replaceDirectory replaces a directory, or only parts of it. A directory with files in it must contain
// the marker, which shows that the command has made it before.
func replaceDirectory(cmd *cobra.Command, dir, marker string, files map[string][]byte, parts ...string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
			return usage(fmt.Errorf("%s exists, and has no %s: it was not made by this command; remove it, or give another directory", dir, marker))
		}
	}
	if len(parts) == 0 {
		parts = []string{"."}
	}
	for _, part := range parts {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d files\n", dir, len(files))
	return nil
}
