package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http wants one
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// Options are the options of [New].
type Options struct {
	// Upstream is the API server, with the credentials for all requests.
	Upstream *rest.Config
	// Rules are the rules of valid plans.
	Rules []plan.Rule
	// Crash sends the signal (KILL, TERM, STOP or CONT) to the replica, and returns when it has been sent. The request that
	// causes the crash waits for it. It is required for rules that crash, and may be called concurrently.
	Crash func(ctx context.Context, replica, signal string)
	// Log gets a line for each fault. The zero value discards them.
	Log logr.Logger
}

// Proxy forwards, records and breaks requests. Its methods may be called concurrently.
type Proxy struct {
	options   Options
	server    *url.URL
	transport http.RoundTripper
	infos     request.RequestInfoFactory
	rules     *rules
	trace     trace
	memory    memory

	// ctx ends with Close, calm with Quiet.
	ctx, calm  context.Context
	end, quiet context.CancelFunc
	handlers   sync.WaitGroup

	mu       sync.Mutex
	replicas map[string]*listener
}

// listener is the listener for one replica.
type listener struct {
	http.Server
	address string
	served  chan struct{} // closed when Serve has returned
}

// New sends no requests. The replicas' listeners are opened by [Proxy.Kubeconfig].
func New(o Options) (*Proxy, error) {
	for i, r := range o.Rules {
		if (r.Action.Do == plan.CrashBefore || r.Action.Do == plan.CrashAfter) && o.Crash == nil {
			return nil, fmt.Errorf("fault proxy: rules[%d] crashes a replica, and Crash is not set", i)
		}
	}
	config := rest.CopyConfig(o.Upstream)
	// One connection for each request in progress: a stream that is held must not hold others up.
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: way to the API server: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: address of the API server: %w", err)
	}
	p := &Proxy{
		options: o, server: server, transport: transport,
		infos:    request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		rules:    newRules(o.Rules),
		replicas: map[string]*listener{},
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.calm, p.quiet = context.WithCancel(p.ctx)
	return p, nil
}

// Kubeconfig leads to the API server through the proxy. Everything that uses it counts as the replica's, whichever of its
// processes it is. The address stays the same until Close.
func (p *Proxy) Kubeconfig(replica string) ([]byte, error) {
	address, err := p.listen(replica)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: listen for replica %s: %w", replica, err)
	}
	const name = "faults"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "http://" + address}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: kubeconfig of replica %s: %w", replica, err)
	}
	return data, nil
}

func (p *Proxy) listen(replica string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return "", errors.New("the proxy is closed")
	}
	if l := p.replicas[replica]; l != nil {
		return l.address, nil
	}
	socket, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	quietLog := log.New(io.Discard, "", 0) // connections are aborted on purpose
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = p.server.Scheme, p.server.Host, ""
			prepare(r.Out.Header)
		},
		Transport:     replicaTransport{proxy: p, replica: replica},
		FlushInterval: -1,
		ErrorLog:      quietLog,
		ErrorHandler:  reset,
	}
	l := &listener{address: socket.Addr().String(), served: make(chan struct{})}
	l.Server = http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p.enter() {
				defer p.handlers.Done()
				forward.ServeHTTP(w, r)
			}
		}),
		BaseContext:       func(net.Listener) context.Context { return p.ctx },
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          quietLog,
	}
	go func() {
		defer close(l.served)
		_ = l.Serve(socket) // it ends with Close, and returns an error for that
	}()
	p.replicas[replica] = l
	return l.address, nil
}

// enter counts a handler, unless the proxy is closed.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.handlers.Add(1)
	return true
}

// Trace returns what went through until the end of the faults, in the order of arrival: requests, and the events that
// watches delivered. No plan can act on what comes later.
func (p *Proxy) Trace() []plan.Request { return p.trace.snapshot(false) }

// Record returns the trace including what has come after Quiet.
func (p *Proxy) Record() []plan.Request { return p.trace.snapshot(true) }

// Fired returns the faults so far, in order.
func (p *Proxy) Fired() []Fired { return p.rules.record() }

// Unreached returns the numbers of the rules that never found what they wait for: a plan with such a rule has proved
// nothing.
func (p *Proxy) Unreached() []int { return p.rules.unreached() }

// Quiet ends all faults: rules do not act any more, what is held continues, and streams that hide something end. It does not
// wait for that.
func (p *Proxy) Quiet() {
	p.rules.stop()
	p.trace.stop()
	p.quiet()
}

// Close ends all connections and waits until nothing of the proxy is left. It may be called repeatedly.
func (p *Proxy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Quiet()
	p.end()
	for _, l := range p.replicas {
		_ = l.Close() // it cannot end in another way
		<-l.served
	}
	p.handlers.Wait()
	if t, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// hold waits for d, or until the faults or ctx end.
func (p *Proxy) hold(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.calm.Done():
	case <-ctx.Done():
	}
}

// reset ends a connection without an answer, as if the other machine had gone away.
func reset(w http.ResponseWriter, _ *http.Request, _ error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's way to abort
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST rather than FIN
	}
	_ = conn.Close()
}
