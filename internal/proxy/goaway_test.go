package proxy

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

// An API server that shuts down, or that has --goaway-chance, sends GOAWAY. It names the requests that it has not processed.
// The proxy sends these again on another connection.
func TestWrites_AreSentAgainAfterGoaway(t *testing.T) {
	var conns atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			if d, ok := frame.(*http2.DataFrame); ok && d.StreamEnded() {
				_ = f.WriteGoAway(0, http2.ErrCodeNo, nil) // no request was processed
			}
		}
	}}
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	p := startProxy(t, &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	p.kinds.Store(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap") // so that the proxy looks nothing up before the write
	_, client, _ := admit(t, p, Grant{RunID: "r"})
	resp, err := client.Post(p.URL()+"/api/v1/namespaces/n/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"x"}}`))
	must.Do(t, err)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
