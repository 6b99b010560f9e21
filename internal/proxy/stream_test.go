package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestWatch_EventsComeAsTheyHappen(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	a, _, _ := admit(t, startProxy(t, cfg), Grant{})
	client := clientOf(t, a).CoreV1().ConfigMaps(namespace)
	w := must.Get(client.Watch(t.Context(), metav1.ListOptions{LabelSelector: "seen in (yes,no)"}))(t)
	defer w.Stop()
	// The test waits for each event before it causes the next one. A proxy that held an event back until more come would never
	// deliver it.
	for i := range 20 {
		name := fmt.Sprintf("c%d", i)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": "yes"}}}
		must.Get(client.Create(t.Context(), cm, metav1.CreateOptions{}))(t)
		e, ok := <-w.ResultChan()
		if got, _ := e.Object.(*corev1.ConfigMap); !ok || e.Type != "ADDED" || got == nil || got.Name != name {
			t.Fatalf("event %d is %v", i, e)
		}
	}
}

func TestReads_AreAnsweredAsDirectly(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	p := startProxy(t, cfg)
	_, proxied, _ := admit(t, p, Grant{Inject: true})
	tr := must.Get(rest.TransportFor(cfg))(t)
	direct := &http.Client{Transport: tr}
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	var version string
	for i := range 7 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), Labels: map[string]string{"n": fmt.Sprint(i)}}}
		made := must.Get(client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}))(t)
		version = made.ResourceVersion
	}
	first := must.Get(client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 2}))(t)
	base := "/api/v1/namespaces/" + namespace + "/configmaps"
	for _, path := range []string{
		base + "/c1", base + "/none", base + "?labelSelector=n+in+(1,2),n!=2", base + "?labelSelector=n%20notin%20(1)", base + "?labelSelector=!n", base + "?labelSelector=((",
		base + "?fieldSelector=metadata.name%3Dc3", base + "?fieldSelector=metadata.name!=c3", base + "?fieldSelector=data.x=1",
		base + "?limit=2&continue=" + first.Continue, base + "?continue=nonsense", base + "?limit=x",
		base + "?resourceVersion=" + version + "&resourceVersionMatch=Exact", base + "?resourceVersion=1&resourceVersionMatch=Exact", base + "/c1?resourceVersion=0",
		base + "?watch=true&fieldSelector=metadata.name=c5&timeoutSeconds=1&resourceVersion=0", base + "?watch=1&resourceVersion=1&timeoutSeconds=1", base + "?watch=true&labelSelector=n%20in%20(1,2)&timeoutSeconds=1",
		"/api/v1/watch/namespaces/" + namespace + "/configmaps/c2?timeoutSeconds=1", "/api/v1/namespaces/" + namespace, "/apis/none.test/v1/things", "/healthz", "/nowhere",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
	} {
		for _, accept := range []string{"application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf"} {
			if strings.Contains(path, "watch") && accept != "application/json" {
				continue // each watch takes a second
			}
			type answer struct {
				Code              int
				Type, Cache, Body string
			}
			ask := func(c *http.Client, server string) answer {
				req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server+path, nil))(t)
				req.Header.Set("Accept", accept)
				resp, err := c.Do(req)
				must.Do(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("X-Cache"), string(body)}
			}
			testenv.Eventually(t, "the API server to say the same twice", func(context.Context) error {
				before := ask(direct, cfg.Host)
				got := ask(proxied, p.URL())
				if after := ask(direct, cfg.Host); before != after && !(strings.Contains(path, "watch") && len(before.Body) == len(after.Body)) {
					return errors.New("something else has changed")
				}
				if strings.Contains(path, "watch") && len(got.Body) == len(before.Body) {
					got.Body = before.Body // the order of a watch's first events is random
				}
				diff := cmp.Diff(before, got)
				if strings.Contains(path, "watch") && len(got.Body) != len(before.Body) {
					return fmt.Errorf("the second of one was over before its first events:\n%s", diff)
				}
				if diff != "" {
					t.Errorf("%s as %s (-direct +proxied):\n%s", path, accept, diff)
				}
				return nil
			})
		}
	}
}

// flood sends more than all buffers hold, and counts what it could send.
type flood struct {
	written atomic.Int64
	stalled atomic.Bool // set when a write no longer makes progress
}

// total is far more than sockets and HTTP/2 windows hold together.
const total = 256 << 20

// ServeHTTP writes until a write makes no progress for a while. The length of this time is not critical: a write that is not
// blocked is fast.
func (f *flood) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	control := http.NewResponseController(w)
	chunk := make([]byte, 64<<10)
	for f.written.Load() < total {
		_ = control.SetWriteDeadline(time.Now().Add(3 * time.Second))
		n, err := w.Write(chunk)
		f.written.Add(int64(n))
		if err != nil {
			f.stalled.Store(true)
			return
		}
	}
}

func TestStream_AClientThatDoesNotReadStopsTheAPIServer(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1": plainly,
		"HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			f := &flood{}
			api := script(t, f.ServeHTTP, start)
			cfg := api.config()
			cfg.Insecure = strings.HasPrefix(api.URL, "https")
			p := startProxy(t, cfg)
			_, client, _ := admit(t, p, Grant{})
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/api/v1/namespaces/n/pods/p/log?follow=true", nil))(t)
			resp, err := client.Do(req)
			must.Do(t, err)
			defer resp.Body.Close()
			testenv.Eventually(t, "the API server to be stopped or done", func(context.Context) error {
				if f.stalled.Load() {
					return nil
				}
				return atLeast(&f.written, total)
			})
			const bound = 64 << 20
			if n := f.written.Load(); n > bound {
				t.Errorf("the API server got rid of %d MiB, though no one reads", n>>20)
			} else {
				t.Logf("the API server got rid of %d KiB", n>>10)
			}
		})
	}
}

// endless streams lines until its client has gone.
type endless struct{ open, ended atomic.Int64 }

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.open.Add(1)
	defer e.ended.Add(1)
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		echo(w, protocol)
		return
	}
	fmt.Fprintln(w, "{}")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// echo is a container that sends back what it receives.
func echo(w http.ResponseWriter, protocol string) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw.Reader)
}

// upgraded opens a connection through the proxy and upgrades it to another protocol.
func upgraded(t testing.TB, dial dialer, token, method, path, protocol string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := dial(t)
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", method, path, token, protocol)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // the connection is
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != protocol {
		t.Fatalf("answered %d, to %q", resp.StatusCode, resp.Header.Get("Upgrade"))
	}
	return conn, r
}

func repeats(t testing.TB, conn net.Conn, r *bufio.Reader, text string) {
	t.Helper()
	must.Get(io.WriteString(conn, text))(t)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
		t.Fatalf("%q comes back, %v", got, err)
	}
}

const pod = "/api/v1/namespaces/n/pods/p/"

// upstreams returns the ways to reach an API server.
func upstreams() map[string]func(*httptest.Server) {
	return map[string]func(*httptest.Server){
		"plain": plainly,
		// Without this, both sides would agree on HTTP/2, which has no upgrades.
		"TLS": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	}
}

func TestUpgrade_BytesPassBothWaysAtOnce(t *testing.T) {
	for name, start := range upstreams() {
		e := &endless{}
		api := script(t, e.ServeHTTP, start)
		cfg := api.config()
		cfg.Insecure = name == "TLS"
		p := startProxy(t, cfg)
		_, _, token := admit(t, p, Grant{})
		for way, dial := range dialers(t, p) {
			for _, protocol := range []string{"websocket", "SPDY/3.1"} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					for _, connection := range []string{"exec?command=cat&stdin=true", "attach", "portforward", "proxy/a//b"} {
						t.Run(strings.Join([]string{name, way, protocol, method, connection}, " "), func(t *testing.T) {
							conn, r := upgraded(t, dial, token, method, pod+connection, protocol)
							for range 3 { // each text has to come back before the next is sent
								repeats(t, conn, r, "ping\x00\xff\r\n")
							}
							go func() { _, _ = io.WriteString(conn, strings.Repeat("x", 1<<20)) }()
							if _, err := io.CopyN(io.Discard, r, 1<<20); err != nil {
								t.Error(err)
							}
						})
					}
				}
			}
		}
	}
}

func TestRevoke_EndsEveryStreamBeforeItReturns(t *testing.T) {
	for name, start := range upstreams() {
		t.Run(name, func(t *testing.T) {
			e := &endless{}
			api := script(t, e.ServeHTTP, start)
			cfg := api.config()
			cfg.Insecure = name == "TLS"
			p := startProxy(t, cfg)
			a, _, token := admit(t, p, Grant{})
			_, _, otherToken := admit(t, p, Grant{})
			var streams []*bufio.Reader
			ways := dialers(t, p)
			for _, dial := range ways {
				for _, path := range []string{"/api/v1/pods?watch=true", pod + "log?follow=true"} {
					conn := dial(t)
					fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
					r := bufio.NewReader(conn)
					resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // the connection is
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Fatal(resp, err)
					}
					streams = append(streams, bufio.NewReader(resp.Body))
				}
				for _, protocol := range []string{"websocket", "SPDY/3.1"} {
					conn, r := upgraded(t, dial, token, http.MethodPost, pod+"exec", protocol)
					repeats(t, conn, r, "hello")
					streams = append(streams, r)
				}
			}
			kept, keptReader := upgraded(t, ways["TLS"], otherToken, http.MethodGet, pod+"attach", "websocket")
			a.Revoke()
			for i, s := range streams {
				// A chunked stream that ends without its last chunk is an error, so clients do not take it for the end of a watch.
				_, err := io.Copy(io.Discard, s)
				if isLog := i%4 < 2; isLog && err == nil {
					t.Errorf("stream %d seems to have ended by itself", i)
				}
			}
			testenv.Eventually(t, "the API server to see the end", func(context.Context) error { return atLeast(&e.ended, int64(len(streams))) })
			repeats(t, kept, keptReader, "another run goes on")
		})
	}
}

func TestRevoke_DoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	for _, way := range []string{"plain", "TLS"} {
		f := &flood{}
		api := script(t, f.ServeHTTP, plainly)
		p := startProxy(t, api.config())
		dial := dialers(t, p)[way]
		a, _, token := admit(t, p, Grant{})
		conn := dial(t)
		fmt.Fprintf(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
		testenv.Eventually(t, "the answer to be stuck", func(context.Context) error {
			if !f.stalled.Load() {
				return errFewer
			}
			return nil
		})
		a.Revoke() // otherwise the test never ends
		_ = conn.Close()
		t.Logf("%s: %d KiB were sent", way, f.written.Load()>>10)
	}
}

func TestStream_AClientThatIsGoneFreesEverything(t *testing.T) {
	for name, start := range upstreams() {
		t.Run(name, func(t *testing.T) {
			e := &endless{}
			api := script(t, e.ServeHTTP, start)
			cfg := api.config()
			cfg.Insecure = name == "TLS"
			p := startProxy(t, cfg)
			_, client, token := admit(t, p, Grant{})
			// Open what stays open before the count: connections and discovery.
			if _, _, err := send(t.Context(), client, http.MethodGet, p.URL()+"/api/v1", ""); err != nil {
				t.Fatal(err)
			}
			before := goleak.IgnoreCurrent()
			var conns []net.Conn
			const each = 20
			for _, dial := range dialers(t, p) {
				for range each {
					conn := dial(t)
					fmt.Fprintf(conn, "GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
					up, _ := upgraded(t, dial, token, http.MethodPost, pod+"exec", "SPDY/3.1")
					conns = append(conns, conn, up)
				}
			}
			testenv.Eventually(t, "all streams to be open", func(context.Context) error { return atLeast(&e.open, int64(len(conns))) })
			for _, conn := range conns {
				_ = conn.Close()
			}
			testenv.Eventually(t, "the API server to see the end", func(context.Context) error { return atLeast(&e.ended, int64(len(conns))) })
			testenv.Eventually(t, "goroutines to end", func(context.Context) error {
				api.CloseClientConnections() // closes idle connections, which are kept for the next request
				return goleak.Find(before)
			})
		})
	}
}

func TestStart_ReturnsWhenNothingIsServedAnyMore(t *testing.T) {
	e := &endless{}
	api := script(t, e.ServeHTTP, plainly)
	p := must.Get(New(t.Context(), Options{Config: api.config(), Anonymous: func(Owner) Grant { return Grant{} }}))(t)
	var serving atomic.Int64
	p.direct, p.upgrades = counting(p.direct, &serving), counting(p.upgrades, &serving)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	defer stop()
	_, _, token := admit(t, p, Grant{})
	dial := dialers(t, p)["TLS"]
	conn, r := upgraded(t, dial, token, http.MethodGet, pod+"exec", "websocket")
	repeats(t, conn, r, "hello")
	watch := dial(t)
	fmt.Fprint(watch, "GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")                             // anonymous: no run's end closes it
	if resp, err := http.ReadResponse(bufio.NewReader(watch), nil); err != nil || resp.StatusCode != http.StatusOK { //nolint:bodyclose // the connection is
		t.Fatal(resp, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := serving.Load(); n != 0 {
		t.Errorf("%d answers are still in progress", n)
	}
}

// counting counts the answers whose body is still open.
func counting(next http.RoundTripper, open *atomic.Int64) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && !strings.HasSuffix(r.URL.Path, "/api/v1") {
			open.Add(1)
			var closed atomic.Bool
			done := func() {
				if closed.CompareAndSwap(false, true) {
					open.Add(-1)
				}
			}
			if rw, ok := resp.Body.(io.ReadWriteCloser); ok {
				resp.Body = duplex{rw, done}
			} else {
				resp.Body = simplex{resp.Body, done}
			}
		}
		return resp, err
	})
}

type (
	duplex struct {
		io.ReadWriteCloser
		done func()
	}
	simplex struct {
		io.ReadCloser
		done func()
	}
)

func (d duplex) Close() error  { defer d.done(); return d.ReadWriteCloser.Close() }
func (s simplex) Close() error { defer s.done(); return s.ReadCloser.Close() }

// tapped keeps the bytes that are read.
type tapped struct {
	net.Conn
	got []byte
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got = append(c.got, b[:n]...)
	return n, err
}

func TestTLS_AnAnswerThatEndsWithTheConnectionIsWhole(t *testing.T) {
	api := script(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			fmt.Fprintln(w, "a line")
			_ = http.NewResponseController(w).Flush() // so that the length is not known
		}
	}, plainly)
	p := startProxy(t, api.config())
	_, _, token := admit(t, p, Grant{})
	tap := &tapped{Conn: dialers(t, p)["plain"](t)}
	config := trusting(t, p).TLSClientConfig.Clone()
	config.ServerName, config.MaxVersion = "127.0.0.1", tls.VersionTLS12 // TLS 1.2 shows the types of records
	conn := tls.Client(tap, config)
	fmt.Fprintf(conn, "GET /api/v1/namespaces/n/pods/p/log HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	if n := strings.Count(string(all), "a line\n"); n != 10 {
		t.Errorf("%d lines have come", n)
	}
	// Go accepts an end without an alert; OpenSSL does not.
	must.Be(t, "ended in order", true, tap.endsInOrder())
}

// endsInOrder reports whether the last TLS 1.2 record is an alert.
func (c *tapped) endsInOrder() bool {
	const header, alert = 5, 21
	var last byte
	for rest := c.got; len(rest) >= header; {
		last = rest[0]
		rest = rest[min(len(rest), header+int(rest[3])<<8+int(rest[4])):]
	}
	return last == alert
}
