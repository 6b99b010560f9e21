package rolewright

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// service is all of Rolewright in a manager. It starts its parts when the manager leads, and
// all of them have ended when Start returns.
type service struct {
	mgr      manager.Manager
	opts     Options
	log      logr.Logger
	watched  []watches.Watch
	handlers map[string]controller.Handler

	check atomic.Pointer[assembly.RunnerCheck]
	set   atomic.Pointer[controller.Set]
	// left is true once the manager no longer waits for what the service has started.
	left atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *service) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (s *service) Start(ctx context.Context) error {
	if err := s.serve(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("rolewright: %w", err)
	}
	return nil
}

// serving is true while a manager of the process serves watches: metrics are per process.
var serving atomic.Bool //nolint:gochecknoglobals // as said above

func (s *service) serve(ctx context.Context) error {
	if !serving.CompareAndSwap(false, true) {
		return errors.New("another manager of this process serves watches already: give all of them to one Add, and let one manager run at a time")
	}
	defer serving.Store(false)
	parts, end, err := assembly.NewParts(ctx, assembly.RunnerOptions{
		Path: s.opts.AnsibleRunner, WarmIdle: assembly.WarmIdle,
	}, func() []watches.Watch { return s.watched }, s.log)
	if err != nil {
		return err
	}
	defer end()
	s.check.Store(parts.Check)
	options := s.settings()
	part, err := s.part()
	if err != nil {
		return err
	}
	if options.RunnerRoot, err = assembly.RunnerRoot(ctx, part.config, options.RunnerRoot, s.log); err != nil {
		return err
	}
	history := assembly.HistoryOptions{RunnerRoot: options.RunnerRoot, Log: s.log.WithName("history")} // traces are a part of it
	var servers []func(context.Context) error
	if parts.History, servers, err = assembly.NewHistory(ctx, history); err != nil {
		return err
	}
	gateway, err := proxy.New(ctx, proxy.Options{Config: part.config, MayWrite: s.leads, Log: s.log.WithName("proxy"), Metrics: parts.Recorder})
	if err != nil {
		return err
	}
	set, err := parts.AddControllers(part, gateway, options)
	if err != nil {
		return err
	}
	s.set.Store(set)
	if s.left.Load() {
		set.Abort(controller.ErrLeadershipLost)
	}
	servers = append(servers, gateway.Start, parts.Check.Start)
	return assembly.WithServers(ctx, func(ctx context.Context) error { return assembly.Serve(ctx, part.start, set) }, servers...)
}

// settings returns the defaults, changed by the options.
func (s *service) settings() controller.Options {
	o := assembly.Defaults()
	o.Watches, o.Handlers, o.MaxConcurrentRuns = s.watched, s.handlers, s.opts.MaxConcurrentRuns
	if !slices.Contains(s.opts.Namespaces, metav1.NamespaceAll) {
		o.Namespaces = s.opts.Namespaces
	}
	if s.opts.RunnerRoot != "" {
		o.RunnerRoot = s.opts.RunnerRoot
	}
	if s.opts.ReconcilePeriod != 0 {
		o.ReconcilePeriod = max(s.opts.ReconcilePeriod, 0)
	}
	if s.opts.GracefulShutdown != 0 {
		o.GracefulShutdown = max(s.opts.GracefulShutdown, 0)
	}
	o.Inventory, o.SkipFacts = os.Getenv("ANSIBLE_INVENTORY"), os.Getenv("ANSIBLE_GATHERING") == "explicit"
	o.LogLines, o.EventOut = true, eventlog.NewOutput(io.Discard)
	return o
}

// ready returns nil while another replica leads.
func (s *service) ready(req *http.Request) error {
	check, set := s.check.Load(), s.set.Load()
	if check == nil || set == nil {
		return nil
	}
	return errors.Join(check.Check(req), set.Ready())
}

// errLeft is the reason why a write is refused.
var errLeft = errors.New("the manager has stopped, or does not lead any more")

func (s *service) leads() error {
	if s.left.Load() {
		return errLeft
	}
	return nil
}

// afterwards is stopped when the manager has waited for the service, or no longer waits: because it
// has lost its Lease, or the time for its shutdown is over. Managers stop caches last that were
// added to them, such as those of further clusters. That is why afterwards has a cache.
type afterwards service

// GetCache makes the manager treat afterwards like a cluster.
func (a *afterwards) GetCache() cache.Cache { return a.mgr.GetCache() }

// Start implements manager.Runnable.
func (a *afterwards) Start(ctx context.Context) error {
	<-ctx.Done()
	a.left.Store(true)
	if set := a.set.Load(); set != nil {
		set.Abort(controller.ErrLeadershipLost)
	}
	return nil
}

// part is the manager as the controllers see it: what they add runs within the service, and
// their clients write nothing once the manager no longer waits.
type part struct {
	manager.Manager
	config *rest.Config
	client *http.Client

	runnables []manager.Runnable
}

func (s *service) part() (*part, error) {
	p := &part{Manager: s.mgr, config: rest.AddUserAgent(rest.CopyConfig(s.mgr.GetConfig()), "rolewright")}
	p.config.QPS = -1 // the API server's own priority and fairness is the limit
	p.config = assembly.Fence(p.config, s.leads)
	var err error
	if p.client, err = rest.HTTPClientFor(p.config); err != nil {
		return nil, fmt.Errorf("client of the controllers: %w", err)
	}
	return p, nil
}

// GetConfig implements manager.Manager.
func (p *part) GetConfig() *rest.Config { return p.config }

// GetHTTPClient implements manager.Manager.
func (p *part) GetHTTPClient() *http.Client { return p.client }

// Add implements manager.Manager.
func (p *part) Add(r manager.Runnable) error {
	p.runnables = append(p.runnables, r)
	return nil
}

// start runs what was added until ctx ends, and waits for it. If one part fails, all end.
func (p *part) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make([]error, len(p.runnables))
	var wg sync.WaitGroup
	for i, r := range p.runnables {
		wg.Go(func() {
			if failures[i] = r.Start(ctx); failures[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}
