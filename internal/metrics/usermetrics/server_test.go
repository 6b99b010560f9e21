package usermetrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pipes is a listener with connections in memory, so that the time of a synctest bubble also applies to them.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	select {
	case p.conns <- server:
	case <-p.closed:
		t.Fatal("the listener is closed")
	}
	return client
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	must.Get(io.WriteString(c, text))(t)
}

func serve(ctx context.Context, h *Handler, l net.Listener) <-chan error {
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, l) }()
	return served
}

func TestServe_AnswersOnItsPathOnlyAndEndsWithItsContext(t *testing.T) {
	h, reg := newHandler(t)
	l := must.Get(net.Listen("tcp", "localhost:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := serve(ctx, h, l)
	client := http.Client{}
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/metrics/x": http.StatusNotFound} {
		resp, err := client.Post("http://"+l.Addr().String()+path, "application/json", strings.NewReader(`{"name":"m","counter":{"increment":true}}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the listener is open after Serve")
	}
	wantValues(t, reg, map[string]float64{"m": 1})
}

func TestServe_WaitsForTheRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, reg := newHandler(t)
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		served := serve(ctx, h, l)
		conn := l.dial(t)
		write(t, conn, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 41\r\n\r\n"+`{"name":"m",`)
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-l.closed:
		default:
			t.Error("the listener is open although the context is done")
		}
		if len(served) > 0 {
			t.Error("Serve returned before the request was answered")
		}
		write(t, conn, `"counter":{"increment":true}}`)
		answer := make([]byte, 15)
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 200 OK" {
			t.Errorf("answer %q, %v", answer, err)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		_ = conn.Close()
		wantValues(t, reg, map[string]float64{"m": 1})
	})
}

func TestServe_LetsGoOfClientsThatStop(t *testing.T) {
	for name, sent := range map[string]string{
		"before the first byte": "",
		"in the header":         "POST /metrics HTTP/1.1\r\nHost: localhost\r\n",
		"in the body":           "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, reg := newHandler(t)
				l := newPipes()
				ctx, cancel := context.WithCancel(t.Context())
				served := serve(ctx, h, l)
				conn := l.dial(t)
				write(t, conn, sent)
				cancel()
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				select { // the bubble's clock, so this measures nothing
				case err := <-served:
					if err != nil {
						t.Errorf("Serve: %v", err)
					}
				case <-time.After(readTimeout + writeTimeout):
					t.Error("one client holds Serve up")
				}
				_ = conn.Close()
				wantValues(t, reg, map[string]float64{})
			})
		})
	}
}

func TestServe_FailsIfItsListenerDoes(t *testing.T) {
	h, _ := newHandler(t)
	l := newPipes()
	_ = l.Close()
	if err := h.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "serve user metrics: ") {
		t.Errorf("Serve: %v", err)
	}
}
