package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/console"
	"github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/filewatch"
	"github.com/rolewright/rolewright/internal/watches"
)

// devOptions are the settings of dev: those of run, some of which dev sets itself.
type devOptions struct {
	runOptions

	remote  bool
	noApply bool
	diff    bool

	// takeOver names the Lease to take from the operator in the cluster; empty for none.
	takeOver        string
	takeOverTimeout time.Duration

	// level is the level of the log unless the user chose one.
	level uberzap.AtomicLevel
}

func newDevCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the operator while you write its roles",
		Long: `Run the operator of the project in this directory, and show its runs as
ansible-playbook does. The CRDs in config/crd/bases and the objects in
config/samples are applied to the cluster first.

Changes take effect when you save a file: after a change of a role or a playbook,
the objects that use it run again; a changed CRD or sample is applied; a changed
watches.yaml takes effect when the runs in progress have ended. A file that cannot
be read is reported, and its previous version stays in use until you fix it.

Expressions of "webhooks:" are applied to the cluster. Commands and conversions of
"webhooks:" are not called, because the API server cannot reach dev; test them with
"rolewright test".

Facts are gathered as in the Pod: unless ANSIBLE_GATHERING is set, it is taken from
the project's config/manager/manager.yaml.

The cluster is that of KUBECONFIG or of ~/.kube/config, and must be on this machine,
except with --allow-remote. If an operator is deployed there, too, both run each
object. To avoid that, give --take-over: the deployed operator gives up its Lease to
this one, and takes it back at the end. Or work in another namespace, with
WATCH_NAMESPACE. Or stop the deployed operator first.`,
		Example: `  rolewright dev
  rolewright dev --allow-remote --take-over
  WATCH_NAMESPACE=mine rolewright dev --allow-remote --no-apply`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needWatches(o.watchesFile); err != nil {
				return err
			}
			o.settle(cmd.Flags().Changed)
			if err := o.completeAsDeployed(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	o.bindContent(fs)
	o.bindRuns(fs)
	showDevRoot(fs)
	o.bindReconcile(fs)
	o.bindErrorLog(fs)
	hideFlags(fs)
	o.bindDiff(fs)
	fs.BoolVar(&o.remote, "allow-remote", false, "Work in a cluster that is not on this machine.")
	fs.BoolVar(&o.noApply, "no-apply", false, "Do not apply CRDs and samples.")
	fs.StringVar(&o.takeOver, "take-over", "", "Take over from the operator in the cluster that holds this Lease, given as NAMESPACE/LEASE, and give it back at the end. Without a value: the Lease that config/manager and config/default name.")
	fs.Lookup("take-over").NoOptDefVal = fromProject
	fs.DurationVar(&o.takeOverTimeout, "take-over-timeout", time.Minute, "How long to wait for that operator to give up its Lease; it lets runs in progress end first.")
	return cmd
}

// bindDiff adds the flag that shows what runs change.
func (o *devOptions) bindDiff(fs *pflag.FlagSet) {
	fs.BoolVar(&o.diff, "diff", false, "Show what tasks change: run Ansible with --diff. What is written to Secrets is shown, too.")
}

// settle sets what run has flags for and dev does not: dev serves nothing, and its
// console says what people need to know.
func (o *devOptions) settle(given func(flag string) bool) {
	o.injectOwnerRef, o.logEvents = true, "Nothing"
	o.metricsBindAddress, o.userMetricsAddress, o.healthBindAddress = "0", "0", "0"
	if root := devRunnerRoot(); root != "" && !given("runner-root") {
		o.runnerRoot = root
	}
	if o.diff {
		o.ansibleArgs = strings.TrimSpace(o.ansibleArgs + " --diff")
	}
	o.zap.Development = true
	if o.zap.Level == nil {
		o.level = uberzap.NewAtomicLevelAt(zapcore.ErrorLevel)
		o.zap.Level = o.level
	}
	if o.zap.StacktraceLevel == nil {
		o.zap.StacktraceLevel = zapcore.PanicLevel
	}
}

func (o *devOptions) setLevel(level zapcore.Level) {
	if o.level != (uberzap.AtomicLevel{}) {
		o.level.SetLevel(level)
	}
}

// dev is the state of the loop.
type dev struct {
	opts    *devOptions
	console *console.Console
	watcher *filewatch.Watcher
	applier *applier // nil if nothing is applied
	// serves is closed once the operator serves its kinds; set holds their controllers.
	serves chan struct{}
	set    *controller.Set
	// watched are the watches. copy is the content that runs use, as it was when all of it
	// could last be read. Without a copy, runs use the files of the project directly.
	watched []watches.Watch
	copy    *contentcopy.Copy
}

func (o *devOptions) run(cmd *cobra.Command) error {
	ctx := logr.NewContext(cmd.Context(), o.logger(cmd.ErrOrStderr()))
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	found, err := o.localCluster()
	if err != nil {
		return err
	}
	d := &dev{opts: o, console: console.New(cmd.OutOrStdout(), coloured(cmd.OutOrStdout()), time.Now)}
	if d.watcher, err = filewatch.New(dir); err != nil {
		return err
	}
	defer func() { _ = d.watcher.Close() }()
	if !o.noApply {
		if d.applier, err = newApplier(found, o.namespaces); err != nil {
			return err
		}
	}
	o.follow = func(gvk schema.GroupVersionKind, object types.NamespacedName, cause string) controller.Follower {
		return d.console.Start(gvk.Kind+"/"+object.Name, cause)
	}
	d.console.Say("the cluster is %s", found)
	if err := found.waitForServer(ctx, startPatience()); err != nil {
		return endOf(ctx, unreachable(err))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.takeOver != "" {
		giveBack, err := d.takeOver(ctx, found, func() { cancel(errTakenBack) })
		if err != nil {
			return endOf(cmd.Context(), err)
		}
		defer giveBack()
	}
	err = d.loop(ctx)
	if errors.Is(context.Cause(ctx), errTakenBack) {
		return errTakenBack
	}
	return err
}

// errTakenBack is the reason why dev ends by itself.
var errTakenBack = errors.New("the Lease could not be renewed in time: the operator in the cluster may lead again; start once more")

// takeOver takes the Lease, and gives it back when giveBack is called. The end of ctx does
// not give it back: runs end first.
func (d *dev) takeOver(ctx context.Context, c cluster, lost func()) (giveBack func(), err error) {
	t, err := d.opts.newTakeOver(c, logr.FromContextOrDiscard(ctx))
	if err != nil {
		return nil, err
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, stop)() // ctx only stops the wait for the Lease
	end, err := t.hold(electing, d.opts.takeOverTimeout, lost, d.console.Say)
	if err != nil {
		stop()
		return nil, err
	}
	d.console.Say("taken over: the Lease %s is held", t.place)
	d.opts.held = t.lease
	return func() {
		end()
		stop()
		d.console.Say("given back: the Lease %s is free", t.place)
	}, nil
}

// loop runs the operator again and again, until ctx ends.
func (d *dev) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		err := d.once(ctx)
		if errors.Is(err, watches.ErrInvalid) {
			if _, invalid := d.opts.loadWatches(logr.Discard()); invalid != nil {
				continue // the file was saved while the operator started: once reports it, and waits for the next save
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// once runs the operator until watches.yaml has changed, or ctx ends.
func (d *dev) once(ctx context.Context) error {
	watched, err := d.opts.loadWatches(logr.Discard())
	for err != nil {
		d.console.Problem(err)
		if err = d.await(ctx, func(paths []string) bool { return true }); err != nil {
			return endOf(ctx, err)
		}
		watched, err = d.opts.loadWatches(logr.Discard())
	}
	d.apply(ctx, globbed(kindDefinitions))
	if d.applier != nil {
		if err := d.applier.webhooks(ctx, watched, ""); err != nil && ctx.Err() == nil {
			d.console.Problem(err)
		}
	}
	d.watched, d.copy = watched, nil
	if d.copy, err = d.copied(ctx); err != nil && ctx.Err() == nil {
		d.console.Problem(fmt.Errorf("runs use the files as they are, even while they are broken: %w", err))
	}
	d.opts.copied = d.copy
	defer func() { d.copy.Close() }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	d.serves = make(chan struct{})
	d.opts.started = func(set *controller.Set) {
		d.set = set
		close(d.serves)
	}
	go func() {
		ended <- d.opts.operate(ctx, io.Discard)
		stop()
	}()
	// Errors of what a stop cuts short are not worth logging.
	quiet := context.AfterFunc(ctx, func() { d.opts.setLevel(zapcore.PanicLevel) })
	defer func() {
		quiet()
		d.opts.setLevel(zapcore.ErrorLevel)
	}()
	d.announce(watched)
	d.apply(ctx, globbed("config/samples/*.y*ml"))
	awaited := d.await(ctx, func(paths []string) bool { return d.changed(ctx, paths) })
	if ctx.Err() != nil { // the operator has ended, or is to end
		awaited = nil
	}
	stop()
	if err := <-ended; err != nil {
		return err
	}
	return awaited
}

// announce says what is watched, and what dev leaves out of it.
func (d *dev) announce(watched []watches.Watch) {
	for _, w := range watched {
		d.console.Say("%s is watched", w.GVK.Kind)
	}
	if admission.NeedServer(watched) {
		d.console.Say("commands and conversions of webhooks are not called, since the API server cannot reach dev: test them with \"rolewright test\"")
	}
}

// await waits for changes of files until enough returns true.
func (d *dev) await(ctx context.Context, enough func(paths []string) bool) error {
	for {
		paths, err := d.watcher.Next(ctx)
		if err != nil || enough(paths) {
			return err
		}
	}
}

// coloured tells whether w is a terminal whose user wants colours.
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
