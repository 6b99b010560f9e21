package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/scaffold"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newGenerateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write manifests for an operator",
		Args:  explainArgument,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGenerateCRDCommand(), newGenerateSampleCommand(), newGenerateRBACCommand(),
		newGenerateArgspecCommand(), newGenerateSchemaCommand(), newGenerateChartCommand(), newGenerateBundleCommand(),
		newGenerateManifestsCommand(), newGenerateWebhooksCommand(), newGenerateHealthLuaCommand(),
		newGenerateAlertsCommand(), newGenerateDashboardCommand())
	return cmd
}

// generateRBACOptions are the flags of rolewright generate rbac.
type generateRBACOptions struct {
	watchesFile                  string
	name, output                 string
	namespaces, calls            []string
	definitions                  string
	scan, offline, strict, allow bool
	injectOwnerRef               bool
	// own are kinds whose CRDs may not have been written yet.
	own rbac.Catalog
	// jobs says whether to write the Role for runs as Jobs: some watch makes them, and there is no config/jobs.
	jobs bool
	contentPaths
}

func newGenerateRBACCommand() *cobra.Command {
	var o generateRBACOptions
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Write the RBAC rules that an operator needs, and no others",
		Long: `Write a ClusterRole, or Roles, with the permissions that an operator needs:

  its own     watch the kinds of the watches file, write their status, put
              finalizers on them, watch what the runs create
  of tasks    what the tasks of the roles and playbooks, templates and manifests
              name literally: module, apiVersion and kind (kubernetes.core,
              operator_sdk.util)
  of runs     what runs have requested: the files that "rolewright run
              --record-api-calls" has written

If a watch has "executor: job", a Role and a RoleBinding with what Jobs need in the
operator's namespace follow, unless config/jobs of the project has them. Their
namespace is "system", which kustomize replaces.

With --namespace no RoleBindings are written. Apply the Roles separately, with
RoleBindings of your own: config/default of a project has a ClusterRole.

Leases for leader election and reviews for protected metrics are not among them:
they are the same for every operator.

Everything else (a kind that is an expression, a command, a Helm chart, a module
of your own) is listed as not known, with file and line, on the standard error
and in a comment of the output, and the command fails with exit code 1: a role
that lacks permissions does not work. Record what runs request ("rolewright run
--record-api-calls", then --api-calls), or list it in a comment above or in the
task:

  # rolewright:rbac apps deployments,deployments/scale get,patch
  # rolewright:rbac core configmaps get
  # rolewright:rbac none

With --allow-unknown it succeeds anyway; with --strict it fails and writes nothing.
With --api-calls it fails only if the resource of a kind that the operator itself
watches or reads is not known: no record has those requests.

The resources of kinds are known for Kubernetes' own kinds and for those of the
CustomResourceDefinitions in --crd-dir. Others are looked up in the cluster, if
there is a kubeconfig.

Paths, environment variables and defaults count as they do for "run".`,
		Example: `  rolewright generate rbac --output config/rbac/role.yaml
  rolewright generate rbac --strict --offline
  rolewright generate rbac --namespace caches --scan=false --api-calls calls.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.bindFlags(cmd.Flags())
	completeFlag(cmd, "output", files("yaml", "yml"))
	completeFlag(cmd, "namespace", fromCluster(namespaces))
	return cmd
}

func (o *generateRBACOptions) bindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringVar(&o.name, "name", "manager-role", "The name of the ClusterRole or Roles.")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "Write a Role for this namespace instead of a ClusterRole; several, with commas or by repeating the flag. What is in no namespace stays in a ClusterRole.")
	fs.StringVarP(&o.output, "output", "o", "", "Write to this file, once all is known; to the standard output if empty.")
	fs.StringSliceVar(&o.calls, "api-calls", nil, "A file that \"run --record-api-calls\" has written; several, with commas or by repeating the flag.")
	fs.StringVar(&o.definitions, "crd-dir", defaultDefinitions, "A directory with CustomResourceDefinitions.")
	fs.BoolVar(&o.scan, "scan", true, "Read the tasks.")
	fs.BoolVar(&o.offline, "offline", false, "Do not contact the cluster.")
	fs.BoolVar(&o.strict, "strict", false, "Fail, and write nothing, if there is something that cannot be known.")
	fs.BoolVar(&o.allow, "allow-unknown", false, "Succeed even if some requests are not known.")
	fs.BoolVar(&o.injectOwnerRef, "inject-owner-ref", true, "As for \"run\".")
	o.contentPaths.bindFlags(fs)
}

// run writes the rules, and lists the gaps: what could not be found out.
func (o *generateRBACOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return usage(err)
	}
	needs, gaps, err := o.generate(ctx, stderr)
	if err != nil {
		return err
	}
	for _, g := range gaps {
		fmt.Fprintln(stderr, plaintext.OneLine(fmt.Sprintf("not known: %s: %s", g.Place, g.What)))
	}
	if len(gaps) > 0 && o.strict {
		return fmt.Errorf("%s not known (--strict): %s", counted(len(gaps), "place is", "places are"), recordIt)
	}
	text := o.yaml(needs, gaps)
	if o.output == "" {
		_, err = io.WriteString(stdout, text)
	} else if err = os.WriteFile(o.output, []byte(text), 0o644); err != nil {
		err = fmt.Errorf("--output: %w", err)
	}
	switch {
	case err != nil || o.allow || len(gaps) == 0:
		return err
	case len(o.calls) > 0:
		return ownUnknown(gaps, o.definitions)
	}
	return fmt.Errorf("%s not known, so the role may lack permissions: %s", counted(len(gaps), "place is", "places are"), recordIt)
}

// ownUnknown fails if the role lacks permissions without which the operator cannot work.
func ownUnknown(gaps []tasks.Gap, definitions string) error {
	for _, g := range gaps {
		if g.Own {
			return fmt.Errorf("%s: not known: %s: the operator cannot work with this role: put the CustomResourceDefinition below %s", g.Place, g.What, definitions)
		}
	}
	return nil
}

func (o *generateRBACOptions) yaml(needs rbac.Needs, gaps []tasks.Gap) string {
	return rbac.Role{Name: o.name, Namespaces: o.namespaces, Jobs: o.jobs}.YAML(needs, gaps)
}

// recordIt says what to do about gaps.
const recordIt = "record the requests with \"rolewright run --record-api-calls\" and give the file with --api-calls, " +
	"or list them in a comment of the task (see --help)"

func (o *generateRBACOptions) validate() error {
	var problems []error
	if o.name == "" || strings.ContainsAny(o.name, "/%") {
		problems = append(problems, fmt.Errorf("--name %q is not a name of a role: give one such as manager-role", o.name))
	}
	var err error
	if o.namespaces, err = validNamespaces(o.namespaces); err != nil {
		problems = append(problems, err)
	}
	if len(o.namespaces) > 0 && o.output != "" && same(o.output, rulesFile) && bindsClusterRole() {
		problems = append(problems, fmt.Errorf("--output %s: %s binds a ClusterRole, and config/default moves all that is there into the operator's namespace: "+
			"write the Roles for --namespace to a file elsewhere, and apply it with RoleBindings; or bind a Role there", o.output, bindingFile))
	}
	if !o.scan && len(o.calls) == 0 {
		problems = append(problems, errors.New("--scan=false leaves nothing to read: give a record of runs with --api-calls"))
	}
	return errors.Join(problems...)
}

// validNamespaces returns the values of --namespace sorted, each once.
func validNamespaces(names []string) ([]string, error) {
	var problems []error
	for _, name := range names {
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			problems = append(problems, fmt.Errorf("--namespace %q is not a name of a namespace: %s", name, why[0]))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), errors.Join(problems...)
}

// bindingFile binds the permissions of a project's operator.
const bindingFile = "config/rbac/role_binding.yaml"

var ofClusterRole = regexp.MustCompile(`(?m)^ *kind: *ClusterRole *$`)

func bindsClusterRole() bool {
	data, err := os.ReadFile(bindingFile)
	return err == nil && ofClusterRole.Match(data)
}

// generate adds up the needs. The files of gaps are relative to the working directory.
func (o *generateRBACOptions) generate(ctx context.Context, stderr io.Writer) (rbac.Needs, []tasks.Gap, error) {
	watched, err := usableWatches(o.watchesFile, o.lookupEnv)
	if err != nil {
		return nil, nil, err
	}
	o.jobs = makesJobs(watched) && !exists(scaffold.JobsRole)
	var calls []rbac.Call
	for _, path := range o.calls {
		more, err := rbac.ReadCalls(path)
		if err != nil {
			return nil, nil, usage(fmt.Errorf("--api-calls: %w", err))
		}
		calls = append(calls, more...)
	}
	find, err := finder(ctx, o.definitions, o.offline, stderr, o.own...)
	if err != nil {
		return nil, nil, err
	}
	out, err := rbac.Generate(rbac.Input{
		WatchesFile: o.watchesFile, Watches: watched, Calls: calls, Find: find, InjectOwnerRef: o.injectOwnerRef, Scan: o.scan, Events: true,
		RolesPath: assembly.RolesDirs(o.lookupEnv), CollectionsPath: installedCollections(o.lookupEnv),
	})
	if err != nil {
		return nil, nil, usage(err)
	}
	for i, g := range out.Gaps {
		out.Gaps[i].File = relative(absolutePath(g.File))
	}
	return out.Needs, rbac.SortGaps(out.Gaps), nil
}

// installedCollections returns the directories in which to look for collections, including
// those of a distribution's packages.
func installedCollections(lookupEnv func(string) (string, bool)) []string {
	return append(assembly.CollectionsDirs(lookupEnv), "/usr/lib/python3/dist-packages")
}

func absolutePath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// finder looks kinds up in own, in the built-in table, in a directory of definitions, and unless offline in the
// cluster. It asks the cluster once, and only for a kind that none of the others has.
func finder(ctx context.Context, definitions string, offline bool, stderr io.Writer, own ...rbac.Resource) (func(apiVersion, kind string) (rbac.Resource, bool), error) {
	known, err := rbac.Builtin()
	if err != nil {
		return nil, err
	}
	if err := checkDefinitions(definitions); err != nil {
		return nil, err
	}
	defined, err := rbac.ReadDefinitions(definitions)
	if err != nil {
		return nil, usage(fmt.Errorf("--crd-dir: %w", err))
	}
	known = slices.Concat(own, defined, known)
	var served rbac.Catalog
	asked := offline
	return func(apiVersion, kind string) (rbac.Resource, bool) {
		if r, ok := known.Find(apiVersion, kind); ok {
			return r, true
		}
		if !asked {
			asked = true
			if served, err = discoverAll(ctx); err != nil {
				fmt.Fprintf(stderr, "the cluster was not asked for kinds: %v\n", err)
			}
		}
		return served.Find(apiVersion, kind)
	}, nil
}

// discoverTimeout bounds each request of the single query to the cluster.
const discoverTimeout = 5 * time.Second

// discoverAll asks the cluster for its kinds. It leaves out groups that are broken.
func discoverAll(ctx context.Context) (rbac.Catalog, error) {
	c, err := findCluster(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	config := c.within(discoverTimeout)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c, err)
	}
	_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("ask %s for its kinds: %w", c, err)
	}
	return rbac.FromDiscovery(lists), nil
}
