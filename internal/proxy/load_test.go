package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestListen_OnlyLoopbackHears(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	port := portOf(p.listeners[0])
	for _, l := range p.listeners {
		if addr, ok := l.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() || addr.Port != port {
			t.Errorf("a listener is at %v", l.Addr())
		}
	}
	addresses := must.Get(net.InterfaceAddrs())(t)
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s hears too", ip)
		}
	}
	// Count the listening sockets that the kernel has for this port.
	heard := 0
	for file, loopback := range map[string]string{"tcp": "0100007F", "tcp6": "00000000000000000000000001000000"} {
		data, err := os.ReadFile("/proc/self/net/" + file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the machine does not have this protocol
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				heard++
				if f[1] != fmt.Sprintf("%s:%04X", loopback, port) {
					t.Errorf("a socket listens at %s", f[1])
				}
			}
		}
	}
	if heard != len(p.listeners) {
		t.Errorf("%d sockets listen at the port, want %d", heard, len(p.listeners))
	}
}

func TestListen_TheCertificateIsThatOfTheLoopbackNames(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, _, token := admit(t, p, Grant{})
	roots := trusting(t, p).TLSClientConfig.RootCAs
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		for _, l := range p.listeners {
			conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
			if err != nil {
				t.Errorf("%s at %s: %v", name, l.Addr(), err)
				continue
			}
			fmt.Fprintf(conn, "GET /version HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", l.Addr(), token)
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK { //nolint:bodyclose // the connection is
				t.Errorf("%s at %s: %v, %v", name, l.Addr(), resp, err)
			}
			_ = conn.Close()
		}
	}
	for _, name := range []string{"evil.example", "127.0.0.2", "localhost.evil.example"} {
		conn, err := tls.Dial("tcp", p.listeners[0].Addr().String(), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
			t.Errorf("the certificate is one of %s, too", name)
		}
	}
}

func TestKubeconfig_IsWhatClientsLoad(t *testing.T) {
	cfg := testenv.Config(t)
	p := startProxy(t, cfg)
	var servers []string
	for _, namespace := range []string{"first", "second"} {
		a, _, token := admit(t, p, Grant{Owner: Owner{Namespace: namespace}})
		data := must.Get(a.Kubeconfig())(t)
		loaded := must.Get(clientcmd.Load(data))(t)
		if want := namespace + "/proxy-server"; loaded.CurrentContext != want || loaded.Contexts[want].Namespace != "" {
			t.Errorf("the context is %q in namespace %q", loaded.CurrentContext, loaded.Contexts[want].Namespace)
		}
		config := must.Get(clientcmd.RESTConfigFromKubeConfig(data))(t)
		servers = append(servers, config.Host)
		if config.BearerToken != token {
			t.Error("the token is another")
		}
		client := must.Get(kubernetes.NewForConfig(config))(t)
		if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
			t.Errorf("a client of %s: %v", namespace, err)
		}
	}
	if servers[0] != servers[1] || servers[0] != p.URL() {
		t.Errorf("the servers are %q", servers)
	}
}

// hasty starts a proxy with short time limits for slow clients. Its tests check that the limits take effect, not when.
func hasty(t *testing.T, api *scripted) *Proxy {
	t.Helper()
	return withPatience(t, api, 300*time.Millisecond)
}

// patient is a time limit that no test reaches.
const patient = time.Hour

func withPatience(t *testing.T, api *scripted, patience time.Duration, opts ...func(*Options)) *Proxy {
	t.Helper()
	o := Options{Config: api.config()}
	for _, opt := range opts {
		opt(&o)
	}
	p := must.Get(New(t.Context(), o))(t)
	p.headerTimeout, p.bodyTimeout = patience, patience
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

// slow is a client that sends only the beginning of a request.
type slow struct {
	name string
	dial dialer
	sent string
	// answered is the status code that comes before the connection ends; 0 if none comes.
	answered int
}

// begin connects and sends the beginning of the request.
func (c slow) begin(t *testing.T) (net.Conn, error) {
	t.Helper()
	conn := c.dial(t)
	_, err := io.WriteString(conn, c.sent)
	return conn, err
}

func slowClients(t *testing.T, p *Proxy, token string) []slow {
	t.Helper()
	hello := []byte{recordHandshake, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}
	post := "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	mine := "Authorization: Bearer " + token + "\r\n"
	ways := dialers(t, p)
	cases := []slow{
		{"half a TLS hello", ways["plain"], string(hello), 0},
		{"one byte of TLS", ways["plain"], string(hello[:1]), 0},
		{"says nothing", ways["plain"], "", 0},
	}
	for way, dial := range ways {
		cases = append(cases,
			slow{way + ": half a line", dial, "GET /api", 0},
			slow{way + ": half a header", dial, "GET /api HTTP/1.1\r\nHost: localhost\r\n" + mine, 0},
			slow{way + ": half a body", dial, post + mine + "Content-Length: 100\r\n\r\n{", 400},
			slow{way + ": no body", dial, post + mine + "Content-Length: 100\r\n\r\n", 400},
			slow{way + ": half a chunk", dial, post + mine + "Transfer-Encoding: chunked\r\n\r\n5\r\n{", 400},
			slow{way + ": half a body without a token", dial, post + "Content-Length: 100\r\n\r\n{", 401},
			slow{way + ": half a chunk without a token", dial, post + "Transfer-Encoding: chunked\r\n\r\n5\r\n{", 401},
			slow{way + ": half a body for a foreign host", dial, strings.Replace(post, "localhost", "evil", 1) + mine + "Content-Length: 100\r\n\r\n{", 403},
		)
	}
	return cases
}

// expectOnlyReads checks at the end of the test that no request of a slow client has arrived.
func (s *scripted) expectOnlyReads(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, a := range s.seen() {
			if a.Method != http.MethodGet {
				t.Errorf("%s %s has arrived", a.Method, a.URI)
			}
		}
	})
}

func TestSlowClients_HinderNobody(t *testing.T) {
	api := script(t, nil, plainly)
	p := withPatience(t, api, patient)
	_, client, token := admit(t, p, Grant{Inject: true})
	api.expectOnlyReads(t)
	for _, c := range slowClients(t, p, token) {
		if _, err := c.begin(t); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // ends a broken test; it measures nothing
	defer cancel()
	for range 20 {
		if code, _, err := get(ctx, client, p.URL()+"/api/v1/namespaces/n/configmaps/x"); err != nil || code != http.StatusOK {
			t.Fatalf("others are answered %d, %v", code, err)
		}
	}
}

func TestSlowClients_AreCut(t *testing.T) {
	api := script(t, nil, plainly)
	p := hasty(t, api)
	_, _, token := admit(t, p, Grant{Inject: true})
	api.expectOnlyReads(t)
	for _, c := range slowClients(t, p, token) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // shows each client that is not cut off
			testenv.Eventually(t, "the answer and the end", func(context.Context) error {
				conn, err := c.begin(t)
				if err != nil {
					return err // it was already cut off
				}
				defer conn.Close()
				end := time.Now().Add(time.Minute) // far longer than the proxy's limits; ends a broken test
				must.Do(t, conn.SetReadDeadline(end))
				r := bufio.NewReader(conn)
				if c.answered != 0 {
					resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // the connection is
					if err != nil {
						return fmt.Errorf("no answer: %w", err) // or it was cut off before the header was sent
					}
					if resp.StatusCode != c.answered {
						t.Errorf("answered %d, want %d", resp.StatusCode, c.answered)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
				}
				_, err = io.Copy(io.Discard, r)
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					t.Error("the connection is not cut")
				}
				return nil
			})
		})
	}
}

func TestBody_TheLimitIsTheAPIServersOwn(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	p := startProxy(t, cfg)
	_, client, _ := admit(t, p, Grant{})
	tr := must.Get(rest.TransportFor(cfg))(t)
	ways := map[string]func(string) string{"direct": nil, "proxied": nil}
	for way := range ways {
		ways[way] = func(extra string) string {
			text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + way + `"}}`
			return text + strings.Repeat(" ", maxBody-len(text)) + extra
		}
	}
	type answer struct {
		Code int
		Body string
	}
	ask := func(way, body string) answer {
		c, base := client, p.URL()
		if way == "direct" {
			c, base = &http.Client{Transport: tr}, cfg.Host
		}
		code, got, err := send(t.Context(), c, http.MethodPost, base+"/api/v1/namespaces/"+namespace+"/configmaps", body)
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		return answer{code, got}
	}
	above := map[string]answer{}
	for way, body := range ways {
		if got := ask(way, body("")); got.Code != http.StatusCreated {
			t.Errorf("%s: 3 MiB are answered %d %s", way, got.Code, got.Body)
		}
		above[way] = ask(way, body(" "))
	}
	if above["direct"].Code != http.StatusRequestEntityTooLarge {
		t.Errorf("the API server answers %+v", above["direct"])
	}
	if diff := cmp.Diff(above["direct"], above["proxied"]); diff != "" {
		t.Errorf("above 3 MiB (-direct +proxied):\n%s", diff)
	}
}

// An OpenShift build takes its source as a stream of any length.
func TestLoad_Upload(t *testing.T) {
	t.Parallel()
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	}, plainly)
	p := withPatience(t, api, patient)
	stream := io.LimitReader(zeroes{}, 8<<20) // the client does not send the length
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost,
		p.URL()+"/apis/build.openshift.io/v1/namespaces/default/buildconfigs/app/instantiatebinary", stream))(t)
	_, client, _ := admit(t, p, Grant{RunID: "it"})
	resp, err := client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	must.Be(t, "what the API server has read", "8388608 <nil>", string(must.Get(io.ReadAll(resp.Body))(t)))
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

func TestLoad_AThousandRequestsAtOnce(t *testing.T) {
	const n = 1000
	var arrived atomic.Int64
	all := make(chan struct{})
	release := sync.OnceFunc(func() { close(all) })
	// The API server answers only when all requests are here, so they are in progress at the same time.
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == n {
			release()
		}
		<-all
		fmt.Fprint(w, r.URL.Path)
	}, plainly)
	p := withPatience(t, api, patient) // the machine may be slow
	var clients []*http.Client
	for i := range 10 {
		_, c, _ := admit(t, p, Grant{RunID: strconv.Itoa(i)})
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			path := fmt.Sprintf("/api/v1/namespaces/n/configmaps/c%d", i)
			code, body, err := get(t.Context(), clients[i%len(clients)], p.URL()+path)
			if err != nil || code != http.StatusOK || body != path {
				release()
				t.Errorf("request %d: %d %q %v, as %d have arrived", i, code, body, err, arrived.Load())
			}
		})
	}
	wg.Wait()
}

// roundTripper is a scripted transport to the API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLoad_APanicEndsOneRequestAlone(t *testing.T) {
	release := make(chan struct{})
	api := script(t, func(w http.ResponseWriter, _ *http.Request) { <-release; fmt.Fprint(w, "served") }, plainly)
	cfg := api.config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "panic") {
				panic("scripted")
			}
			return next.RoundTrip(r)
		})
	})
	numbers := prometheus.NewRegistry()
	p := startProxy(t, cfg, func(o *Options) { o.Metrics = must.Get(metrics.New(numbers))(t) })
	a, client, _ := admit(t, p, Grant{})
	base := p.URL() + "/api/v1/namespaces/n/configmaps/"
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if code, body, err := get(t.Context(), client, base+"fine"); err != nil || body != "served" {
				t.Errorf("a request beside the panics: %d %q %v", code, body, err)
			}
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		for range 10 {
			if code, body, err := send(t.Context(), client, method, base+"panic", ""); err == nil {
				t.Errorf("a request that panics is answered %d %q", code, body)
			}
		}
	}
	close(release)
	wg.Wait()
	a.Revoke() // waits for all requests, also for those that panicked
	requests, _ := counted(t, numbers)
	want := map[string]int{"get/ConfigMap/ok": 20, "get/ConfigMap/failed": 10, "create/ConfigMap/failed": 10, "delete/ConfigMap/failed": 10}
	// A transport may repeat a GET or a DELETE whose connection broke.
	if got := requests["get/ConfigMap/failed"]; got >= 10 {
		requests["get/ConfigMap/failed"] = 10
	}
	if got := requests["delete/ConfigMap/failed"]; got >= 10 {
		requests["delete/ConfigMap/failed"] = 10
	}
	must.Be(t, "counted", want, requests)
}

func TestErrors_AnAPIServerThatIsAwayIs502(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, client, _ := admit(t, p, Grant{Inject: true})
	api.Close()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		code, body, err := send(t.Context(), client, method, p.URL()+"/api/v1/namespaces/n/configmaps/x", `{"kind":"ConfigMap"}`)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil {
			t.Fatalf("%s: %q: %v", method, body, err)
		}
		want, message := http.StatusBadGateway, "the API server cannot be reached"
		if method == http.MethodPut { // the proxy reads the object first
			want, message = http.StatusServiceUnavailable, "the owner of the object cannot be looked up"
		}
		if code != want || status.Kind != "Status" || int(status.Code) != want || status.Status != metav1.StatusFailure || !strings.Contains(status.Message, message) {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
}

// If the API server refuses a request of the proxy itself for a moment, the run's write still succeeds.
func TestErrors_WhatTheProxyItselfAsksIsAskedAgain(t *testing.T) {
	for name, verb := range map[string]string{"the look at the owner": http.MethodGet, "the mark after a write": http.MethodPatch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testenv.Config(t)
			namespace := testenv.Namespace(t, cfg)
			var refused atomic.Bool
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.Method == verb && strings.HasSuffix(req.URL.Path, "/configmaps/x") && !refused.Swap(true) {
						return &http.Response{StatusCode: http.StatusTooManyRequests, Request: req, Body: http.NoBody, Header: http.Header{"Retry-After": {"1"}}}, nil
					}
					return next.RoundTrip(req)
				})
			})
			configMaps := kubernetes.NewForConfigOrDie(testenv.Config(t)).CoreV1().ConfigMaps(namespace)
			owner := must.Get(configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o"}}, metav1.CreateOptions{}))(t)
			a, _, _ := admit(t, startProxy(t, cfg), Grant{Inject: true, AdoptUnowned: true, Owner: Owner{
				GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: namespace, Name: "o", UID: owner.UID,
			}})
			own := clientOf(t, a).CoreV1().ConfigMaps(namespace)
			is := must.Get(own.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}))(t)
			is.Data = map[string]string{"a": "b"}
			must.Get(own.Update(t.Context(), is, metav1.UpdateOptions{}))(t)
			if is = must.Get(configMaps.Get(t.Context(), "x", metav1.GetOptions{}))(t); !refused.Load() || len(is.OwnerReferences) != 1 {
				t.Errorf("refused: %t, owners: %v", refused.Load(), is.OwnerReferences)
			}
		})
	}
}

func TestErrors_WhatTheAPIServerAnswersPassesUnchanged(t *testing.T) {
	type answer struct {
		Code   int
		Header http.Header
		Body   string
	}
	var want answer
	api := script(t, func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range want.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(want.Code)
		_, _ = io.WriteString(w, want.Body)
	}, plainly)
	p := startProxy(t, api.config())
	_, client, _ := admit(t, p, Grant{Inject: true})
	for _, code := range []int{200, 201, 202, 301, 307, 400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504, 507} {
		want = answer{code, http.Header{
			"Content-Type": {"application/json"}, "Warning": {`299 - "one"`, `299 - "two"`}, "Retry-After": {"7"}, "Audit-Id": {"a"},
			"X-Kubernetes-Pf-Flowschema-Uid": {"f"}, "Www-Authenticate": {"Basic"}, "Location": {"https://elsewhere.example/"},
		}, fmt.Sprintf(`{"kind":"Status","code":%d}`+"\n", code)}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL()+"/api/v1/namespaces/n/pods", strings.NewReader(`{"kind":"Pod"}`)))(t)
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Transport.RoundTrip(req)
			must.Do(t, err)
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			resp.Header.Del("Date")
			resp.Header.Del("Content-Length")
			if diff := cmp.Diff(want, answer{resp.StatusCode, resp.Header, string(body)}); diff != "" || err != nil {
				t.Errorf("%s (-want +got), %v:\n%s", method, err, diff)
			}
		}
	}
}

// lines collects the lines of a logger.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestLog_EveryWriteHasALineAndNoneItsBody(t *testing.T) {
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "denied") {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"made-up","uid":"u"},"data":{"p":"hunter2"}}`)
	}, plainly)
	var mu sync.Mutex
	var got []map[string]any
	var text lines
	log := funcr.NewJSON(func(obj string) {
		_, _ = text.Write([]byte(obj + "\n"))
		var line map[string]any
		if err := json.Unmarshal([]byte(obj), &line); err != nil {
			t.Errorf("%s: %v", obj, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if line["msg"] == "Write" {
			got = append(got, line)
		}
	}, funcr.Options{Verbosity: 10})
	p := startProxy(t, api.config(), func(o *Options) { o.Log = log })
	a, client, _ := admit(t, p, Grant{RunID: "run-7", Owner: Owner{Namespace: "n", Name: "cr", UID: "o"}, Inject: true})
	const body = `{"kind":"Secret","apiVersion":"v1","metadata":{"generateName":"m"},"data":{"p":"hunter2"}}`
	base := p.URL() + "/api/v1/namespaces/n/"
	for _, request := range [][2]string{
		{"POST", "secrets"}, {"PUT", "secrets/kept"}, {"DELETE", "secrets/gone"}, {"DELETE", "secrets/denied"}, {"POST", "pods/p/eviction"}, {"POST", "secrets?dryRun=All"}, {"GET", "secrets/read"},
	} {
		if _, _, err := send(t.Context(), client, request[0], base+request[1], body); err != nil {
			t.Fatal(err)
		}
	}
	a.Refuse("the object is gone")
	if _, _, err := send(t.Context(), client, "DELETE", base+"secrets/refused", ""); err != nil {
		t.Fatal(err)
	}
	a.Revoke() // everything is logged when this returns
	type line struct {
		Verb, Resource, Subresource, Namespace, Object, Outcome string
		Code                                                    float64
		DryRun                                                  bool
	}
	var found []line
	mu.Lock()
	defer mu.Unlock()
	for _, l := range got {
		if l["job"] != "run-7" || l["owner"] != "n/cr" {
			t.Errorf("whose line is %v?", l)
		}
		str := func(key string) string { s, _ := l[key].(string); return s }
		code, _ := l["code"].(float64)
		dryRun, _ := l["dryRun"].(bool)
		found = append(found, line{str("verb"), str("resource"), str("subresource"), str("namespace"), str("object"), str("outcome"), code, dryRun})
	}
	const secrets, pods = "/v1, Resource=secrets", "/v1, Resource=pods"
	want := []line{
		{"create", secrets, "", "n", "made-up", "ok", 200, false}, {"update", secrets, "", "n", "kept", "ok", 200, false},
		{"delete", secrets, "", "n", "gone", "ok", 200, false}, {"delete", secrets, "", "n", "denied", "client_error", 403, false},
		{"create", pods, "eviction", "n", "p", "ok", 200, false}, {"create", secrets, "", "n", "", "ok", 200, true},
		{"delete", secrets, "", "n", "refused", "refused", 0, false},
	}
	must.Be(t, "lines", want, found)
	for _, secret := range []string{"hunter2", a.token, operatorToken} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%q is in the log:\n%s", secret, text.String())
		}
	}
}

func TestLog_SkippingCacheLookupIsTheIncumbentsLine(t *testing.T) {
	api := script(t, nil, plainly)
	var out lines
	var options zap.Options
	options.Level = zapcore.Level(-2)
	options.DestWriter = &out
	p := startProxy(t, api.config(), func(o *Options) { o.Log = zap.New(zap.UseFlagOptions(&options)).WithName("proxy") })
	a, client, _ := admit(t, p, Grant{})
	for _, path := range []string{"/api/v1/namespaces/ns/configmaps/cm", "/api/v1/namespaces/ns/pods/p/log?follow=true", "/version", "/apis/x.y/v1/things?watch=true"} {
		if _, _, err := get(t.Context(), client, p.URL()+path); err != nil {
			t.Fatal(err)
		}
	}
	a.Revoke()
	var got []string
	for line := range strings.Lines(out.String()) {
		if _, rest, ok := strings.Cut(line, `"msg":`); ok && strings.Contains(line, "Skipping") {
			got = append(got, strings.TrimSpace(rest))
		}
	}
	want := []string{
		`"Skipping cache lookup","resource":{"IsResourceRequest":true,"Path":"/api/v1/namespaces/ns/configmaps/cm","Verb":"get","APIPrefix":"api","APIGroup":"","APIVersion":"v1","Namespace":"ns","Resource":"configmaps","Subresource":"","Name":"cm","Parts":["configmaps","cm"]}}`,
		`"Skipping cache lookup","resource":{"IsResourceRequest":true,"Path":"/api/v1/namespaces/ns/pods/p/log","Verb":"get","APIPrefix":"api","APIGroup":"","APIVersion":"v1","Namespace":"ns","Resource":"pods","Subresource":"log","Name":"p","Parts":["pods","p","log"]}}`,
		`"Skipping cache lookup","resource":{"IsResourceRequest":true,"Path":"/apis/x.y/v1/things","Verb":"watch","APIPrefix":"apis","APIGroup":"x.y","APIVersion":"v1","Namespace":"","Resource":"things","Subresource":"","Name":"","Parts":["things"]}}`,
	}
	must.Be(t, "lines", want, got)
}

// secured is an API server behind TLS that accepts only the credentials that are valid at the moment.
func secured(t *testing.T, allowed func(*http.Request) bool, tune func(*httptest.Server)) (*scripted, []byte) {
	t.Helper()
	api := script(t, nil, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed(r) {
				http.Error(w, "not you", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
		if tune != nil {
			tune(s)
		}
		s.StartTLS()
	})
	return api, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
}

// served waits until the proxy serves requests, and fails if it never does.
func served(t *testing.T, p *Proxy, client *http.Client) {
	t.Helper()
	testenv.Eventually(t, "the operator's credentials to be accepted", func(ctx context.Context) error {
		code, body, err := get(ctx, client, p.URL()+"/api/v1/namespaces/n/configmaps/x")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("answered %d %s", code, body)
		}
		return err
	})
}

// client-go rereads such files once a minute.
func TestCredentials_AreReadFromFiles(t *testing.T) {
	t.Parallel()
	api, ca := secured(t, func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer first" }, func(s *httptest.Server) { s.EnableHTTP2 = true })
	dir := t.TempDir()
	token, authority := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	write(t, token, "first")
	write(t, authority, string(ca))
	p := startProxy(t, &rest.Config{Host: api.URL, BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}})
	_, client, _ := admit(t, p, Grant{})
	served(t, p, client)
}

func TestCredentials_APluginIsAskedAgain(t *testing.T) {
	var accepted atomic.Value
	accepted.Store("Bearer first")
	api, ca := secured(t, func(r *http.Request) bool { return r.Header.Get("Authorization") == accepted.Load() }, nil)
	dir := t.TempDir()
	plugin, secret := filepath.Join(dir, "plugin"), filepath.Join(dir, "secret")
	write(t, secret, "first")
	write(t, plugin, "#!/bin/sh\nprintf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}' \"$(cat "+secret+")\"\n")
	must.Do(t, os.Chmod(plugin, 0o700))
	p := startProxy(t, &rest.Config{
		Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		ExecProvider: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: plugin, InteractiveMode: clientcmdapi.NeverExecInteractiveMode},
	})
	_, client, _ := admit(t, p, Grant{})
	served(t, p, client)
	write(t, secret, "second")
	accepted.Store("Bearer second") // the next 401 makes client-go call the plugin
	served(t, p, client)
}

func TestCredentials_AClientCertificateIsPresentedAndReadAnew(t *testing.T) {
	var accepted atomic.Value
	first, firstKey, firstDER := clientCertificate(t)
	second, secondKey, secondDER := clientCertificate(t)
	transport.CertCallbackRefreshDuration = 100 * time.Millisecond // client-go's setting for tests
	accepted.Store(firstDER)
	api, ca := secured(t, func(r *http.Request) bool {
		certs := r.TLS.PeerCertificates
		return len(certs) == 1 && bytes.Equal(certs[0].Raw, accepted.Load().([]byte)) && r.Header.Get("Authorization") == ""
	}, func(s *httptest.Server) { s.EnableHTTP2 = true })
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, first)
	write(t, key, firstKey)
	config := &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertFile: cert, KeyFile: key}}
	p := startProxy(t, config)
	_, client, _ := admit(t, p, Grant{})
	served(t, p, client)
	write(t, cert, second)
	write(t, key, secondKey)
	accepted.Store(secondDER)
	api.CloseClientConnections() // a new connection reads the files again
	served(t, p, client)
}

func clientCertificate(t *testing.T) (cert, key string, der []byte) {
	t.Helper()
	certificate, privateKey, err := selfsigned.New("client")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	return string(certificate), string(privateKey), block.Bytes
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}
