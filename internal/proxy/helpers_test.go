package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// startProxy starts a proxy that serves until the end of the test.
func startProxy(t testing.TB, cfg *rest.Config, opts ...func(*Options)) *Proxy {
	t.Helper()
	o := Options{Config: cfg, Log: logr.Discard()}
	for _, opt := range opts {
		opt(&o)
	}
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("make a proxy: %v", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- p.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve the proxy: %v", err)
		}
	})
	return p
}

// admit lets a client in until the end of the test. It returns the client's access, an HTTP client that presents the token,
// and the token.
func admit(t testing.TB, p *Proxy, g Grant) (*Access, *http.Client, string) {
	t.Helper()
	a := p.Admit(g)
	t.Cleanup(a.Revoke)
	return a, &http.Client{Transport: transport.NewBearerAuthRoundTripper(a.token, trusting(t, p))}, a.token
}

// trusting returns a transport that trusts only the proxy's certificate and presents no credentials.
func trusting(t testing.TB, p *Proxy) *http.Transport {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.ca) {
		t.Fatal("the proxy's certificate is not PEM")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
