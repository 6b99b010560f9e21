package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/act"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/operatorpage"
	"github.com/rolewright/rolewright/internal/proxy"
)

// historyOptions say what is kept about runs, and where it is served.
type historyOptions struct {
	historyRuns  int
	historyAge   time.Duration
	historyBytes byteSize
	apiPort      int
	ui           bool
	uiHosts      []string
	uiActions    bool
}

func (o *historyOptions) bindHistory(fs *pflag.FlagSet) {
	o.historyBytes = 64 << 20
	fs.IntVar(&o.historyRuns, "history-max-runs", 10_000, "How many runs the history keeps; 0 for no history.")
	fs.DurationVar(&o.historyAge, "history-max-age", 30*24*time.Hour, "How long the history keeps a run; 0 for no limit.")
	fs.Var(&o.historyBytes, "history-max-bytes", "How much disk the history may take.")
	fs.IntVar(&o.apiPort, "api-port", 0, "The port on the loopback addresses that serves the history to \"rolewright get runs\" and similar commands; 0 for none.")
	fs.BoolVar(&o.ui, "ui", false, "Serve the page of \"rolewright ui\" below /ui/ on --api-port, to requests with a token of the cluster, which a proxy in the Pod adds.")
	fs.StringSliceVar(&o.uiHosts, "ui-hosts", nil, "The hosts by which browsers reach the page of --ui, such as runs.example.com.")
	fs.BoolVar(&o.uiActions, "ui-actions", false, "Show buttons on the page of --ui that reconcile, suspend and resume an object, and cancel its run, with the rights of the reader.")
}

func (o *historyOptions) validateHistory() (problems []error) {
	if o.apiPort < 0 || o.apiPort > 65535 {
		problems = append(problems, fmt.Errorf("--api-port %d is not a port: give 1 to 65535, or 0 for none", o.apiPort))
	}
	if o.apiPort > 0 && o.historyRuns == 0 {
		problems = append(problems, errors.New("--api-port serves the history, which --history-max-runs=0 switches off: leave one of them out"))
	}
	problems = append(problems, o.validateUI()...)
	if o.historyRuns < 0 || o.historyAge < 0 || o.historyBytes < 0 {
		problems = append(problems, fmt.Errorf("--history-max-runs %d, --history-max-age %s and --history-max-bytes %s must not be negative",
			o.historyRuns, o.historyAge, &o.historyBytes))
	}
	return problems
}

func (o *historyOptions) validateUI() (problems []error) {
	if !o.ui {
		if len(o.uiHosts) > 0 || o.uiActions {
			problems = append(problems, errors.New("--ui-hosts and --ui-actions need --ui: add it, or remove them"))
		}
		return problems
	}
	if o.apiPort == 0 {
		problems = append(problems, errors.New("--ui needs --api-port, the port that serves its page"))
	}
	if len(o.uiHosts) == 0 {
		problems = append(problems, errors.New("--ui needs --ui-hosts, the hosts by which browsers reach the page, such as runs.example.com: it refuses all others"))
	}
	for _, host := range o.uiHosts {
		if u, err := url.Parse("https://" + host); err != nil || u.Host != host || host != strings.ToLower(host) || u.Hostname() == "" {
			problems = append(problems, fmt.Errorf("--ui-hosts %q is not a host in lower case, with its port if it has one, such as runs.example.com", host))
		}
	}
	return problems
}

// recorded returns what to keep about runs below the runner root. With leader election, only
// the leader opens the history.
func (op *operator) recorded() assembly.HistoryOptions {
	return assembly.HistoryOptions{
		RunnerRoot: op.runnerRoot, MaxRuns: op.historyRuns, MaxAge: op.historyAge, MaxBytes: int64(op.historyBytes),
		Elected: op.lease != nil, Log: op.log.WithName("history"),
	}
}

// serveAPI opens the port of the API, and returns a function that serves it until its context ends.
func (op *operator) serveAPI(ctx context.Context, discovered *discovery.Cache, set *controller.Set) (func(context.Context) error, error) {
	if op.apiPort == 0 || op.History == nil {
		return func(context.Context) error { return nil }, nil
	}
	client, err := kubernetes.NewForConfig(op.cluster.config)
	if err != nil {
		return nil, fmt.Errorf("client for reviews: %w", err)
	}
	listeners, err := proxy.ListenLoopback(ctx, op.apiPort)
	if err != nil {
		return nil, fmt.Errorf("listen for readers of the history: %w; choose another port with --api-port (0: none)", err)
	}
	lasting := context.WithoutCancel(ctx) // readers are also answered while the last runs end
	kinds := func() []api.Kind { return op.apiKinds(lasting, discovered) }
	served := api.New(api.Options{
		History: op.History, Client: client, Kinds: kinds, Waiting: set.Waiting, Shards: op.sharedAs,
		Leads: func() bool { return op.lease == nil || op.lease.held() == nil },
	})
	handler := http.NewServeMux()
	handler.Handle("/", served)
	if op.ui {
		handler.Handle(operatorpage.Base, operatorpage.New(operatorpage.Options{
			API: served, Address: "http://" + listeners[0].Addr().String(), Cluster: op.cluster.config, Kinds: kinds, Hosts: op.uiHosts, Actions: op.uiActions, Log: op.log.WithName("page"),
			Objects: act.Of,
		}))
	}
	return func(ctx context.Context) error {
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: 32 << 10, BaseContext: func(net.Listener) context.Context { return ctx }, // which ends the streams
		}
		if err := serveUntil(ctx, server, listeners...); err != nil {
			return fmt.Errorf("serve the history: %w", err)
		}
		return nil
	}, nil
}

// apiKinds returns the watched kinds that are installed, each once.
func (op *operator) apiKinds(ctx context.Context, discovered *discovery.Cache) []api.Kind {
	var kinds []api.Kind
	for _, w := range op.watches() {
		res, err := discovered.LookupKind(ctx, w.GVK)
		if err != nil || slices.ContainsFunc(kinds, func(k api.Kind) bool { return k.Group == w.GVK.Group && k.Kind == w.GVK.Kind }) {
			continue // its runs cannot be shown, because it is not known who may read them
		}
		kinds = append(kinds, api.Kind{
			Group: w.GVK.Group, Version: w.GVK.Version, Kind: w.GVK.Kind, Resource: res.GVR.Resource, Namespaced: res.Namespaced,
		})
	}
	return kinds
}
