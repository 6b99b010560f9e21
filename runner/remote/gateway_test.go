package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
)

// refusing is an address at which nothing listens.
const refusing = "127.0.0.1:1"

// A Service also leads to replicas on standby, which do not listen.
func TestDial_PassesOverOperatorsThatStandBy(t *testing.T) {
	t.Parallel()
	var d tls.Dialer
	if _, err := d.DialContext(t.Context(), "tcp", refusing); !another(err) {
		t.Errorf("the next one is not tried at once: %v", err)
	}
}

// All Pods lose their operator at the same moment, but do not connect to the next one at the same moment.
func TestPause_IsNotThatOfAllOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, waited := time.Now(), make(chan time.Duration)
		const pods = 100
		for range pods {
			go func() {
				d := lastPause
				pause(t.Context(), &d)
				waited <- time.Since(began)
			}()
		}
		moments := map[time.Duration]bool{}
		for range pods {
			w := <-waited
			if moments[w] = true; w < lastPause/2 || w > lastPause {
				t.Errorf("a pause of %s, want %s to %s", w, lastPause/2, lastPause)
			}
		}
		if len(moments) < pods/2 {
			t.Errorf("%d Pods come at %d moments", pods, len(moments))
		}
	})
}

// The log of a Pod that waits for its operator says why, but not with each attempt.
func TestDial_SaysWhyTheOperatorIsNotReached(t *testing.T) {
	t.Parallel()
	certificate, _, err := selfsigned.New(ServerName)
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		var said []string
		dial := must.Get(dialOperator(Input{URL: "https://operator:8444", CA: certificate}, func(text string) { said = append(said, text) }))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		if _, err := dial(ctx, "tcp", refusing); err == nil {
			t.Error("no error")
		}
		if len(said) != 2 || !strings.Contains(said[0], "https://operator:8444") || !strings.Contains(said[0], "refused") {
			t.Errorf("said %q", said)
		}
	})
}

// A module gives up after a minute. If there is no operator, its role is not to blame, and the request is not sent later.
func TestGateway_CountsWhatIsGivenUpWithoutAnOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.start()
	var served atomic.Int32
	hangs := make(chan struct{})
	o.api = func(_ http.ResponseWriter, r *http.Request) {
		if served.Add(1) == 2 {
			close(hangs)
			<-r.Context().Done()
		}
	}
	running, stopped := context.WithCancel(t.Context())
	g := must.Get(newGateway(running, Input{URL: o.url, CA: o.certificate}))(t)
	stopped() // a run that is stopped goes on for a while
	t.Cleanup(g.close)
	config := must.Get(clientConfig(g.ca))(t)
	config.ServerName = "localhost"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	var asked sync.WaitGroup
	ask := func(method string, body io.Reader) (answered bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*tellAfter)
		defer cancel()
		req := must.Get(http.NewRequestWithContext(ctx, method, "https://"+g.listener.Addr().String()+"/api", body))(t)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	must.Be(t, "answered", true, ask(http.MethodGet, nil)) // makes a connection, which another request reuses
	ended := make(chan struct{})
	asked.Go(func() {
		ask(http.MethodGet, nil) // when the operator has ended, this is sent again, or answered if its connection was new
		close(ended)
	})
	select {
	case <-hangs:
	case <-ended:
		t.Fatal("the operator has not got it")
	}
	o.stop()
	for method, body := range map[string]io.Reader{http.MethodGet: nil, http.MethodPatch: strings.NewReader("{}"), http.MethodPost: io.MultiReader(strings.NewReader("{}"))} {
		asked.Go(func() {
			if ask(method, body) {
				t.Errorf("a %s is answered", method)
			}
		})
	}
	asked.Wait()
	for deadline := time.Now().Add(time.Minute); g.cut.Load() < 4 && time.Now().Before(deadline); { // the gateway notices it a little later
		time.Sleep(10 * time.Millisecond)
	}
	must.Be(t, "requests that are counted", int64(4), g.cut.Load())
	o.start()
	time.Sleep(lastPause + time.Second) // if a connection were still being tried, it would be there by then
	if n := served.Load(); n != 2 {
		t.Errorf("%d requests are served", n)
	}
}

// A connection may lead to an operator that does not have the run any more. What that operator has not passed on is sent
// again, to the operator that has the run now, and does not count as a request without an answer.
func TestGateway_FollowsTheRunToAnotherOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.start()
	req := newRequest(t, "")
	o.admit(t, req, "this")
	var moved atomic.Bool
	var served []string
	o.api = func(w http.ResponseWriter, r *http.Request) {
		if moved.CompareAndSwap(true, false) {
			NewHub(func([sha256.Size]byte) Place { return Elsewhere }).ServeHTTP(w, r)
			return
		}
		body := must.Get(io.ReadAll(r.Body))(t)
		served = append(served, r.Method+" "+string(body))
	}
	g := must.Get(newGateway(t.Context(), Input{URL: o.url, CA: o.certificate, Token: req.JobRun.Token}))(t)
	t.Cleanup(g.close)
	config := must.Get(clientConfig(g.ca))(t)
	config.ServerName = "localhost"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(method, body string) {
		req := must.Get(http.NewRequestWithContext(t.Context(), method, "https://"+g.listener.Addr().String()+"/api", strings.NewReader(body)))(t)
		resp, err := client.Do(req)
		must.Do(t, err)
		must.Do(t, resp.Body.Close())
		must.Be(t, method, http.StatusOK, resp.StatusCode)
	}
	ask(http.MethodGet, "")
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: "{}"} {
		moved.Store(true)
		served = nil
		ask(method, body)
		must.Be(t, "what is served", method+" "+body, strings.Join(served, ","))
	}
	must.Be(t, "requests without an answer", int64(0), g.cut.Load())
}

// An exec that an operator cuts is counted, because its role is not to blame. One that ends by itself, or that the run ends,
// is not.
func TestGateway_CountsAnExecThatIsCut(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.start()
	req := newRequest(t, "")
	o.admit(t, req, "this")
	o.api = func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		switch r.URL.Path {
		case "/cut":
			_ = conn.(*tls.Conn).NetConn().Close()
		case "/closed":
			_, _ = io.Copy(io.Discard, rw)
		}
	}
	g := must.Get(newGateway(t.Context(), Input{URL: o.url, CA: o.certificate, Token: req.JobRun.Token}))(t)
	t.Cleanup(g.close)
	config := must.Get(clientConfig(g.ca))(t)
	config.ServerName = "localhost"
	for _, tt := range []struct {
		path string
		cut  int64
	}{{"/ended", 0}, {"/closed", 0}, {"/cut", 1}} {
		conn := must.Get((&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", g.listener.Addr().String()))(t)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", tt.path)
		r := bufio.NewReader(conn)
		resp := must.Get(http.ReadResponse(r, nil))(t) //nolint:bodyclose // the connection is
		must.Be(t, "answer", http.StatusSwitchingProtocols, resp.StatusCode)
		if tt.path != "/closed" {
			_, _ = io.Copy(io.Discard, r)
		}
		must.Do(t, conn.Close())
		must.Be(t, "counted after "+tt.path, tt.cut, g.cut.Load())
	}
}

// The attempt to connect ends when its request is given up, or when the gateway is closed.
func TestUntil(t *testing.T) {
	t.Parallel()
	serving, closed := context.WithCancel(t.Context())
	request, givenUp := context.WithCancel(t.Context())
	dial := until(serving, func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	waits := &waiting{givenUp: func(do func()) func() bool { return context.AfterFunc(request, do) }}
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, tt := range []struct {
		ctx context.Context
		end func()
	}{{context.WithValue(long, waitingKey{}, waits), givenUp}, {long, closed}} {
		ended := make(chan error, 1)
		go func() {
			_, err := dial(tt.ctx, "", "")
			ended <- err
		}()
		tt.end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}
}
