package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/console"
	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/supervise"
)

// onceOptions are the settings of once: those of dev, and its own.
type onceOptions struct {
	devOptions

	file, output    string
	check, deleting bool
	timeout         time.Duration
}

func newOnceCommand() *cobra.Command {
	var o onceOptions
	cmd := &cobra.Command{
		Use:   "once -f FILE",
		Short: "Make one run of an object, as the operator would",
		Long: `Run the role or playbook once for the object of a file, and show the run as
ansible-playbook does. The object gets the extra vars, the access to the API
server and the limits that the operator would give it. Nothing is written to the
object: no status, no finalizer. If the object exists in the cluster, it owns what the
run creates; if it does not, what the run creates has no owner and stays.

With --check --diff it only says what it would change: Ansible runs in check mode,
and the API server is asked for dry runs only. Modules that have no check mode do
nothing then. A diff shows what is written, also to Secrets.

The cluster is that of KUBECONFIG or of ~/.kube/config, and must be on this machine,
except with --allow-remote. An object without a namespace gets that of WATCH_NAMESPACE,
or of the kubeconfig. An operator that is deployed there may run the object at the same
time. Unless ANSIBLE_GATHERING is set, it is taken from config/manager/manager.yaml.

The exit code is 0 if the run has succeeded, 1 if not, and 4 if it has reached
--timeout or the timeout of the watch. The directories of the newest 20 runs are kept
in --runner-root. With -o json one object is printed, with the keys run, result,
reason, message, exitCode (of ansible-runner, -1 if that is not known), started,
finished, counts, failedTask, warnings and directory.`,
		Example: `  rolewright once -f config/samples/cache_v1_memcached.yaml --check --diff
  kubectl get memcached a -o yaml | rolewright once -f - -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.settle(cmd.Flags().Changed)
			if err := o.completeAsDeployed(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "filename", "f", "", "The file with the object, - for standard input.")
	textOrJSON(cmd, &o.output, "result")
	fs.BoolVar(&o.check, "check", false, "Change nothing: run Ansible with --check, and let the API server make dry runs of all writes.")
	o.bindDiff(fs)
	fs.BoolVar(&o.deleting, "deleting", false, "Run what the watch's finalizer says.")
	fs.DurationVar(&o.timeout, "timeout", 0, "How long the run may take; 0 for the timeout of the watch.")
	o.bindContent(fs)
	o.bindRuns(fs)
	showDevRoot(fs)
	o.bindReconcile(pflag.NewFlagSet("", pflag.ContinueOnError)) // for their defaults
	o.bindErrorLog(fs)
	hideFlags(fs)
	fs.BoolVar(&o.remote, "allow-remote", false, "Work in a cluster that is not on this machine.")
	return cmd
}

func (o *onceOptions) settle(given func(flag string) bool) {
	o.devOptions.settle(given)
	// One run is not worth a fork server, and ends at once when it is told to.
	if !given("executor") {
		o.executor = string(watches.ExecutorRunner)
	}
	if !given("graceful-shutdown-timeout") {
		o.gracefulShutdown = 0
	}
}

// asked returns the object that is to run, and the watch that runs it.
func (o *onceOptions) asked(stdin io.Reader) (*unstructured.Unstructured, watches.Watch, error) {
	fail := func(err error) (*unstructured.Unstructured, watches.Watch, error) { return nil, watches.Watch{}, err }
	if o.timeout < 0 {
		return fail(usage(errors.New("--timeout must not be negative")))
	}
	obj, err := readObject(o.file, stdin)
	if err != nil {
		return fail(usage(err))
	}
	if err := o.setAnsiblePaths(logr.Discard()); err != nil {
		return fail(err)
	}
	w, err := o.watchOf(obj)
	if err != nil {
		return fail(usage(err))
	}
	if o.deleting && w.Finalizer == nil {
		return fail(usage(fmt.Errorf("--deleting: the watch of %s has no finalizer", w.GVK)))
	}
	return obj, w, nil
}

func (o *onceOptions) run(cmd *cobra.Command) error {
	obj, w, err := o.asked(cmd.InOrStdin())
	if err != nil {
		return err
	}
	found, err := o.localCluster()
	if err != nil {
		return err
	}
	ctx := logr.NewContext(cmd.Context(), o.logger(cmd.ErrOrStderr()))
	screen := console.New(cmd.OutOrStdout(), coloured(cmd.OutOrStdout()), time.Now)
	if o.output == outputJSON {
		screen = console.New(cmd.ErrOrStderr(), coloured(cmd.ErrOrStderr()), time.Now)
	}
	owned, err := place(ctx, found, o.namespaces, obj)
	if err != nil {
		return err
	}
	if !owned {
		screen.Say("%s %s is not in the cluster: objects that the run creates have no owner", obj.GetKind(), obj.GetName())
	}
	o.follow = func(gvk schema.GroupVersionKind, object types.NamespacedName, cause string) controller.Follower {
		return screen.Start(gvk.Kind+"/"+object.Name, cause)
	}
	once, err := o.make(ctx, found, w, obj)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return interruptedError{}
	}
	if o.output == outputJSON {
		if err := printJSON(cmd.OutOrStdout(), onceJSONOf(once)); err != nil {
			return err
		}
	} else {
		screen.Say("artifacts: %s", once.Dir)
	}
	switch {
	case once.Result == status.Succeeded:
		return nil
	case once.Reason == status.ReasonTimedOut:
		return coded(errInvalid, exitTimeout)
	}
	return errInvalid
}

// place completes obj with what the cluster knows: the namespace and, if an object of that name
// exists, its UID and generation. exists is false if there is none.
func place(ctx context.Context, c cluster, namespaces []string, obj *unstructured.Unstructured) (exists bool, err error) {
	objects, err := newApplier(c, namespaces)
	if err != nil {
		return false, unreachable(err)
	}
	objects.namespace = cmp.Or(obj.GetNamespace(), objects.namespace)
	is, err := objects.read(ctx, obj.GroupVersionKind(), obj.GetName())
	if is == nil {
		return false, err
	}
	obj.SetNamespace(is.GetNamespace())
	obj.SetUID(is.GetUID())
	if err == nil {
		obj.SetGeneration(is.GetGeneration())
	}
	return err == nil, nil
}

// make executes the run, with everything that it needs around it.
func (o *onceOptions) make(ctx context.Context, c cluster, w watches.Watch, obj *unstructured.Unstructured) (once controller.Once, err error) {
	log := logr.FromContextOrDiscard(ctx)
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(registry)
	if err != nil {
		return once, err
	}
	r, end, err := assembly.NewRunner(ctx, assembly.RunnerOptions{
		Path: o.ansibleRunner, Watches: []watches.Watch{w}, Recorder: recorder, Log: log.WithName("runner"),
	})
	if err != nil {
		return once, err
	}
	defer end()
	gateway, err := o.newProxy(ctx, c, nil, nil, recorder, nil, log)
	if err != nil {
		return once, err
	}
	root, err := filepath.Abs(o.runnerRoot)
	if err != nil {
		return once, fmt.Errorf("--runner-root %s: %w", o.runnerRoot, err)
	}
	options := controller.Options{
		Runner: r, Proxy: gateway, InjectOwnerRef: o.injectOwnerRef, RunnerRoot: root, SuppressOverrideValues: o.suppressOverrides,
		ArtifactsMaxBytes: int64(o.artifactsMaxBytes), ArtifactsMaxAge: o.artifactsMaxAge, RunMaxBytes: int64(o.runMaxBytes),
		GracefulShutdown: o.gracefulShutdown, AnsibleArgs: o.ansibleArgs, Inventory: o.inventory, SkipFacts: o.skipFacts,
		RolesPath: assembly.RolesDirs(os.LookupEnv), CollectionsPath: assembly.CollectionsDirs(os.LookupEnv),
		LogEvents: o.eventLevel, EventOut: eventlog.NewOutput(io.Discard), Follow: o.follow, Metrics: recorder,
		Metric: assembly.MetricCall(assembly.NewUserMetrics(registry, recorder, log)),
	}
	err = assembly.WithServers(ctx, func(ctx context.Context) error {
		once, err = controller.RunOnce(ctx, c.config, w, options, obj, controller.OnceOptions{Deleting: o.deleting, Check: o.check, Timeout: o.timeout})
		return err
	}, gateway.Start, supervise.ReapOrphans)
	return once, err
}

// onceJSON is the result of -o json. Its keys are an interface: see the help.
type onceJSON struct {
	Run        string           `json:"run"`
	Result     string           `json:"result"`
	Reason     string           `json:"reason"`
	Message    string           `json:"message"`
	ExitCode   int              `json:"exitCode"`
	Started    time.Time        `json:"started"`
	Finished   time.Time        `json:"finished"`
	Counts     map[string]int64 `json:"counts"`
	FailedTask *taskJSON        `json:"failedTask"`
	Warnings   []string         `json:"warnings"`
	Directory  string           `json:"directory"`
}

type taskJSON struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Path string `json:"path"`
	Host string `json:"host"`
}

func onceJSONOf(once controller.Once) onceJSON {
	j := onceJSON{
		Run: once.ID, Result: string(once.Result), Reason: once.Reason, Message: once.Message, ExitCode: once.ExitCode,
		Started: once.Started.UTC(), Finished: once.Finished.UTC(), Warnings: append([]string{}, once.Warnings...), Directory: once.Dir,
		Counts: map[string]int64{
			"ok": once.Counts.OK, "changed": once.Counts.Changed, "skipped": once.Counts.Skipped, "failed": once.Counts.Failed,
			"unreachable": once.Counts.Unreachable, "rescued": once.Counts.Rescued, "ignored": once.Counts.Ignored,
		},
	}
	if t := once.FailedTask; t != nil {
		j.FailedTask = &taskJSON{Name: t.Name, Role: t.Role, Path: t.Path, Host: t.Host}
	}
	return j
}
