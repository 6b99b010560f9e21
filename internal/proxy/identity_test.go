package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// operatorToken is the token that the operator presents to a scripted API server.
const operatorToken = "operator-secret"

// arrival is a request as a scripted API server received it.
type arrival struct {
	Method, URI, Host string
	Header, Trailer   http.Header
	Body              string
}

// scripted is an API server that answers as its test says, and records the requests that arrive. It serves core/v1 and no
// other group.
type scripted struct {
	*httptest.Server
	answer http.HandlerFunc

	mu       sync.Mutex
	arrivals []arrival // without discovery
	all      int
}

// coreV1 is the part of discovery that the tests need.
const coreV1 = `{"kind":"APIResourceList","groupVersion":"v1","resources":[
 {"name":"pods","namespaced":true,"kind":"Pod","verbs":["create","delete","get","list","patch","update","watch"]},
 {"name":"secrets","namespaced":true,"kind":"Secret","verbs":["create","delete","get","list","patch","update","watch"]},
 {"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["create","delete","get","list","patch","update","watch"]}]}`

// script starts a scripted API server. If answer is nil, the API server answers with an empty object.
func script(t testing.TB, answer http.HandlerFunc, start func(*httptest.Server)) *scripted {
	t.Helper()
	s := &scripted{answer: answer}
	s.Server = httptest.NewUnstartedServer(s)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

// plainly serves without TLS.
func plainly(s *httptest.Server) { s.Start() }

// ServeHTTP implements [http.Handler].
func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.all++
	s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/api/v1") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, coreV1)
		return
	}
	var body []byte
	if r.ContentLength != 0 && r.Header.Get("Upgrade") == "" {
		body, _ = io.ReadAll(r.Body)
	}
	s.mu.Lock()
	s.arrivals = append(s.arrivals, arrival{r.Method, r.RequestURI, r.Host, r.Header.Clone(), r.Trailer.Clone(), string(body)})
	s.mu.Unlock()
	if s.answer != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"1"}}`)
}

// seen returns the requests that have arrived, without discovery.
func (s *scripted) seen() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrivals)
}

// count returns how many requests have arrived, with discovery.
func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// config returns the operator's client configuration for the scripted API server.
func (s *scripted) config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: operatorToken}
}

// dialer opens connections to a proxy.
type dialer func(testing.TB) net.Conn

// dialers returns the two ways to connect to the proxy: plain and TLS.
func dialers(t testing.TB, p *Proxy) map[string]dialer {
	t.Helper()
	address := p.listeners[0].Addr().String()
	config := trusting(t, p).TLSClientConfig.Clone()
	config.ServerName = "127.0.0.1"
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1) // thousands of full handshakes would take long
	dial := func(t testing.TB) net.Conn {
		t.Helper()
		conn := must.Get(net.Dial("tcp", address))(t)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	return map[string]dialer{
		"plain": dial,
		"TLS":   func(t testing.TB) net.Conn { t.Helper(); return tls.Client(dial(t), config) },
	}
}

// forgery is a raw request that the proxy must not serve. TOKEN stands for a valid token, REVOKED for a token of a run that
// has ended.
type forgery struct{ name, request string }

func forged(name, line string, header ...string) forgery {
	const body = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"forged"}}`
	text := line + "\r\n" + strings.Join(header, "\r\n")
	if len(header) > 0 {
		text += "\r\n"
	}
	if strings.HasPrefix(line, "POST") && !strings.Contains(text, "Transfer-Encoding") {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	} else {
		text += "\r\n"
	}
	return forgery{name, text}
}

const (
	getLine  = "GET /api/v1/namespaces/default/secrets/s HTTP/1.1"
	postLine = "POST /api/v1/namespaces/default/configmaps HTTP/1.1"
	home     = "Host: localhost"
	good     = "Authorization: Bearer TOKEN"
)

// forgeries returns forged requests of every kind.
func forgeries(token string) []forgery {
	var all []forgery
	both := func(name string, header ...string) {
		all = append(all, forged(name, getLine, header...), forged(name+", write", postLine, header...))
	}
	encoded := base64.RawURLEncoding.EncodeToString
	std := base64.StdEncoding.EncodeToString
	for name, value := range map[string]string{
		"no value": "", "a scheme alone": "Bearer", "no token": "Bearer ", "garbage": "Bearer garbage", "null": "Bearer \x01",
		"truncated": "Bearer " + token[:len(token)-1], "extended": "Bearer " + token + "A", "without its first": "Bearer " + token[1:],
		"other case": "Bearer " + swapCase(token), "upper case": "Bearer " + strings.ToUpper(token), "quoted": `Bearer "` + token + `"`,
		"padded": "Bearer " + token + "=", "twice": "Bearer " + token + " " + token, "in a list": "Bearer " + token + ", Bearer " + token,
		"revoked": "Bearer REVOKED", "no scheme": token, "scheme Token": "Token " + token, "tab": "Bearer\t" + token,
		"user name": "Basic " + std([]byte(token+":")), "password": "Basic " + std([]byte("admin:"+token)), "digest": "Digest token=" + token,
		"its bytes again encoded": "Bearer " + std([]byte(token)), "long": "Bearer " + strings.Repeat(token, 500),
	} {
		both("Authorization: "+name, home, "Authorization: "+value)
	}
	for _, header := range []string{
		"Cookie: token=TOKEN", "Cookie: Authorization=Bearer TOKEN", "X-Auth-Token: TOKEN", "Proxy-Authorization: Bearer TOKEN",
		"X-Forwarded-Access-Token: TOKEN", "X-Authorization: Bearer TOKEN", "Authorization_: Bearer TOKEN", "Sec-WebSocket-Key: TOKEN",
		"Sec-WebSocket-Protocol: TOKEN", "Sec-WebSocket-Protocol: " + websocketBearer,
		"Sec-WebSocket-Protocol: " + websocketBearer + "TOKEN", "Sec-WebSocket-Protocol: " + websocketBearer + encoded([]byte("garbage")),
		"Sec-WebSocket-Protocol: " + websocketBearer + encoded([]byte(token)) + "=",
		"Sec-WebSocket-Protocol: " + websocketBearer + encoded([]byte(swapCase(token))) + ", v4.channel.k8s.io",
		"Sec-WebSocket-Protocol: Base64url.bearer.authorization.k8s.io." + encoded([]byte(token)),
		"X-Remote-User: admin", "X-Remote-User: admin\r\nX-Remote-Group: system:masters", "X-Remote-Extra-scopes: all",
		"Connection: Authorization", "Connection: close, Authorization", "Authorization : Bearer TOKEN", "Forwarded: for=127.0.0.1;by=TOKEN",
		"X-Forwarded-For: 127.0.0.1", "Client-Cert: :TOKEN:", "X-Forwarded-Client-Cert: TOKEN",
	} {
		both("no token but "+header, home, header)
		both("garbage and "+header, home, "Authorization: Bearer garbage", header)
	}
	both("garbage before the token", home, "Authorization: Bearer garbage", good)
	both("revoked before the token", home, "Authorization: Bearer REVOKED", good)
	both("nothing before the token", home, "Authorization: ", good, "Connection: Authorization")
	for _, host := range []string{
		"evil.example", "evil.example:8888", "127.0.0.1.evil.example", "localhost.evil.example", "localhost@evil.example", "evil.example#localhost",
		"10.0.0.1", "127.0.0.2", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "kubernetes.default.svc", "localhost.", "localhost:1:2",
		"localhost, evil.example", "", " ", "localhos", "ocalhost", "::1:evil", "127.0.0.1%2eevil",
	} {
		both("Host "+host, "Host: "+host, good)
		both("Host "+host+" forwarded for localhost", "Host: "+host, good, "X-Forwarded-Host: localhost", "X-Original-Host: localhost", "Forwarded: host=localhost")
	}
	both("two Hosts", home, "Host: evil.example", good)
	both("no Host", good)
	for _, version := range []string{"1.0", "0.9", "2.0", "3.0"} {
		all = append(all, forged("HTTP/"+version+" without Host", strings.Replace(getLine, "1.1", version, 1), good))
	}
	for _, name := range []string{
		"Impersonate-User", "impersonate-user", "IMPERSONATE-USER", "iMpErSoNaTe-uSeR", "Impersonate-Uid", "Impersonate-UID", "Impersonate-Group",
		"Impersonate-Extra-x", "impersonate-extra-scopes%2fall", "Impersonate-Extra-Acme.com%2Fproject", "Impersonate-", "Impersonate-Anything",
	} {
		both(name, home, good, name+": system:admin")
		both(name+" empty", home, good, name+":")
		both(name+" hop by hop", home, good, "Connection: "+name, name+": system:admin")
	}
	return append(all, forgedLines()...)
}

// forgedLines returns the forgeries that have a wrong request line.
func forgedLines() []forgery {
	var all []forgery
	for _, target := range []string{
		"http://evil.example/api/v1/namespaces/default/secrets/s", "https://evil.example/api/v1/namespaces", "http://localhost@evil.example/api/v1/namespaces",
		"http://127.0.0.1.evil.example/api", "ftp://evil.example/api", "mailto:admin@localhost", "evil.example:443", "*", "api/v1/namespaces", "?a=b",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			all = append(all, forged("target "+method+" "+target, method+" "+target+" HTTP/1.1", home, good))
		}
	}
	for _, target := range []string{"evil.example:443", "localhost:443", "127.0.0.1:6443", "/api", "http://localhost/api"} {
		all = append(all, forged("CONNECT "+target, "CONNECT "+target+" HTTP/1.1", home, good))
	}
	for _, path := range []string{
		"//api/v1/namespaces/default/secrets/s", "///", "/api//v1/namespaces", "/api/v1/namespaces//secrets", "/api/v1//secrets", "/api/v1/namespaces/default/secrets//",
		"/./api/v1/secrets", "/api/./v1/secrets", "/api/v1/secrets/.", "/..", "/../api/v1/secrets", "/api/v1/namespaces/default/configmaps/../secrets/s",
		"/api/v1/namespaces/default/configmaps/..", "/api/v1/namespaces/%2e%2e/secrets", "/api/v1/namespaces/.%2E/secrets", "/%2e/api/v1/secrets",
		"/api/v1/namespaces/default%2fsecrets/s", "/api/v1/namespaces/default%2Fsecrets", "/api%2fv1/secrets", "/%2Fapi/v1/secrets", "/healthz/..%2fapi/v1/secrets",
		"/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets", "/version//", "/logs/../api/v1/secrets", "/%2e%2e/%2e%2e/etc",
		"/api/v1/namespaces/default/services/s/proxy/../../../secrets/s", "/api/v1/namespaces/default/services/s/proxy/%2e%2e/%2e%2e/x", "/api/v1/nodes/n/proxy/..",
		"/api/v1/namespaces/default/pods/p/proxy/./x",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			all = append(all, forged("path "+method+" "+path, method+" "+path+" HTTP/1.1", home, good))
		}
	}
	for _, query := range []string{"token=TOKEN", "access_token=TOKEN", "authorization=Bearer%20TOKEN", "bearer=TOKEN", "as=admin"} {
		all = append(all, forged("query "+query, strings.Replace(getLine, "/s HTTP", "/s?"+query+" HTTP", 1), home))
	}
	inner := forged("", getLine, home, "Authorization: Bearer garbage").request
	return append(all,
		forgery{"userinfo of the target", "GET http://TOKEN@localhost/api/v1/namespaces HTTP/1.1\r\n" + home + "\r\n\r\n"},
		forgery{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		forgery{"no HTTP", "hello\r\n\r\n"},
		forgery{"no target", "GET\r\n\r\n"},
		forgery{"a folded line", strings.Replace(inner, "Bearer garbage", "Bearer\r\n garbage", 1)},
		forgery{"two lengths", postLine + "\r\n" + home + "\r\n" + good + "\r\nContent-Length: 0\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner},
		forgery{"a bad coding", postLine + "\r\n" + home + "\r\n" + good + "\r\nTransfer-Encoding: xchunked\r\n\r\n" + inner},
		forgery{"a request in the body", postLine + "\r\n" + home + "\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner},
		forgery{"a request in a trailer", postLine + "\r\n" + home + "\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n0\r\n" + good + "\r\n\r\n"},
	)
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

// revoked returns the token of a run that has ended.
func revoked(p *Proxy) string {
	a := p.Admit(Grant{RunID: "ended"})
	a.Revoke()
	return a.token
}

func TestIdentity_ForgeriesReachNobody(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, client, token := admit(t, p, Grant{RunID: "run", Inject: true})
	kinds := forgeries(token)
	fill := strings.NewReplacer("TOKEN", token, "REVOKED", revoked(p))

	var sent int
	ways := dialers(t, p)
	for _, kind := range kinds {
		request := fill.Replace(kind.request)
		for way, dial := range ways {
			if code, err := exchangeRaw(t, dial, request); err == nil && code < 400 {
				t.Errorf("%s, %s: answered %d", kind.name, way, code)
			}
			sent++
		}
	}
	if n := api.count(); n != 0 {
		t.Errorf("%d of %d forgeries have reached the API server, such as %+v", n, sent, api.seen()[:min(3, len(api.seen()))])
	}
	t.Logf("%d forgeries of %d kinds", sent, len(kinds))

	// The same proxy serves a valid request.
	resp, err := client.Get(p.URL() + "/api/v1/namespaces/default/configmaps/x")
	must.Do(t, err)
	_ = resp.Body.Close()
	if seen := api.seen(); resp.StatusCode != http.StatusOK || len(seen) != 1 {
		t.Errorf("a good request is answered %d, and %d have arrived", resp.StatusCode, len(seen))
	}
}

// exchangeRaw sends a request on a new connection and returns the status code of the answer. It returns an error if there was
// no answer.
func exchangeRaw(t testing.TB, dial dialer, request string) (int, error) {
	t.Helper()
	conn := dial(t)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, err
	}
	method, _, _ := strings.Cut(request, " ")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func TestIdentity_TheAPIServerServesNoForgery(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	agent := testenv.Random("forger-")
	p := startProxy(t, cfg)
	_, _, token := admit(t, p, Grant{RunID: "run", Inject: true})
	fill := strings.NewReplacer("TOKEN", token, "REVOKED", revoked(p), "/default/", "/"+namespace+"/", "\r\n\r\n", "\r\nUser-Agent: "+agent+"\r\n\r\n")
	for _, kind := range forgeries(token) {
		for way, dial := range dialers(t, p) {
			if code, err := exchangeRaw(t, dial, fill.Replace(kind.request)); err == nil && code < 400 {
				t.Errorf("%s, %s: answered %d", kind.name, way, code)
			}
		}
	}
	if events := testenv.AuditEvents(t, agent, func(e testenv.AuditEvent) bool { return e.UserAgent == agent }); len(events) != 0 {
		t.Errorf("the API server has been asked: %+v", events)
	}
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "forged", metav1.GetOptions{}); err == nil {
		t.Error("a forgery has created something")
	}
}

func TestIdentity_NothingOfTheClientGoesOnButItsQuestion(t *testing.T) {
	for _, prefix := range []string{"", "/", "/k8s/clusters/c-1", "/k8s%2Fx/y/"} {
		api := script(t, nil, plainly)
		cfg := api.config()
		cfg.Host += prefix
		p := startProxy(t, cfg)
		_, _, token := admit(t, p, Grant{RunID: "run"})
		for _, uri := range []string{
			"/api/v1/namespaces/default/configmaps/x", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin", "/api/v1/pods?labelSelector=a%20in%20(b,c)&limit=5&continue=x%2By",
			"/api/v1/namespaces/n/services/https:s:443/proxy/a//b%2Fc%20d/", "/api/v1/configmaps?a=b;c=d&e=%zz", "/version?x", "/api/v1/configmaps?", "/logs/%41%7e%C3%A4", "/api/v1/namespaces/n/configmaps/%2525",
		} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				for _, dial := range dialers(t, p) {
					// Each header that concerns a single hop comes twice: once in a form that is forwarded, once in a form that is
					// not.
					request := method + " " + uri + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\nAuthorization: Bearer second\r\n" +
						"Cookie: a=b\r\nCookie: c=d\r\nX-Remote-User: admin\r\nx-remote-group: system:masters\r\nX-REMOTE-EXTRA-scopes: all\r\nX-Remote-Uid: 0\r\n" +
						"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Client-Cert: c\r\nForwarded: for=1.2.3.4\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n" +
						"Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTe: deflate\r\n" +
						"Sec-WebSocket-Protocol: " + websocketBearer + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io\r\n" +
						"User-Agent: kubectl/v1\r\nAccept: application/json;as=Table;v=v1;g=meta.k8s.io, application/json\r\nX-Other: kept\r\n" +
						"Transfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\r\n0\r\nX-Remote-User: admin\r\nAuthorization: Bearer third\r\n\r\n"
					if code, err := exchangeRaw(t, dial, request); err != nil || code != http.StatusOK {
						t.Fatalf("%s %s: %d, %v", method, uri, code, err)
					}
					seen := api.seen()
					got := seen[len(seen)-1]
					want := arrival{Method: method, URI: strings.TrimSuffix(prefix, "/") + uri, Host: strings.TrimPrefix(api.URL, "http://"), Header: http.Header{
						"Authorization": {"Bearer " + operatorToken}, "User-Agent": {"kubectl/v1"}, "Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io, application/json"},
						"X-Other": {"kept"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
					}}
					got.Header.Del("Content-Length")
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("prefix %q, %s %s (-want +got):\n%s", prefix, method, uri, diff)
					}
				}
			}
		}
	}
}

func TestIdentity_UserAgentOfAClientThatSaysNoneIsNone(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, _, token := admit(t, p, Grant{})
	if code, err := exchangeRaw(t, dialers(t, p)["plain"], "GET /version HTTP/1.1\r\nHost: localhost\r\nAuthorization: bearer "+token+"\r\n\r\n"); err != nil || code != http.StatusOK {
		t.Fatal(code, err)
	}
	if got := api.seen()[0].Header.Values("User-Agent"); got != nil {
		t.Errorf("User-Agent is %q", got)
	}
}

func TestIdentity_ATokenInTheWebSocketProtocolIsAToken(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, _, token := admit(t, p, Grant{})
	protocol := websocketBearer + base64.RawURLEncoding.EncodeToString([]byte(token))
	request := "GET /api/v1/pods HTTP/1.1\r\nHost: [::1]:1\r\nSec-WebSocket-Protocol: " + protocol + "\r\n\r\n"
	if code, err := exchangeRaw(t, dialers(t, p)["TLS"], request); err != nil || code != http.StatusOK {
		t.Fatal(code, err)
	}
	if got := api.seen()[0].Header; strings.Contains(fmt.Sprint(got), websocketBearer) {
		t.Errorf("the token goes on: %v", got)
	}
}

// counted returns the numbers of requests of runs by verb/kind/outcome, and the number of requests without a token.
func counted(t *testing.T, reg prometheus.Gatherer) (requests map[string]int, anonymous int) {
	t.Helper()
	requests = map[string]int{}
	for _, family := range must.Get(reg.Gather())(t) {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "rolewright_proxy_requests_total": // labels are sorted by name
				l := m.GetLabel()
				requests[l[2].GetValue()+"/"+l[0].GetValue()+"/"+l[1].GetValue()] = int(m.GetCounter().GetValue())
			case "rolewright_proxy_anonymous_requests_total":
				anonymous = int(m.GetCounter().GetValue())
			}
		}
	}
	return requests, anonymous
}

// ownerNamed returns the owner in the form in which ansible-operator puts it into the user name.
func ownerNamed(o Owner) []byte {
	tag, err := json.Marshal(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Namespace  string
	}{o.GVK.GroupVersion().String(), o.GVK.Kind, o.Name, string(o.UID), o.Namespace})
	if err != nil {
		panic(err)
	}
	return tag
}

func TestAnonymous_OwnersTagMarksWhatIsCreated(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	direct := must.Get(kubernetes.NewForConfig(cfg))(t)
	configMaps := direct.CoreV1().ConfigMaps(namespace)
	parent := must.Get(configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{}))(t)
	numbers := prometheus.NewRegistry()
	var asked []Owner
	var mu sync.Mutex
	p := startProxy(t, cfg, func(o *Options) {
		o.Metrics = must.Get(metrics.New(numbers))(t)
		o.Anonymous = func(owner Owner) Grant {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, owner)
			return Grant{Inject: true}
		}
	})
	// The two base64 alphabets encode this kind differently. The kind need not exist.
	owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: namespace, Name: "owner", UID: parent.UID}
	odd := owner
	odd.GVK.Kind = "Widget\u00ff?>"
	url, std := base64.URLEncoding.EncodeToString, base64.StdEncoding.EncodeToString
	if url(ownerNamed(odd)) == std(ownerNamed(odd)) {
		t.Fatal("the two alphabets do not differ here")
	}
	_, _, token := admit(t, p, Grant{Inject: true, Owner: odd})
	mark := []string{string(parent.UID)}
	for name, tt := range map[string]struct {
		user, authorization string
		code                int
		owners              []string
	}{
		"url":       {user: url(ownerNamed(owner)), code: http.StatusCreated, owners: mark},
		"std":       {user: std(ownerNamed(owner)), code: http.StatusCreated, owners: mark},
		"odd-url":   {user: url(ownerNamed(odd)), code: http.StatusCreated, owners: mark},
		"odd-std":   {user: std(ownerNamed(odd)), code: http.StatusCreated, owners: mark},
		"untagged":  {code: http.StatusCreated},
		"person":    {user: "admin", code: http.StatusCreated},
		"half":      {user: url([]byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)), code: http.StatusCreated},
		"no-json":   {user: url([]byte(`hello`)), code: http.StatusCreated},
		"token":     {authorization: "Bearer " + token, code: http.StatusCreated, owners: mark},
		"bad-token": {authorization: "Bearer " + token + "x", code: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(p.URL(), "https", "http", 1)+"/api/v1/namespaces/"+namespace+"/configmaps", strings.NewReader(body)))(t)
			req.Header.Set("Content-Type", "application/json")
			switch {
			case tt.authorization != "":
				req.Header.Set("Authorization", tt.authorization)
			case tt.user != "":
				req.SetBasicAuth(tt.user, "unused")
			}
			resp, err := trusting(t, p).RoundTrip(req)
			must.Do(t, err)
			_ = resp.Body.Close()
			if resp.StatusCode != tt.code {
				t.Fatalf("answered %d, want %d", resp.StatusCode, tt.code)
			}
			if tt.code != http.StatusCreated {
				return
			}
			got := must.Get(configMaps.Get(t.Context(), name, metav1.GetOptions{}))(t)
			var owners []string
			for _, ref := range got.OwnerReferences {
				owners = append(owners, string(ref.UID))
			}
			must.Be(t, "owners", tt.owners, owners)
		})
	}
	if _, n := counted(t, numbers); n != 8 {
		t.Errorf("%d anonymous requests are counted, want 8", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 4 || !slices.Contains(asked, owner) || !slices.Contains(asked, odd) {
		t.Errorf("owners asked about: %+v", asked)
	}
}

// A client library that runs in a Pod sends the token of the service account, wherever it is pointed at.
func TestAnonymous_ATokenOfAServiceAccountCountsAsNone(t *testing.T) {
	api := script(t, nil, plainly)
	cfg := api.config()
	cfg.BearerToken = "operator"
	p := startProxy(t, cfg, func(o *Options) { o.Anonymous = func(Owner) Grant { return Grant{} } })
	for token, want := range map[string]int{"a.b.c": http.StatusOK, "garbage": http.StatusUnauthorized, revoked(p): http.StatusUnauthorized} {
		for way, dial := range dialers(t, p) {
			code, err := exchangeRaw(t, dial, "GET /api/v1/namespaces/n/configmaps/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n")
			if err != nil || code != want {
				t.Errorf("%s, %s: answered %d (%v), want %d", token, way, code, err, want)
			}
		}
	}
	for _, a := range api.seen() {
		must.Be(t, "the authorization that arrives", "Bearer operator", a.Header.Get("Authorization"))
	}
	must.Be(t, "arrivals", 2, len(api.seen()))
}

func TestAnonymous_OffMeansRefused(t *testing.T) {
	api := script(t, nil, plainly)
	numbers := prometheus.NewRegistry()
	p := startProxy(t, api.config(), func(o *Options) { o.Metrics = must.Get(metrics.New(numbers))(t) })
	owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "n", Name: "o", UID: "u"}
	for _, user := range []string{"", base64.URLEncoding.EncodeToString(ownerNamed(owner))} {
		header := ""
		if user != "" {
			header = "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":unused")) + "\r\n"
		}
		code, err := exchangeRaw(t, dialers(t, p)["plain"], "GET /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")
		if err != nil || code != http.StatusUnauthorized {
			t.Errorf("user %q is answered %d (%v), want 401", user, code, err)
		}
	}
	if n := api.count(); n != 0 {
		t.Errorf("%d requests have arrived", n)
	}
	requests, anonymous := counted(t, numbers)
	if diff := cmp.Diff(map[string]int{"//refused": 2}, requests); diff != "" || anonymous != 0 {
		t.Errorf("%d anonymous, requests (-want +got):\n%s", anonymous, diff)
	}
}

func TestAnonymous_ForeignHostsAndImpersonationStayRefused(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config(), func(o *Options) { o.Anonymous = func(Owner) Grant { return Grant{} } })
	for _, header := range []string{"Host: evil.example", "Host: localhost\r\nImpersonate-User: x", "Host: localhost\r\nAuthorization: Bearer garbage"} {
		for way, dial := range dialers(t, p) {
			if code, err := exchangeRaw(t, dial, "GET /api/v1/namespaces HTTP/1.1\r\n"+header+"\r\n\r\n"); err == nil && code < 400 {
				t.Errorf("%s, %s: answered %d", header, way, code)
			}
		}
	}
	if n := api.count(); n != 0 {
		t.Errorf("%d requests have arrived", n)
	}
}

func TestOwnerTag_WhatIsNoOwnerIsNone(t *testing.T) {
	for _, text := range []string{
		``, `{}`, `[]`, `null`, `{"apiVersion":"v1","kind":"A","name":"n"}`, `{"apiVersion":"a/b/c","kind":"A","name":"n","uid":"u"}`,
		`{"kind":"A","name":"n","uid":"u"}`, `{"apiVersion":"v1","kind":1,"name":"n","uid":"u"}`,
	} {
		if o, ok := ownerTag(base64.URLEncoding.EncodeToString([]byte(text))); ok {
			t.Errorf("%s is read as %+v", text, o)
		}
	}
}

// errGone means that a request was cut off.
var errGone = errors.New("cut off")

// get sends a GET and returns the status code and the body.
func get(ctx context.Context, client *http.Client, url string) (int, string, error) {
	return send(ctx, client, http.MethodGet, url, "")
}

func send(ctx context.Context, client *http.Client, method, url, body string) (int, string, error) {
	return sendAs(ctx, client, method, url, asJSON, body)
}

func sendAs(ctx context.Context, client *http.Client, method, url, contentType, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(data), fmt.Errorf("%w: %w", errGone, err)
	}
	return resp.StatusCode, string(data), nil
}
