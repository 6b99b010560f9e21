package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/runner/selfsigned"
)

// Call is a kind of request to the API server for which runs need permission.
type Call struct {
	Verb        string
	Resource    schema.GroupVersionResource
	Subresource string
	// Namespaced is true if the request is for one namespace.
	Namespaced bool
	// Owner is the kind of the custom resource that the run is for; empty for a
	// client without a token.
	Owner schema.GroupKind
	// Owned is true if the written object has the owner's mark.
	Owned bool
}

// Outcomes of requests.
const (
	OutcomeOK      = "ok"
	OutcomeRefused = "refused"      // by the proxy
	OutcomeClient  = "client_error" // the API server answered 4xx
	OutcomeServer  = "server_error" // the API server answered 5xx
	OutcomeFailed  = "failed"       // no answer
)

// Options says where requests go and what the proxy depends on.
type Options struct {
	// Config is the operator's configuration for the API server. It may use everything
	// that client-go supports, including a path prefix and rotated credentials.
	Config *rest.Config
	// Port is the port on the loopback addresses; 0 means any free one.
	Port int
	// JobNamespace is the namespace of runs as Jobs; other runs cannot reach their Secrets, Pods and Jobs. Empty if there
	// are no runs as Jobs.
	JobNamespace string
	// Election is the Lease of the operator's leader election. Runs must not write it, nor the Leases of shards and
	// replicas, whose names begin with its name. Empty for none.
	Election types.NamespacedName
	// MayWrite returns nil as long as writes may be forwarded: while this replica
	// leads. It is called for each write, right before the write is sent. nil allows
	// all writes.
	MayWrite func() error
	// Anonymous lets in clients without a token, or with that of a service account, with all of the operator's
	// permissions. It returns the grant for the owner that such a client names.
	// If it is nil, such clients are refused.
	Anonymous func(Owner) Grant
	Log       logr.Logger
	// Metrics counts requests; nil counts nothing.
	Metrics *metrics.Recorder
	// Record is called for each request that the API server has answered, whatever
	// the answer, and for the requests that the proxy adds to it. It is called
	// concurrently. nil records nothing.
	Record func(Call)
}

// Proxy stands in for the API server on the loopback interface.
type Proxy struct {
	opts Options
	log  logr.Logger
	base *url.URL
	// direct sends requests; upgrades sends those that change the protocol, which
	// HTTP/2 does not support.
	direct, upgrades http.RoundTripper
	discovery        *discovery.Cache
	infos            request.RequestInfoFactory
	listeners        []net.Listener
	ca               []byte
	certificate      tls.Certificate
	sessions         sessions
	// all is a session that is open as long as the proxy serves.
	all *session
	// kinds maps resources to the names of kinds that were looked up: they do not
	// change.
	kinds   sync.Map
	buffers *buffers
	// room limits the bytes of all requests' bodies, answers those of answers, and marks those of the answers to writes
	// of objects that are marked afterwards.
	room, answers, marks *semaphore.Weighted
	// How long a client may take to send the header, and the body.
	headerTimeout, bodyTimeout time.Duration
}

// New opens the port. The proxy serves once Start is called.
func New(ctx context.Context, opts Options) (*Proxy, error) {
	p := &Proxy{
		opts: opts, log: opts.Log,
		infos: request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		},
		buffers:       &buffers{},
		room:          semaphore.NewWeighted(maxHeld),
		answers:       semaphore.NewWeighted(maxHeld),
		marks:         semaphore.NewWeighted(maxHeld),
		headerTimeout: headerTimeout, bodyTimeout: bodyTimeout,
		all:      newSession(Grant{}),
		sessions: sessions{byToken: map[[sha256.Size]byte]*session{}},
	}
	if err := p.connect(opts.Config); err != nil {
		return nil, err
	}
	p.discovery = discovery.New(p.direct, p.base, opts.Log)
	certificate, key, err := selfsigned.New("localhost")
	if err != nil {
		return nil, fmt.Errorf("certificate of the API proxy: %w", err)
	}
	p.ca = certificate
	if p.certificate, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, fmt.Errorf("certificate of the API proxy: %w", err)
	}
	if p.listeners, err = listen(ctx, opts.Port); err != nil {
		return nil, err
	}
	return p, nil
}

// Discovery returns the cache from which the proxy answers discovery.
func (p *Proxy) Discovery() *discovery.Cache { return p.discovery }

// URL returns the server in the kubeconfigs of runs. It has an address, not a host
// name: a name may lead to another server first.
func (p *Proxy) URL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(portOf(p.listeners[0])))
}

// headerTimeout is how long a client may take to send its header, including the TLS
// handshake. It is generous, because a thousand clients that connect at once are
// slow on a busy machine.
const headerTimeout = 30 * time.Second

// maxHeaderBytes suffices for the longest selectors.
const maxHeaderBytes = 256 << 10

// server returns a server with the limits for all clients.
func (p *Proxy) server(handler http.Handler, certificate tls.Certificate) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // each request has its own connection, which can be cut, and counts
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: p.headerTimeout,
		IdleTimeout:       2 * time.Minute, // longer than the pauses within a run
		MaxHeaderBytes:    maxHeaderBytes,
		// No request is answered without a token, not even OPTIONS *.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     p.errorLog(),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate},
			MinVersion:   tls.VersionTLS12,
			NextProtos:   []string{"http/1.1"},
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// Start serves until ctx ends, and returns when all requests have ended. ctx must
// outlive the runs, which need the API server until their end.
func (p *Proxy) Start(ctx context.Context) error {
	server := p.server(p, p.certificate)
	var wg sync.WaitGroup
	failed := make(chan error, len(p.listeners))
	for _, l := range p.listeners {
		p.log.Info("Starting to serve", "Address", l.Addr().String())
		wg.Go(func() {
			if err := server.Serve(&eitherListener{Listener: l, config: server.TLSConfig}); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve the API proxy: %w", err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	_ = server.Close() // it closes the listeners, too
	wg.Wait()
	p.all.close() // requests that net/http does not wait for, and upgraded connections, which it no longer knows
	return err
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// kindOf returns the name of a resource's kind; empty if it is not known.
func (p *Proxy) kindOf(ctx context.Context, gvr schema.GroupVersionResource) string {
	if kind, ok := p.kinds.Load(gvr); ok {
		return kind.(string)
	}
	res, err := p.discovery.Lookup(ctx, gvr)
	if err != nil {
		return ""
	}
	p.kinds.Store(gvr, res.Kind)
	return res.Kind
}
