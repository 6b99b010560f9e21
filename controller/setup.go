package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
)

// Set is the set of all watched kinds of an operator.
type Set struct {
	mgr       manager.Manager
	opts      *Options
	store     *runstore.Store
	encrypted *vault.Vault
	log       logr.Logger
	// standby is true if another replica may lead.
	standby bool
	elected <-chan struct{}
	// inject is true if created objects get owner marks.
	inject bool

	// runs ends, with the cause, when all runs have to end.
	runs  context.Context
	abort context.CancelCauseFunc
	// dependents watches the dependents of all kinds' objects; metadata reads them.
	dependents *dependent.Registry
	metadata   metadata.Interface
	// content reads what objects wait for, and writes the Events of roles.
	content dynamic.Interface
	// events writes the operator's own Events; nil if there is no operator.
	events *reporter
	// busy maps the UIDs of objects with a run in progress to the run's ID, since
	// several watches of one kind see the same objects.
	busy sync.Map
	// queue has the runs of all kinds that are due.
	queue *runqueue.Queue

	mu     sync.Mutex
	kinds  []*kind
	ending map[ofShard][]<-chan struct{} // the kinds that were stopped, until the next are
	// watchers are the watches of each kind.
	watchers map[*Shard]map[schema.GroupKind]*watchers
	closed   bool
	active   sync.WaitGroup // the kinds that are being served

	// firstLists limits the initial lists that are read at a time.
	firstLists *semaphore.Weighted

	// change is held while the served watches, their content or the shards change. Without
	// sharding, shards is a single nil.
	change  sync.Mutex
	watched []watches.Watch
	copied  *contentcopy.Copy
	shards  []*Shard
}

// Setup adds all watches to mgr. The kinds are served once the manager runs
// and leads.
func Setup(mgr manager.Manager, opts Options) (*Set, error) {
	if opts.KindPollInterval <= 0 {
		opts.KindPollInterval = 10 * time.Second
	}
	log := mgr.GetLogger().WithName("ansible-controller")
	store, err := runstore.New(runstore.Options{
		Root: opts.RunnerRoot, MaxBytes: opts.ArtifactsMaxBytes, Given: []string{kubeconfigFile}, Metrics: opts.Metrics,
	}, log)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(store); err != nil {
		return nil, fmt.Errorf("add the store of runs: %w", err)
	}
	set := &Set{
		mgr: mgr, opts: &opts, store: store, encrypted: vault.New(opts.AnsibleArgs, os.LookupEnv), log: log,
		standby: opts.Leads != nil, elected: mgr.Elected(), inject: opts.InjectOwnerRef,
		ending: map[ofShard][]<-chan struct{}{}, watchers: map[*Shard]map[schema.GroupKind]*watchers{},
		firstLists: semaphore.NewWeighted(firstLists),
	}
	if !opts.Sharded {
		set.shards = []*Shard{nil}
	}
	set.queue = set.newQueue()
	if err := set.watchDependents(mgr, opts, log); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	var names []string
	for _, entry := range environment(os.Environ(), nil, host) {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	if slices.ContainsFunc(opts.Watches, func(w watches.Watch) bool { return w.Content.Ansible() }) {
		log.Info("Environment variables that are inputs of runs", "names", names)
	}
	set.runs, set.abort = context.WithCancelCause(context.Background())
	reporter, err := newReporter(mgr, log)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(set.outlasting(reporter.start)); err != nil {
		return nil, fmt.Errorf("add the recorder of Events: %w", err)
	}
	set.events = reporter
	return set, set.Watch(opts.Watches, opts.Content)
}

// watchDependents adds the registry that watches dependents to mgr. It needs
// leadership, like the kinds.
func (s *Set) watchDependents(mgr manager.Manager, opts Options, log logr.Logger) error {
	var err error
	if s.metadata, err = metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return fmt.Errorf("client for metadata: %w", err)
	}
	s.content, err = dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("client for dependents: %w", err)
	}
	s.dependents = dependent.New(dependent.Options{
		Client: s.metadata, Content: s.content, Namespaces: opts.Namespaces, Log: log,
		Lookup: func(ctx context.Context, resource schema.GroupVersionResource) (discovery.Resource, error) {
			return opts.Proxy.Discovery().LookupAnyVersion(ctx, resource)
		},
	})
	if err := mgr.Add(s.outlasting(s.dependents.Start)); err != nil {
		return fmt.Errorf("add the watches of dependents: %w", err)
	}
	return nil
}

// controllerNames returns the controller label in metrics for each watch: the same as
// ansible-operator's, with the group if two kinds would share a label, and with a number if
// two watches would.
func controllerNames(all []watches.Watch) []string {
	kinds, same := map[string]map[schema.GroupVersionKind]bool{}, map[schema.GroupVersionKind]int{}
	plain := func(w watches.Watch) string {
		return strings.ToLower(w.GVK.Kind) + "-" + strings.ToLower(w.GVK.Version) + "-controller"
	}
	for _, w := range all {
		if kinds[plain(w)] == nil {
			kinds[plain(w)] = map[schema.GroupVersionKind]bool{}
		}
		kinds[plain(w)][w.GVK] = true
	}
	names := make([]string, len(all))
	for i, w := range all {
		names[i] = plain(w)
		if len(kinds[names[i]]) > 1 {
			names[i] = strings.ToLower(w.GVK.Kind) + "-" + strings.ToLower(w.GVK.Version) + "-" + strings.ToLower(w.GVK.Group) + "-controller"
		}
		if same[w.GVK]++; same[w.GVK] > 1 {
			names[i] += "-" + strconv.Itoa(same[w.GVK])
		}
	}
	return names
}

// Ready returns nil if every watched kind that is installed is served, or if
// another replica leads. It is safe for concurrent use.
func (s *Set) Ready() error {
	if s.standby {
		select {
		case <-s.elected:
		default:
			return nil
		}
	}
	var errs []error
	for _, k := range s.all() {
		errs = append(errs, k.ready())
	}
	return errors.Join(errs...)
}

// Close stops the remaining runs, with cause, and waits until nothing is left of
// them. Call it after the manager has ended: a manager that loses its leadership
// ends without waiting for runs.
func (s *Set) Close(cause error) {
	s.Abort(cause)
	s.drain()
	s.events.close()
}

// drain waits until the kinds have ended, and lets no further ones begin.
func (s *Set) drain() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.active.Wait()
}

// outlasting returns a runnable that runs part until the kinds have ended, since their last runs need it. A manager stops
// all that needs leadership at the same time, and gives up its Lease afterwards; it stops everything else before.
func (s *Set) outlasting(part func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		long, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		defer context.AfterFunc(ctx, func() {
			s.drain()
			stop()
		})()
		return part(long)
	}
}

// Abort stops the runs in progress, with cause, without waiting for their end.
func (s *Set) Abort(cause error) { s.abort(cause) }

// enter is called by a kind that starts. It returns false if the set is closed.
func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active.Add(1)
	}
	return !s.closed
}
