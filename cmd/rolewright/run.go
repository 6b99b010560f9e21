package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/runner/supervise"
)

// leanHeap is the garbage collector's target: percent of garbage before it runs.
const leanHeap = 50

// runCommand is the name of the command that is the operator.
const runCommand = "run"

func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   runCommand,
		Short: "Run the operator",
		Long: "Run watches the kinds that the watches file names and runs Ansible for their objects,\n" +
			"until a signal stops it. The cluster is that of KUBECONFIG, of the Pod's service account,\n" +
			"or of ~/.kube/config.",
		Example: "  rolewright run --zap-encoder=console\n" +
			"  rolewright run --watches-file=./watches.yaml --reconcile-period=1h --max-concurrent-reconciles=4",
		// ansible-operator ignores arguments, and Deployments that give some
		// must start.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			notices, err := o.complete(sources{given: cmd.Flags().Changed, lookupEnv: os.LookupEnv})
			if err != nil {
				return err
			}
			if len(args) > 0 {
				notices = append(notices, notice{"ignoring arguments that are no flags", []any{"arguments", args}})
			}
			log := newLogger(o.zap, cmd.ErrOrStderr())
			logVersion(log.WithName("cmd"))
			logNotices(log.WithName("cmd"), notices)
			return o.operate(logr.NewContext(cmd.Context(), log), cmd.OutOrStdout())
		},
	}
	o.BindFlags(cmd.Flags())
	cmd.SetUsageFunc(o.printUsage)
	return cmd
}

// logVersion logs the version with the keys of ansible-operator.
func logVersion(log logr.Logger) {
	v := version.Read()
	log.Info("Version", "Go Version", v.Go, "GOOS", v.OS, "GOARCH", v.Arch,
		ansibleOperator, v.Version, "commit", v.Commit)
}

// operate puts the operator together and runs it until ctx is done. Errors that
// need no cluster to be found are reported before the cluster is contacted.
func (o *runOptions) operate(ctx context.Context, stdout io.Writer) error {
	log := logr.FromContextOrDiscard(ctx)
	if _, set := os.LookupEnv("GOGC"); !set {
		// The operator idles most of the time, and its runs need the memory: a
		// small heap is worth a little more CPU.
		debug.SetGCPercent(leanHeap)
	}
	if err := o.setAnsiblePaths(log.WithName("cmd")); err != nil {
		return err
	}
	watched, err := o.loadWatches(log.WithName("watches"))
	if err != nil {
		return err
	}
	cluster, err := findCluster(os.LookupEnv)
	if err != nil {
		return err
	}
	recorder, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	defer ctrlmetrics.Registry.Unregister(recorder)
	build := version.Read()
	recorder.BuildInfo(build.Version, build.Commit)
	executor, endExecutor, err := o.newExecutor(ctx, watched, recorder, log.WithName("runner"))
	if err != nil {
		return endOf(ctx, err)
	}
	defer endExecutor()
	if err := cluster.waitForServer(logr.NewContext(ctx, log.WithName("cmd")), startPatience()); err != nil {
		return endOf(ctx, err)
	}

	lease, err := o.newLease(cluster)
	if err != nil {
		return err
	}
	mgr, err := o.newManager(cluster, lease, log)
	if err != nil {
		return err
	}
	calls, endCalls, err := o.openCallRecord()
	if err != nil {
		return err
	}
	defer endCalls()
	var set *controller.Set
	gateway, err := o.newProxy(ctx, cluster, lease, func(owner proxy.Owner) proxy.Grant { return set.Grant(owner) }, recorder, calls, log)
	if err != nil {
		return err
	}
	ofRoles := newUserMetrics(ctrlmetrics.Registry, recorder, log)
	defer ofRoles.Close()
	if set, err = o.addControllers(mgr, lease, executor, gateway, watched, recorder, metricCall(ofRoles), stdout); err != nil {
		return err
	}
	if o.started != nil {
		o.started(set)
	}
	metricsServer, err := o.serveUserMetrics(ctx, ofRoles)
	if err != nil {
		return err
	}
	defer onAbort(ctx, func() { set.Abort(controller.ErrShutdown) })()
	servers := []func(context.Context) error{gateway.Start, metricsServer, supervise.ReapOrphans}
	if lease != nil {
		servers = append(servers, lease.watch(func() { set.Abort(controller.ErrLeadershipLost) }))
	}
	return withServers(ctx, func(ctx context.Context) error { return serve(ctx, mgr, set, log) }, servers...)
}

// serve runs the manager, and ends the runs that it leaves.
func serve(ctx context.Context, mgr manager.Manager, set *controller.Set, log logr.Logger) error {
	err := mgr.Start(ctx)
	failpoint.Hit("shutdown.before-close")
	cause := controller.ErrShutdown
	if ctx.Err() == nil {
		cause = controller.ErrLeadershipLost
	}
	set.Close(cause)
	failpoint.Hit("shutdown.closed")
	if err != nil {
		return fmt.Errorf("run the operator: %w", err)
	}
	log.WithName("cmd").Info("Exiting.")
	return nil
}

// withServers runs servers while main runs, and ends them after main, since runs
// need them to the end. The first server that fails ends main.
func withServers(ctx context.Context, main func(context.Context) error, servers ...func(context.Context) error) error {
	mainCtx, stop := context.WithCancel(ctx)
	defer stop()
	serversCtx, stopServers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServers()
	failures := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, start := range servers {
		wg.Go(func() {
			if failures[i] = start(serversCtx); failures[i] != nil {
				stop()
			}
		})
	}
	err := main(mainCtx)
	stopServers()
	wg.Wait()
	return errors.Join(append(failures, err)...)
}

// endOf is nil if ctx has ended: a stop during the start is not a failure.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the stop caused the error
	}
	return err
}
