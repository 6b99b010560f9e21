package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/internal/watches"
)

// doctorOptions are the flags of rolewright doctor.
type doctorOptions struct {
	ansibleRunner, executor  string
	trustLine                bool
	watchesFile, definitions string
	runnerRoot               string
	maxConcurrent, maxRuns   int
	contentPaths
	user                     string
	leaderNamespace          string
	output                   string
	leaderElect, requireRBAC bool
	shards                   shardCount
	jobOptions
	offline, strict bool
}

func newDoctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether an operator has what it needs, here and in the cluster",
		Long: `Check whether an operator would have what it needs on this machine, with this
environment and in the cluster of the kubeconfig: one line for each finding, with
what to do about it. Ansible is run; nothing is changed. Run it where the operator
runs, as its user.

  Ansible      which ansible-core, ansible-runner, Python, Kubernetes client and
               kubernetes.core are found
  executor     whether runs can be forked: the operator's self-check at start
  places       whether the runner root, TMPDIR, HOME and Ansible's directories
               are writable, and who else can write to them
  limits       memory, processes and CPUs of the control group, for the number of
               runs at a time that the flags allow
  watches      whether the watches file and its content can be read
  kinds        whether the watched kinds are installed, with a status
               subresource and a schema that keeps what is written
  permissions  whether the cluster lets the operator do what the watches and
               their tasks need, elect a leader, and authorize clients of its
               metrics; --as checks another user than the kubeconfig's
  Jobs         with "executor: job" in a watch: the permissions in the namespace
               of the Jobs, whether it admits them and their Pods (a dry run), and
               whether an operator answers at --job-url

The first word of a line is "ok", "note" for what costs only speed or safety
margin, "failed" for what must be fixed, or "left out" for a check that was
skipped; the last line counts those. The exit code is 1 if a check has failed,
with --strict also if one was skipped, else 0.

With -o json one object is printed: healthy, failed, leftOut (how many) and
findings, a list of objects with check, state, found and remedy.`,
		Example: `  rolewright doctor
  rolewright doctor --as system:serviceaccount:caches:controller-manager --leader-elect
  rolewright doctor --offline --executor=warm -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.bindFlags(cmd.Flags())
	textOrJSON(cmd, &o.output, "result")
	return cmd
}

func (o *doctorOptions) bindFlags(fs *pflag.FlagSet) {
	bindAnsibleRunner(fs, &o.ansibleRunner)
	fs.StringVar(&o.executor, "executor", string(watches.ExecutorAuto), "The operator's executor, as for \"run\": auto, warm, runner or job. If runs cannot be forked, that is a note with auto, and a failed check with warm.")
	fs.BoolVar(&o.trustLine, "executor-trust-line", false, "As for \"run\".")
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringVar(&o.definitions, "crd-dir", defaultDefinitions, "A directory with CustomResourceDefinitions, for kinds that the cluster does not know.")
	fs.StringVar(&o.runnerRoot, "runner-root", "/tmp/ansible-operator/runner", "As for \"run\".")
	fs.IntVar(&o.maxConcurrent, "max-concurrent-reconciles", runtime.GOMAXPROCS(0), "As for \"run\".")
	fs.IntVar(&o.maxRuns, "max-concurrent-runs", 0, "As for \"run\".")
	// The default depends on the machine, as in the flags of run.
	fs.Lookup("max-concurrent-reconciles").DefValue = "the CPUs that the process may use"
	o.contentPaths.bindFlags(fs)
	fs.StringVar(&o.user, "as", "", "Check the permissions of this user, such as system:serviceaccount:NAMESPACE:NAME. You need the permission to impersonate it.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "As for \"run\": with it, a missing permission for the Lease is a failed check; without it, a note.")
	fs.Var(&o.shards, "shards", "As for \"run\": a missing permission for the Leases of shards is a failed check.")
	fs.StringVar(&o.leaderNamespace, "leader-election-namespace", "", "As for \"run\"; that of the service account if --as names one.")
	fs.StringVar(&o.jobURL, "job-url", "", "As for \"run\": check that an operator answers there, if it can be reached from here.")
	fs.StringVar(&o.jobNamespace, "job-namespace", "", "As for \"run\"; that of the service account if --as names one.")
	fs.StringVar(&o.jobImage, "job-image", "", "As for \"run\".")
	fs.BoolVar(&o.requireRBAC, "metrics-require-rbac", false, "As for \"run\": with it, a missing permission to authorize clients of the metrics is a failed check; without it, a note.")
	fs.BoolVar(&o.offline, "offline", false, "Do not contact the cluster.")
	fs.BoolVar(&o.strict, "strict", false, "Treat checks that are left out as failed.")
}

// diagnosis is the result, as -o json prints it. Its keys are an interface: see
// the help of the command.
type diagnosis struct {
	Healthy  bool             `json:"healthy"`
	Failed   int              `json:"failed"`
	LeftOut  int              `json:"leftOut"`
	Findings []doctor.Finding `json:"findings"`
}

// run makes all checks. It returns errInvalid if one has failed.
func (o *doctorOptions) run(ctx context.Context, out io.Writer) error {
	if all := assembly.Executors(); !slices.Contains(all, watches.Executor(o.executor)) {
		return usage(fmt.Errorf("--executor %q: give one of %q", o.executor, all))
	}
	var d diagnosis
	for _, check := range []func(context.Context) []doctor.Finding{
		o.checkAnsible, o.checkExecutor, o.checkPlaces, o.checkProject,
	} {
		d.Findings = append(d.Findings, check(ctx)...)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for _, f := range d.Findings {
		switch f.State {
		case doctor.Failed:
			d.Failed++
		case doctor.LeftOut:
			d.LeftOut++
		default:
		}
	}
	d.Healthy = d.Failed == 0 && (d.LeftOut == 0 || !o.strict)
	if err := d.print(out, o.output); err != nil {
		return err
	}
	if !d.Healthy {
		return errInvalid
	}
	return nil
}

func (d diagnosis) print(out io.Writer, format string) error {
	if format == outputJSON {
		return printJSON(out, d)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range d.Findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.State, f.Check, f)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if d.LeftOut > 0 {
		_, err := fmt.Fprintf(out, "%s skipped (not verified)\n", counted(d.LeftOut, "check", "checks"))
		return err
	}
	return nil
}
