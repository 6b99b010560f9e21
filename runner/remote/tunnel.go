package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// line is a connection to the operator, below TLS. It notes whether it was cut: if TLS was closed properly, the line is
// not read to its end. net/http does not distinguish the two.
type line struct {
	net.Conn

	cut atomic.Bool
}

// Read implements [io.Reader].
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) { // else this side has closed it
		l.cut.Store(true)
	}
	return n, err
}

// connect makes a connection whose [tls.Conn.NetConn] is a line.
func connect(ctx context.Context, dialer *net.Dialer, config *tls.Config, network, address string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	over := tls.Client(&line{Conn: conn}, config)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return over, nil
}

// tunnel is the body of an answer that changes the protocol, such as the answer to an exec.
type tunnel interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// countedTunnel is counted if its line is cut, which the data in it do not show.
type countedTunnel struct {
	tunnel

	g    *gateway
	line *line
}

// countTunnel makes g count an answer that changes the protocol, if its connection is cut.
func (g *gateway) countTunnel(r *http.Response) {
	waits, _ := r.Request.Context().Value(waitingKey{}).(*waiting)
	if is, ok := r.Body.(tunnel); ok && waits != nil && waits.line != nil {
		if conn, ok := waits.line.Conn.(syscall.Conn); ok {
			waitForReader(conn)
		}
		r.Body = &countedTunnel{is, g, waits.line}
	}
}

// waitForReader removes the limit that [endUnanswered] sets, because the kernel applies it also to a command that reads nothing
// for a while, such as a database with a long statement. While nothing is sent, probes find within half a minute that the other
// machine is gone; else the kernel gives up after a quarter of an hour.
func waitForReader(c syscall.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		for option, value := range map[int]int{unix.TCP_USER_TIMEOUT: 0, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 2} {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value)
		}
	})
}

// Read implements [io.Reader].
func (t *countedTunnel) Read(p []byte) (int, error) {
	n, err := t.tunnel.Read(p)
	if err != nil && t.line.cut.Load() {
		t.g.cut.Add(1)
	}
	return n, err
}
