package proxy

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// goingAway starts an API server that answers writes, but ends the first connection with GOAWAY once it has received a whole
// request, which it does not process. It then calls gone.
func goingAway(t *testing.T, gone func()) (config *rest.Config, answered *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	answered = &atomic.Int64{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"1"}}`))
	})
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{NextProtos: []string{"h2"}}
	s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) {
		if conns.Add(1) > 1 {
			(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: h}) //nolint:staticcheck // one connection, and not a listener
			return
		}
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().StreamID != 0 && frame.Header().Flags.Has(http2.FlagDataEndStream) { // the same flag for headers
				gone()
				_ = f.WriteGoAway(0, http2.ErrCodeNo, nil) // no request was processed
			}
		}
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, answered
}

// An API server that shuts down, or that has --goaway-chance, sends GOAWAY. It names the requests that it has not processed.
// The proxy sends these again on another connection, unless writes are refused by then.
func TestWrites_AreSentAgainAfterGoaway(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path, body string
		fenced             bool
		code               int
		answered           int64
	}{
		"with a body":         {http.MethodPost, "", `{"metadata":{"name":"x"}}`, false, http.StatusCreated, 1},
		"with a body, fenced": {http.MethodPost, "", `{"metadata":{"name":"x"}}`, true, http.StatusServiceUnavailable, 0},
		"without one":         {http.MethodDelete, "/x", "", false, http.StatusCreated, 1},
		"without one, fenced": {http.MethodDelete, "/x", "", true, http.StatusServiceUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var fenced atomic.Bool
			config, answered := goingAway(t, func() { fenced.Store(tc.fenced) })
			p := startProxy(t, config, func(o *Options) {
				o.MayWrite = func() error {
					if fenced.Load() {
						return errors.New("it does not lead")
					}
					return nil
				}
			})
			p.kinds.Store(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap") // so that the proxy looks nothing up before the write
			_, client, _ := admit(t, p, Grant{RunID: "r"})
			code, body, err := send(t.Context(), client, tc.method, p.URL()+"/api/v1/namespaces/n/configmaps"+tc.path, tc.body)
			if err != nil || code != tc.code || answered.Load() != tc.answered {
				t.Errorf("%d %s, %v; the API server has answered %d", code, body, err, answered.Load())
			}
		})
	}
}
