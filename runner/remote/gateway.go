package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	stdlog "log" //nolint:depguard // net/http wants one; it prints nothing
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/selfsigned"
)

// gateway is the run's API server on the loopback address of its container. It passes requests
// on to the operator's API proxy, and lets them wait while there is no operator.
type gateway struct {
	server   *http.Server
	listener net.Listener
	ca       []byte
	cut      atomic.Int64       // the requests without a complete answer: see [runner.Outcome].Cut
	away     atomic.Int64       // since when requests wait for an operator, in Unix milliseconds; 0 if none waits
	stop     context.CancelFunc // ends attempts to connect
	wg       sync.WaitGroup
}

// clientConfig returns a TLS configuration that trusts only the operator.
func clientConfig(ca []byte) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the certificate of the operator cannot be read")
	}
	return &tls.Config{RootCAs: pool, ServerName: ServerName, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// The shortest and the longest pause between two attempts to reach the operator.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 3 * time.Second
)

// pause waits, longer each time, and for a random part of the time: other Pods have lost their operator at the same
// moment. It returns false if ctx has ended.
func pause(ctx context.Context, d *time.Duration) bool {
	*d = min(max(2**d, firstPause), lastPause)
	t := time.NewTimer(*d/2 + rand.N(*d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialOperator returns a function that connects to an operator, once one has the run or refuses it. There may be several
// operators behind one address, each with runs of its own. If that takes long, say is called with the reason.
func dialOperator(in Input, say func(text string)) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	config, err := clientConfig(in.CA)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAlive: 15 * time.Second, Control: endUnanswered}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var d time.Duration
		tell := time.Now().Add(tellAfter)
		for hops := 0; ; hops++ {
			conn, err := connect(ctx, dialer, config, network, address)
			if err == nil {
				if err = hasRun(ctx, conn, in); err == nil {
					return conn, nil
				}
				_ = conn.Close()
			}
			if another(err) && hops < maxHops {
				d = 0
			}
			if now := time.Now(); now.After(tell) {
				say("cannot reach the operator at " + in.URL + "; trying again: " + err.Error())
				tell = now.Add(tellEvery)
			}
			if !pause(ctx, &d) {
				return nil, err
			}
		}
	}, nil
}

// The reason why the operator is not reached is reported after tellAfter, which is longer than a change of operator
// takes, and then every tellEvery.
const (
	tellAfter = 5 * time.Second
	tellEvery = time.Minute
)

// unanswered is how long sent data may stay unacknowledged before the other machine is considered gone.
const unanswered = 20 * time.Second

// endUnanswered makes a connection end when the other machine is gone. By default the kernel would try for a quarter of
// an hour.
func endUnanswered(_, _ string, c syscall.RawConn) error {
	var err error
	if controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unanswered/time.Millisecond))
	}); controlErr != nil {
		return controlErr
	}
	return err
}

// maxHops is how often the next operator is tried without a longer pause. There are fewer operators: after that, probably
// none has the run for a while.
const maxHops = 64

var errElsewhere = errors.New("another operator has the run")

// another reports whether the next attempt may reach another operator, which has the run. An operator on standby does not
// listen.
func another(err error) bool {
	return errors.Is(err, errElsewhere) || errors.Is(err, syscall.ECONNREFUSED)
}

// dialTimeout limits the time to connect, and the time for the answer whether the operator has the run.
const dialTimeout = 5 * time.Second

// hasRun returns an error if the operator at the other end does not have the run, but another one may, or this one later.
func hasRun(ctx context.Context, conn net.Conn, in Input) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, in.URL+herePath, nil)
	if err != nil {
		return err
	}
	ask.Header.Set("Authorization", "Bearer "+in.Token)
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if err := ask.Write(conn); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 4096)); err != nil {
		return err
	}
	switch {
	case answer.Header.Get(elsewhereHeader) != "":
		return errElsewhere
	case answer.StatusCode == http.StatusServiceUnavailable:
		return errors.New("the operator does not have the run yet")
	}
	return conn.SetDeadline(time.Time{})
}

func newGateway(ctx context.Context, in Input) (*gateway, error) {
	target, err := url.Parse(in.URL)
	if err != nil {
		return nil, fmt.Errorf("the operator's URL: %w", err)
	}
	dial, err := dialOperator(in, func(string) {}) // the link dials as often, and reports it
	if err != nil {
		return nil, err
	}
	certificate, key, err := selfsigned.New("localhost")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of the gateway: %w", err)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the run: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // a run that is being stopped may still send requests, until close
	g := &gateway{stop: stop, ca: certificate, listener: tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})}
	passes := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, "127.0.0.1"
		},
		// A connection is made when there is an operator. net/http repeats requests without a body whose old connection
		// was cut.
		Transport:      again{&http.Transport{DialTLSContext: until(serving, dial), MaxIdleConnsPerHost: 2, IdleConnTimeout: 15 * time.Second, DisableCompression: true}},
		FlushInterval:  -1,
		ModifyResponse: g.counted,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else the run has given the request up: see reaching
				g.cut.Add(1)
			}
			http.Error(w, "the operator cannot be reached: "+err.Error(), http.StatusBadGateway)
		},
		ErrorLog: silent(),
	}
	g.server = &http.Server{Handler: g.reaching(passes), ReadHeaderTimeout: 30 * time.Second, ErrorLog: silent()}
	g.wg.Go(func() { _ = g.server.Serve(g.listener) }) // until close
	return g, nil
}

// again repeats a request that an operator has not passed on because another one now has the run: the connection may be
// older.
type again struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	for d := time.Duration(0); ; {
		resp, err := a.RoundTripper.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(notHereHeader) == "" {
			return resp, err
		}
		_ = resp.Body.Close()
		if r.Body != nil && r.Body != http.NoBody {
			if r.GetBody == nil {
				return nil, errElsewhere
			}
			r = r.Clone(r.Context())
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		if !pause(r.Context(), &d) {
			return nil, context.Cause(r.Context())
		}
	}
}

// waiting is a request of the run that may wait for a connection to an operator.
type waiting struct {
	// givenUp calls a function when the run gives the request up, like [context.AfterFunc].
	givenUp func(func()) (stop func() bool)
	reached atomic.Bool // there is a connection for the request
	line    *line       // that connection
}

// waitingKey is the key of a *waiting in the context for making a connection.
type waitingKey struct{}

// bodyInMemory is more bytes than the API server accepts in a request.
const bodyInMemory = 4 << 20

// reaching counts requests that the run gives up while there is no operator to send them to. A healthy operator is
// reached within tellAfter. Only after the body of a request is read, net/http notices that the request was given up, and
// does not send it later.
func (g *gateway) reaching(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody && r.Header.Get("Upgrade") == "" {
			body, err := io.ReadAll(io.LimitReader(r.Body, bodyInMemory+1))
			if err != nil {
				panic(http.ErrAbortHandler) // no answer: the request was not sent
			}
			if len(body) <= bodyInMemory {
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
				r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
			} else {
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
			}
		}
		waits := &waiting{givenUp: func(do func()) func() bool { //nolint:contextcheck // it is about the request, from where a connection is made
			return context.AfterFunc(r.Context(), do)
		}}
		ctx := context.WithValue(r.Context(), waitingKey{}, waits)
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GetConn: func(string) { // called again if the operator ends before it answers
				waits.reached.Store(false)
				g.away.CompareAndSwap(0, time.Now().UnixMilli())
			},
			GotConn: func(got httptrace.GotConnInfo) {
				if over, ok := got.Conn.(*tls.Conn); ok {
					waits.line, _ = over.NetConn().(*line)
				}
				waits.reached.Store(true)
				g.away.Store(0)
			},
		})
		next.ServeHTTP(w, r.WithContext(ctx))
		away := g.away.Load()
		if r.Context().Err() != nil && !waits.reached.Load() && away > 0 && time.Since(time.UnixMilli(away)) >= tellAfter {
			g.cut.Add(1)
		}
	})
}

type dialing func(ctx context.Context, network, address string) (net.Conn, error)

// until makes dial end with serving, or with the request that it was begun for; net/http would go on dialling.
func until(serving context.Context, dial dialing) dialing {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(serving, stop)()
		if waits, ok := ctx.Value(waitingKey{}).(*waiting); ok {
			defer waits.givenUp(stop)()
		}
		return dial(ctx, network, address)
	}
}

// counted makes g count answers that are cut before their end, except for watches, which may end at any time.
func (g *gateway) counted(r *http.Response) error {
	switch {
	case r.StatusCode == http.StatusSwitchingProtocols:
		g.countTunnel(r)
	case !r.Request.URL.Query().Has("watch"):
		r.Body = &countedBody{r.Body, g, r.Request}
	}
	return nil
}

type countedBody struct {
	io.ReadCloser
	g *gateway
	r *http.Request
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && b.r.Context().Err() == nil {
		b.g.cut.Add(1)
	}
	return n, err
}

// kubeconfig returns the run's kubeconfig with the gateway in place of the operator's proxy.
func (g *gateway) kubeconfig(of []byte, in Input) []byte {
	of = bytes.ReplaceAll(of, []byte("server: "+in.Server), []byte("server: https://"+g.listener.Addr().String()))
	return bytes.ReplaceAll(of, []byte(base64.StdEncoding.EncodeToString(in.ServerCA)), []byte(base64.StdEncoding.EncodeToString(g.ca)))
}

func (g *gateway) close() {
	g.stop()
	_ = g.server.Close()
	g.wg.Wait()
}

// silent discards what net/http logs about broken connections.
func silent() *stdlog.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }
