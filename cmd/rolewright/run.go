package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/supervise"
)

// runCommand is the name of the command that runs the operator.
const runCommand = "run"

func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   runCommand,
		Short: "Run the operator",
		Long: "Run watches the kinds that the watches file names and runs Ansible for their objects,\n" +
			"until a signal stops it. The cluster is that of KUBECONFIG, of the Pod's service account,\n" +
			"or of ~/.kube/config.",
		Example: "  rolewright run --log-format=console\n" +
			"  rolewright run --watches-file=./watches.yaml --reconcile-period=1h --max-concurrent-reconciles=4",
		// ansible-operator ignores arguments, and Deployments that pass some
		// must start.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			notices, err := o.complete(sources{given: cmd.Flags().Changed, lookupEnv: os.LookupEnv})
			if err := errors.Join(err, o.completeLog(cmd.Flags())); err != nil {
				return err
			}
			if len(args) > 0 {
				notices = append(notices, notice{"ignoring arguments that are no flags", []any{"arguments", args}})
			}
			o.debugWindow = newDebugWindow(&o.zap)
			log := o.logger(cmd.ErrOrStderr())
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
	op, err := o.newOperator(log, stdout)
	if err != nil {
		return err
	}
	var end func()
	if op.Parts, end, err = assembly.NewParts(ctx, o.runnerOptions(), op.watches, log); err != nil {
		return endOf(ctx, err)
	}
	defer end()
	if err := op.meetCluster(logr.NewContext(ctx, log.WithName("cmd"))); err != nil {
		return endOf(ctx, err)
	}
	if op.lease, err = o.newLease(op.cluster, log.WithName("leader-election")); err != nil {
		return err
	}
	var endCalls func()
	if op.calls, endCalls, err = o.openCallRecord(); err != nil {
		return err
	}
	defer endCalls()
	if op.probes, err = o.newProbes(ctx, op.Check); err != nil {
		return err
	}
	webhooks, answers, err := op.newWebhooks(log.WithName("webhooks"))
	if err != nil {
		return err
	}
	op.probes.webhooks = answers
	servers := append([]func(context.Context) error{op.probes.serve, op.Check.Start, supervise.ReapOrphans, keepLean}, webhooks...)
	if o.debugWindow != nil {
		servers = append(servers, o.debugWindow.serve)
	}
	if o.watchContent {
		r, err := o.newReload(ctx, op)
		if err != nil {
			return endOf(ctx, err)
		}
		servers = append(servers, r.run)
	}
	var serveHistory []func(context.Context) error
	if op.History, serveHistory, err = assembly.NewHistory(ctx, op.recorded()); err != nil {
		return err
	}
	return assembly.WithServers(ctx, op.lead, append(servers, serveHistory...)...)
}

// newOperator reads the watches and finds the cluster, but sends it no request.
func (o *runOptions) newOperator(log logr.Logger, stdout io.Writer) (*operator, error) {
	if err := o.setAnsiblePaths(log.WithName("cmd")); err != nil {
		return nil, err
	}
	op := &operator{runOptions: o, log: log, stdout: stdout, content: o.copied}
	var err error
	if op.watched, err = o.loadWatches(log.WithName("watches")); err != nil {
		return nil, err
	}
	loaded := op.watched
	op.answered.Store(&loaded)
	if err = errors.Join(o.checkPrune(op.watched), o.checkJobs(op.watched)); err != nil {
		return nil, err
	}
	logJobs(log.WithName("cmd"), op.watched)
	op.cluster, err = findCluster(os.LookupEnv)
	return op, err
}

// meetCluster waits for the API server, and chooses the directory for the runs of its objects.
func (op *operator) meetCluster(ctx context.Context) error {
	if err := op.cluster.waitForServer(ctx, startPatience()); err != nil {
		return err
	}
	var err error
	op.runnerRoot, err = assembly.RunnerRoot(ctx, op.cluster.config, op.runnerRoot, logr.FromContextOrDiscard(ctx))
	return err
}

// operator is the state that lasts as long as the process, which may lead several times.
type operator struct {
	*runOptions
	*assembly.Parts

	log     logr.Logger
	stdout  io.Writer
	cluster cluster
	lease   *lease
	calls   *rbac.Recorder
	probes  *probes

	sharing atomic.Pointer[shards] // nil if objects are not shared
	// adopt is [jobs.Runner.Adopt] if runs are made as Jobs; replicas that share the objects call it.
	adopt func(ctx context.Context, has func(types.UID) bool)

	mu      sync.Mutex
	watched []watches.Watch
	content *contentcopy.Copy // nil if runs use the files directly
	// answered holds the watches again, for callers that must not wait for the lock.
	answered atomic.Pointer[[]watches.Watch]
	ending   func() bool // whether the set that serves the kinds is ending
}

// lead takes part in the election, and does so again after another client has asked
// for the Lease.
func (op *operator) lead(ctx context.Context) error {
	for {
		again, stop := context.WithCancelCause(ctx)
		if op.lease != nil {
			op.lease.onYield(func() { stop(errYielded) })
		}
		err := op.once(again)
		yielded := errors.Is(context.Cause(again), errYielded)
		stop(nil)
		switch {
		case err != nil:
			return err
		case !yielded:
			op.log.WithName("cmd").Info("Exiting.")
			return nil
		}
	}
}

// once puts together the parts that serve the kinds, and runs them until ctx is done or
// the leadership is lost.
func (op *operator) once(ctx context.Context) error {
	mgr, err := op.newManager(op.cluster, op.lease, op.log)
	if err != nil {
		return err
	}
	var set *controller.Set
	gateway, err := op.newProxy(ctx, op.cluster, op.lease, func(owner proxy.Owner) proxy.Grant { return set.Grant(owner) }, op.Recorder, op.calls, op.log)
	if err != nil {
		return endOf(ctx, err)
	}
	if set, err = op.newSet(ctx, mgr, gateway); err != nil {
		return err
	}
	if op.started != nil {
		op.started(set)
	}
	metricsServer, err := op.serveUserMetrics(ctx, op.OfRoles)
	if err != nil {
		return endOf(ctx, err)
	}
	defer onAbort(ctx, func() { set.Abort(controller.ErrShutdown) })()
	apiServer, err := op.serveAPI(ctx, gateway.Discovery(), set)
	if err != nil {
		return endOf(ctx, err)
	}
	servers := []func(context.Context) error{gateway.Start, metricsServer, apiServer}
	if op.lease != nil {
		servers = append(servers, op.lease.watch(func() { set.Abort(controller.ErrLeadershipLost) }))
	}
	if op.shards > 0 {
		sharing, err := op.share(ctx, set, mgr.Elected())
		if err != nil {
			return err
		}
		servers = append(servers, sharing...)
	}
	return assembly.WithServers(ctx, func(ctx context.Context) error { return assembly.Serve(ctx, mgr.Start, set) }, servers...)
}

// newSet adds the controllers to mgr, for the current watches.
func (op *operator) newSet(ctx context.Context, mgr manager.Manager, gateway *proxy.Proxy) (*controller.Set, error) {
	op.mu.Lock()
	defer op.mu.Unlock()
	set, err := op.addControllers(mgr, gateway)
	if err == nil {
		op.serves(set, func() bool { return ctx.Err() != nil })
	}
	return set, err
}

// endOf returns nil if ctx has ended: a stop during the start is not a failure.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the stop caused the error
	}
	return err
}
