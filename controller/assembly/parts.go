package assembly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/metrics/usermetrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/rundir"
)

// Parts are the parts of an operator that outlive its managers.
type Parts struct {
	Recorder *metrics.Recorder
	Runner   *runner.Runner
	// OfRoles holds the metrics that roles change.
	OfRoles *usermetrics.Handler
	// Check looks for Ansible once it has been started.
	Check *RunnerCheck
	// History records runs; nil for no history.
	History *history.Recorder
}

// NewParts makes all parts except the history. Of options, it sets Watches, Recorder and Log.
// watched returns the current watches. Call end when the parts are no longer used.
func NewParts(ctx context.Context, options RunnerOptions, watched func() []watches.Watch, log logr.Logger) (_ *Parts, end func(), err error) {
	registry := ctrlmetrics.Registry
	recorder, err := metrics.New(registry)
	if err != nil {
		return nil, nil, err
	}
	build := version.Read()
	recorder.BuildInfo(build.Version, build.Commit)
	p := &Parts{Recorder: recorder, OfRoles: NewUserMetrics(registry, recorder, log)}
	endMetrics := func() {
		p.OfRoles.Close()
		registry.Unregister(recorder)
	}
	var endRunner func()
	options.Watches, options.Recorder, options.Log = watched(), recorder, log.WithName("runner")
	if p.Runner, endRunner, err = NewRunner(ctx, options); err != nil {
		endMetrics()
		return nil, nil, err
	}
	look := whileUnchanged(p.Runner.Installed, p.Runner.Look)
	p.Check = NewRunnerCheck(needed(watched, look), checkPeriod, log.WithName("runner"))
	return p, func() {
		endRunner()
		endMetrics()
	}, nil
}

// AddControllers adds the controllers to mgr, and the runnable that opens the history. options
// has the settings; AddControllers fills in the parts and the values from the environment.
func (p *Parts) AddControllers(mgr ctrl.Manager, gateway *proxy.Proxy, options controller.Options) (*controller.Set, error) {
	root, err := filepath.Abs(options.RunnerRoot)
	if err != nil {
		return nil, fmt.Errorf("the directory of runs %s: %w", options.RunnerRoot, err)
	}
	p.Recorder.WatchDisk(func() (metrics.Disk, error) {
		size, free, err := rundir.Space(root)
		return metrics.Disk{Size: size, Free: free}, err
	})
	options.RunnerRoot, options.Proxy = root, gateway
	if options.Runner == nil {
		options.Runner = p.Runner
	}
	options.MaxConcurrentRuns = RunsAtATime(options.MaxConcurrentRuns, options.Watches)
	options.Versions, options.History = p.Check.Versions, p.History
	options.RolesPath, options.CollectionsPath = RolesDirs(os.LookupEnv), CollectionsDirs(os.LookupEnv)
	options.Metrics, options.Metric = p.Recorder, MetricCall(p.OfRoles)
	set, err := controller.Setup(mgr, options)
	if err != nil {
		return nil, fmt.Errorf("set up the controllers: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(p.History.Lead)); err != nil {
		return nil, fmt.Errorf("add what opens the history: %w", err)
	}
	return set, nil
}

// runsPerCPU is how many runs of all kinds there may be at a time per CPU, since a run waits for
// the API server half of the time.
const runsPerCPU = 4

// RunsAtATime returns how many runs there may be at a time: asked if that is above 0, else what the
// CPUs allow, but at least as many as a single kind may have.
func RunsAtATime(asked int, watched []watches.Watch) int {
	if asked > 0 {
		return asked
	}
	most := runsPerCPU * runtime.GOMAXPROCS(0)
	for _, w := range watched {
		most = max(most, w.MaxConcurrentReconciles)
	}
	return most
}

// NewUserMetrics returns the handler that keeps the metrics of roles.
func NewUserMetrics(registry ctrlmetrics.RegistererGatherer, recorder *metrics.Recorder, log logr.Logger) *usermetrics.Handler {
	return usermetrics.New(usermetrics.Options{Registerer: registry, Log: log.WithName("metrics"), Full: recorder.UserMetricRefused})
}

// MetricCall returns the function that answers runs that change a metric through the API proxy.
func MetricCall(handler *usermetrics.Handler) func([]byte) error {
	return func(request []byte) error {
		err := handler.Record(request)
		switch {
		case errors.Is(err, usermetrics.ErrFull):
			return apierrors.NewTooManyRequestsError(err.Error())
		case err != nil:
			return apierrors.NewBadRequest(err.Error())
		}
		return nil
	}
}

// Serve calls start, which serves the kinds, with ctx. If start returns before ctx is done, the
// leadership is lost. Then Serve ends the runs that are left.
func Serve(ctx context.Context, start func(context.Context) error, set *controller.Set) error {
	err := start(ctx)
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
	return nil
}

// WithServers runs servers while main runs. It ends them after main, since runs need
// them to the end. The first server that fails ends main.
func WithServers(ctx context.Context, main func(context.Context) error, servers ...func(context.Context) error) error {
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
