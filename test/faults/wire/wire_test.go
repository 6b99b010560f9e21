package wire_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/test/faults/plan"
	"github.com/rolewright/rolewright/test/faults/wire"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	collection = "/apis/cache.example.com/v1alpha1/namespaces/default/memcacheds"
	object     = collection + "/one"
)

// upstream is an API server that counts requests, and answers with the count as the resource version.
type upstream struct {
	*httptest.Server
	count  atomic.Int64
	events chan string // for the watches
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{events: make(chan string, 10)}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := u.count.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "true" {
			fmt.Fprintf(w, `{"kind":"Memcached","metadata":{"name":"one","uid":"u","generation":2,"resourceVersion":"%d"}}`, n)
			return
		}
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e, open := <-u.events:
				if !open {
					return
				}
				fmt.Fprintln(w, e)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(u.Server.Close)
	return u
}

// recorder collects what several goroutines report.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, ", ")
}

func frame(kind, name string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"namespace":"default","uid":"u-%s","resourceVersion":"%d"}}}`, kind, name, name, version)
}

// proxied starts a proxy with these rules. It also returns the configuration by which replica a reaches the proxy.
func proxied(t *testing.T, upstream *rest.Config, o wire.Options) (*wire.Proxy, *rest.Config) {
	t.Helper()
	o.Upstream = upstream
	for _, r := range o.Rules {
		must.Do(t, (plan.Plan{Name: "x", Workload: "x", Rules: []plan.Rule{r}}).Validate())
	}
	p := must.Get(wire.New(o))(t)
	t.Cleanup(p.Close)
	return p, config(t, p, "a")
}

func config(t *testing.T, p *wire.Proxy, replica string) *rest.Config {
	t.Helper()
	data := must.Get(p.Kubeconfig(replica))(t)
	cfg := must.Get(clientcmd.RESTConfigFromKubeConfig(data))(t)
	return cfg
}

func rule(m plan.Match, a plan.Action) plan.Rule { return plan.Rule{Match: m, Action: a} }

func lasting(do plan.Do, d time.Duration) plan.Action {
	return plan.Action{Do: do, For: metav1.Duration{Duration: d}}
}

type reply struct {
	code       int
	retryAfter string
	body       string
}

// ask sends one request on a new connection, because Go never sends such a request twice.
func ask(t *testing.T, method, url string) (reply, error) {
	t.Helper()
	body := io.Reader(nil)
	if method != http.MethodGet {
		body = strings.NewReader(`{"metadata":{"name":"one"}}`)
	}
	req := must.Get(http.NewRequestWithContext(t.Context(), method, url, body))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header.Get("Retry-After"), string(data)}, err
}

// Each action is applied to one request. The test checks what the client sees, and whether the API server has received the
// request.
func TestProxy_ActsOnOneRequestAndLeavesTheNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action    plan.Action
		method    string
		code      int // 0 if the connection is reset
		reason    metav1.StatusReason
		forwarded int64
		signals   string
	}{
		{action: plan.Action{Do: plan.Conflict}, method: "PATCH", code: 409, reason: metav1.StatusReasonConflict},
		{action: plan.Action{Do: plan.Throttle}, method: "PATCH", code: 429, reason: metav1.StatusReasonTooManyRequests},
		{action: plan.Action{Do: plan.Error}, method: "GET", code: 500, reason: metav1.StatusReasonInternalError},
		{action: plan.Action{Do: plan.Unavailable}, method: "GET", code: 503, reason: metav1.StatusReasonServiceUnavailable},
		{action: plan.Action{Do: plan.Forbid}, method: "PUT", code: 403, reason: metav1.StatusReasonForbidden},
		{action: plan.Action{Do: plan.Invalid}, method: "PUT", code: 422, reason: metav1.StatusReasonInvalid},
		{action: plan.Action{Do: plan.TimeoutAfterCommit}, method: "PATCH", code: 504, reason: metav1.StatusReasonTimeout, forwarded: 1},
		{action: plan.Action{Do: plan.ResetBefore}, method: "PATCH"},
		{action: plan.Action{Do: plan.ResetAfter}, method: "PATCH", forwarded: 1},
		{action: lasting(plan.Block, 50*time.Millisecond), method: "PATCH"},
		{action: plan.Action{Do: plan.CrashBefore}, method: "PATCH", signals: "a KILL 0"},
		{action: plan.Action{Do: plan.CrashAfter}, method: "PATCH", forwarded: 1, signals: "a KILL 1"},
		{action: plan.Action{Do: plan.CrashBefore, Signal: "TERM"}, method: "PATCH", code: 200, forwarded: 1, signals: "a TERM 0"},
		{action: plan.Action{Do: plan.CrashAfter, Signal: "TERM"}, method: "PATCH", code: 200, forwarded: 1, signals: "a TERM 1"},
		{action: plan.Action{Do: plan.CrashBefore, Signal: "STOP", For: metav1.Duration{Duration: time.Millisecond}}, method: "PATCH", code: 200, forwarded: 1, signals: "a STOP 0, a CONT 0"},
		{action: lasting(plan.Slow, 50*time.Millisecond), method: "GET", code: 200, forwarded: 1},
	} {
		t.Run(strings.ToLower(string(c.action.Do)+c.action.Signal), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			var signals recorder
			verb := map[string]string{"GET": "get", "PATCH": "patch", "PUT": "update"}[c.method]
			p, cfg := proxied(t, &rest.Config{Host: u.URL}, wire.Options{
				Rules: []plan.Rule{rule(plan.Match{Verb: verb, Resource: "memcacheds", Name: "one", Replica: "a", Occurrence: 2}, c.action)},
				Crash: func(_ context.Context, replica, signal string) {
					signals.add(fmt.Sprint(replica, " ", signal, " ", u.count.Load()-1))
				},
			})
			if resp, err := ask(t, c.method, cfg.Host+object); err != nil || resp.code != 200 {
				t.Fatalf("the first request: %v, %v", resp, err)
			}
			if got := p.Unreached(); len(got) != 1 {
				t.Errorf("unreached before the second request: %v, want the rule", got)
			}
			resp, err := ask(t, c.method, cfg.Host+object)
			checkAnswer(t, resp, err, c.code, c.reason)
			if got := u.count.Load() - 1; got != c.forwarded {
				t.Errorf("the API server saw it %d times, want %d", got, c.forwarded)
			}
			if got := signals.all(); got != c.signals {
				t.Errorf("signals %q, want %q", got, c.signals)
			}
			if fired := p.Fired(); len(fired) != 1 || fired[0].Do != c.action.Do || fired[0].Request.Occurrence != 0 && fired[0].Request.Verb != verb {
				t.Errorf("fired %+v, want one %s", fired, c.action.Do)
			}
			if c.action.Lasts() {
				return
			}
			if resp, err := ask(t, c.method, cfg.Host+object); err != nil || resp.code != 200 {
				t.Errorf("the third request: %v, %v", resp, err)
			}
			trace := p.Trace()
			if len(trace) != 3 || trace[1].Fault != c.action.Do || trace[2].Occurrence != 3 || trace[2].UID != "u" || trace[2].Generation != 2 || trace[2].Code != 200 {
				t.Errorf("trace %+v", trace)
			}
		})
	}
}

func checkAnswer(t *testing.T, resp reply, err error, code int, reason metav1.StatusReason) {
	t.Helper()
	if code == 0 {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("answer %v, error %v, want a reset", resp, err)
		}
		return
	}
	if err != nil || resp.code != code {
		t.Fatalf("answer %v, error %v, want code %d", resp, err, code)
	}
	var status metav1.Status
	if err := json.Unmarshal([]byte(resp.body), &status); err != nil || status.Reason != reason || reason != "" && int(status.Code) != code {
		t.Errorf("answer %s (%v), want reason %q", resp.body, err, reason)
	}
	if after := resp.retryAfter; (code == 429) != (after == "1") {
		t.Errorf("Retry-After is %q", after)
	}
}

// A stale answer is the latest answer that differed. The rule waits until there is one.
func TestProxy_AnswersWithSomethingEarlier(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p, cfg := proxied(t, &rest.Config{Host: u.URL}, wire.Options{Rules: []plan.Rule{
		rule(plan.Match{Verb: "get", Resource: "memcacheds"}, plan.Action{Do: plan.Stale}),
	}})
	for i, want := range []string{`"resourceVersion":"1"`, `"resourceVersion":"1"`, `"resourceVersion":"3"`} {
		resp, err := ask(t, "GET", cfg.Host+object)
		if err != nil || !strings.Contains(resp.body, want) {
			t.Errorf("answer %d: %s (%v), want %s", i, resp.body, err, want)
		}
	}
	if fired := p.Fired(); len(fired) != 1 {
		t.Errorf("fired %+v, want once", fired)
	}
}

// watch reads a stream line by line.
type watch struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func startWatch(t *testing.T, cfg *rest.Config, query string) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+collection+"?watch=true"+query, nil))(t)
	resp, err := http.DefaultClient.Do(req)
	must.Do(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &watch{lines: bufio.NewScanner(resp.Body), cancel: cancel}
}

// next returns type, name and resource version of the next event, or "end" or "cut".
func (w *watch) next() string {
	if !w.lines.Scan() {
		if w.lines.Err() != nil {
			return "cut"
		}
		return "end"
	}
	var e struct {
		Type   string
		Object struct {
			Code     int
			Metadata metav1.ObjectMeta
		}
	}
	if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
		return err.Error()
	}
	if e.Type == "ERROR" {
		return fmt.Sprint("ERROR ", e.Object.Code)
	}
	return fmt.Sprint(e.Type, " ", e.Object.Metadata.Name, " ", e.Object.Metadata.ResourceVersion)
}

// Each action is applied to the second event of an object.
func TestProxy_ActsOnOneEvent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action plan.Action
		want   string
		signal string
	}{
		{action: plan.Action{Do: plan.DuplicateEvent}, want: "ADDED one 1, ADDED two 2, MODIFIED one 3, MODIFIED one 3, MODIFIED two 4, DELETED one 5, end"},
		{action: lasting(plan.DropEvent, time.Hour), want: "ADDED one 1, ADDED two 2, MODIFIED two 4, ERROR 410, end"},
		{action: lasting(plan.HoldWatch, 50*time.Millisecond), want: "ADDED one 1, ADDED two 2, MODIFIED one 3, MODIFIED two 4, DELETED one 5, end"},
		{action: plan.Action{Do: plan.CutWatch}, want: "ADDED one 1, ADDED two 2, cut"},
		{action: plan.Action{Do: plan.Gone}, want: "ADDED one 1, ADDED two 2, ERROR 410, end"},
		{action: plan.Action{Do: plan.CrashBefore}, want: "ADDED one 1, ADDED two 2, cut", signal: "KILL"},
		{action: plan.Action{Do: plan.CrashAfter, Signal: "TERM"}, want: "ADDED one 1, ADDED two 2, MODIFIED one 3, MODIFIED two 4, DELETED one 5, end", signal: "TERM"},
	} {
		t.Run(string(c.action.Do), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			var signals recorder
			p, cfg := proxied(t, &rest.Config{Host: u.URL}, wire.Options{
				Rules: []plan.Rule{rule(plan.Match{Verb: "watch", Resource: "memcacheds", Event: "*", Name: "one", Occurrence: 2}, c.action)},
				Crash: func(_ context.Context, _, signal string) { signals.add(signal) },
			})
			for _, e := range []string{frame("ADDED", "one", 1), frame("ADDED", "two", 2), frame("MODIFIED", "one", 3), frame("MODIFIED", "two", 4), frame("DELETED", "one", 5)} {
				u.events <- e
			}
			close(u.events)
			w := startWatch(t, cfg, "")
			var got []string
			for {
				got = append(got, w.next())
				if last := got[len(got)-1]; last == "end" || last == "cut" {
					break
				}
			}
			if is := strings.Join(got, ", "); is != c.want {
				t.Errorf("the client sees\n%s, want\n%s", is, c.want)
			}
			if fired := p.Fired(); len(fired) != 1 || fired[0].Request.Name != "one" || signals.all() != c.signal {
				t.Errorf("fired %+v, signals %q", fired, signals.all())
			}
		})
	}
}
