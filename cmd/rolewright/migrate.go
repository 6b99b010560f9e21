package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/internal/migrate"
	"github.com/rolewright/rolewright/internal/version"
)

func newMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Take over an operator that was made for ansible-operator",
		Args:  explainArgument,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMigrateReportCommand(), newMigrateSimulateCommand(), newMigrateApplyCommand())
	return cmd
}

// Where images of ansible-operator and of helm-operator have the content.
const (
	imageHome  = "/opt/ansible"
	chartsHome = "/opt/helm"
)

// migrateOptions are the flags of migrate report and migrate apply.
type migrateOptions struct {
	file, image, deployment, output, level string
	dryRun                                 bool
}

func newMigrateReportCommand() *cobra.Command {
	var o migrateOptions
	cmd := &cobra.Command{
		Use:   "report [DIR]",
		Short: "Say whether Rolewright can replace ansible-operator, and what is different",
		Long: `Read the project in a directory, by default this one, and say in the first line whether
Rolewright can replace ansible-operator without changes. Then it lists the places where the
two behave differently: what each does, the setting that restores the old behaviour, and
what to do. Nothing is written.

  blocked    does not work until you change it
  change     a line that refers to ansible-operator
  different  works, but behaves differently
  better     what ansible-operator gets wrong
  unread     could not be compared

With --root it reads the content of an image whose files were copied into a directory.
With --deployment it reads the operator in the cluster of the kubeconfig, and a project
only if DIR is given, too.

docs/migration.md has all differences; some cannot be seen in files. "rolewright explain
RW601" says more about a rule. The exit code is 1 if something is blocked.`,
		Example: `  rolewright migrate report
  rolewright migrate report --root image/
  rolewright migrate report --deployment caches/cache-operator-controller-manager -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.report(cmd, args) },
	}
	o.bindFile(cmd.Flags())
	cmd.Flags().StringVar(&o.image, "root", "", "A directory with the root file system of an image.")
	cmd.Flags().StringVar(&o.deployment, "deployment", "", "The operator's Deployment in the cluster, as NAMESPACE/NAME.")
	cmd.Flags().StringVarP(&o.output, "output", "o", outputText, "How to print the result: text, json or sarif.")
	return cmd
}

func (o *migrateOptions) bindFile(fs *pflag.FlagSet) {
	fs.StringVar(&o.file, "watches-file", "", "The watches file, relative to the project; all files watches*.yaml if empty.")
}

// known returns what the project is compared with.
func (o *migrateOptions) known() migrate.Options {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&runOptions{}).BindFlags(flags)
	return migrate.Options{
		KnownFlag: func(name string) bool {
			return flags.Lookup(name) != nil || len(name) == 1 && flags.ShorthandLookup(name) != nil
		},
		Variable:    lostVariable,
		WatchesFile: o.file,
		Image:       o.image != "",
		LookupEnv: func(name string) (string, bool) {
			switch {
			case name == "HOME":
				return o.home(), true
			case o.image == "":
				return os.LookupEnv(name)
			case name == envCollectionsPath:
				return filepath.Join(o.image, imageHome, ".ansible/collections") + ":" + filepath.Join(o.image, "usr/share/ansible/collections"), true
			}
			return "", false
		},
	}
}

// lostVariable says why a key of a spec becomes no variable; empty if it becomes one.
func lostVariable(key string) string {
	_, notices := extravars.Vars(map[string]any{"spec": map[string]any{key: "x"}}, extravars.Options{Group: "x", Kind: "X", SnakeCase: true, MarkUnsafe: true})
	for _, n := range notices {
		switch n.Kind {
		case extravars.ReservedVariable:
			return "makes no variable of it, since Ansible reserves the name; the variable of the whole spec has it"
		case extravars.ExpressionName:
			return "makes no variable of it, since Ansible could evaluate the name; the variable of the whole spec has it"
		}
	}
	return ""
}

func (o *migrateOptions) report(cmd *cobra.Command, args []string) error {
	if !slices.Contains([]string{outputText, outputJSON, outputSARIF}, o.output) {
		return usage(fmt.Errorf("--output must be text, json or sarif, not %q", o.output))
	}
	result := migrate.Report{Differences: []migrate.Difference{}, Skipped: []string{}}
	if len(args) > 0 || o.image != "" || o.deployment == "" {
		dir, err := o.dir(args)
		if err != nil {
			return err
		}
		if result, err = migrate.Read(dir, o.known()); err != nil {
			return usage(err)
		}
	}
	if o.deployment != "" {
		running, err := o.ofDeployment(cmd.Context())
		if err != nil {
			return err
		}
		result.Merge(running)
	}
	var err error
	switch o.output {
	case outputJSON:
		err = printJSON(cmd.OutOrStdout(), struct {
			DropIn bool `json:"dropIn"`
			migrate.Report
		}{result.DropIn(), result})
	case outputSARIF:
		err = lint.SARIF(cmd.OutOrStdout(), migrate.LintRules(), result.Findings(), version.Read().Version)
	default:
		err = printMigrateReport(cmd.OutOrStdout(), result)
	}
	if err == nil && !result.DropIn() {
		err = errInvalid
	}
	return err
}

// home returns the directory of the content in the image.
func (o *migrateOptions) home() string {
	if o.image != "" && !exists(filepath.Join(o.image, imageHome)) && exists(filepath.Join(o.image, chartsHome)) {
		return chartsHome
	}
	return imageHome
}

// dir returns the directory of the project.
func (o *migrateOptions) dir(args []string) (string, error) {
	switch {
	case o.image != "" && len(args) > 0:
		return "", usage(errors.New("give a directory or --root, not both"))
	case o.image != "":
		absolute, err := filepath.Abs(o.image)
		if err != nil {
			return "", err
		}
		o.image = absolute // paths below it are also used from other directories
		return filepath.Join(absolute, o.home()), nil
	case len(args) > 0:
		return args[0], nil
	}
	return ".", nil
}

// ofDeployment makes the report of the operator in the cluster.
func (o *migrateOptions) ofDeployment(ctx context.Context) (migrate.Report, error) {
	namespace, name, ok := strings.Cut(o.deployment, "/")
	if !ok || namespace == "" || name == "" {
		return migrate.Report{}, usage(fmt.Errorf("--deployment must be NAMESPACE/NAME, not %q", o.deployment))
	}
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return migrate.Report{}, unreachable(err)
	}
	client, err := kubernetes.NewForConfig(found.config)
	if err != nil {
		return migrate.Report{}, unreachable(err)
	}
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return migrate.Report{}, unreachable(fmt.Errorf("read the Deployment %s: %w", o.deployment, err))
	}
	d.TypeMeta = metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"}
	text, err := yaml.Marshal(d)
	if err != nil {
		return migrate.Report{}, err
	}
	return migrate.Deployment("deployment/"+o.deployment, text, o.known())
}

// printMigrateReport prints the verdict, then the places as compilers do. Places with the
// same explanation share one, below.
func printMigrateReport(out io.Writer, r migrate.Report) error {
	var text strings.Builder
	text.WriteString("DROP-IN: " + map[bool]string{true: "yes", false: "no"}[r.DropIn()])
	for _, s := range migrate.Severities() {
		if n := r.Count(s); n > 0 {
			fmt.Fprintf(&text, ", %d %s", n, s)
		}
	}
	text.WriteString("\n")
	for i, d := range r.Differences {
		explanation := d.Explanation()
		if i == 0 || r.Differences[i-1].Rule != d.Rule || !slices.Equal(r.Differences[i-1].Explanation(), explanation) {
			text.WriteString("\n")
		}
		place := d.File
		if d.Line > 0 {
			place += fmt.Sprintf(":%d", d.Line)
		}
		fmt.Fprintf(&text, "%s: %s: %s [%s]\n", place, d.Severity, d.Text, d.Rule)
		if i+1 < len(r.Differences) && r.Differences[i+1].Rule == d.Rule && slices.Equal(r.Differences[i+1].Explanation(), explanation) {
			continue
		}
		for _, part := range explanation {
			fmt.Fprintf(&text, "    %-17s %s\n", part[0]+":", part[1])
		}
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintf(&text, "\nnot looked at: %s\n", strings.Join(r.Skipped, ", "))
	}
	_, err := io.WriteString(out, text.String())
	return err
}
