package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// listen opens port for the API proxy.
func listen(ctx context.Context, port int) ([]net.Listener, error) {
	listeners, err := ListenLoopback(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("listen for the API proxy: %w; choose another port with --proxy-port (0: any free one)", err)
	}
	return listeners, nil
}

// ListenLoopback opens port on both loopback addresses, first the IPv4 one; on a machine without
// IPv6, only on that. Another process that had one of them would get the tokens of clients that use
// the name localhost. Port 0 means any port that is free on both.
func ListenLoopback(ctx context.Context, port int) ([]net.Listener, error) {
	const tries = 10
	for try := 1; ; try++ {
		listeners, err := listenBoth(ctx, port)
		if port != 0 || try == tries || !errors.Is(err, syscall.EADDRINUSE) {
			return listeners, err
		}
	}
}

func listenBoth(ctx context.Context, port int) ([]net.Listener, error) {
	var lc net.ListenConfig
	v4, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	v6, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(portOf(v4))))
	switch {
	case err == nil:
		return []net.Listener{v4, v6}, nil
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT): // this machine has no IPv6
		return []net.Listener{v4}, nil
	}
	return nil, errors.Join(err, v4.Close())
}

func portOf(l net.Listener) int {
	addr, _ := l.Addr().(*net.TCPAddr)
	return addr.Port
}

// eitherListener accepts TLS and plain connections on one port. Clients written
// in Go present a token only over TLS; users of ansible-operator's proxy use
// http URLs.
type eitherListener struct {
	net.Listener
	config *tls.Config
}

// Accept implements [net.Listener].
func (l *eitherListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &eitherConn{Conn: conn, config: l.config}, nil
}

// eitherConn becomes a TLS or a plain connection at its first read, by the first
// byte: Accept must not wait for a client that sends nothing. Deadlines are set on
// the underlying connection in both cases.
type eitherConn struct {
	net.Conn
	config *tls.Config

	mu sync.Mutex
	is net.Conn // the TLS or plain connection; nil before the first byte
}

// recordHandshake is the first byte of a TLS connection (RFC 8446, section 5.1).
const recordHandshake = 0x16

func (c *eitherConn) Read(b []byte) (int, error) {
	is, err := c.decide()
	if err != nil {
		return 0, err
	}
	return is.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	is := c.decided()
	if is == nil {
		return 0, errors.New("written before anything was read")
	}
	return is.Write(b)
}

// Close ends TLS properly: otherwise a client would consider an answer that ends
// with the connection to be cut off. It does not wait for a Write.
func (c *eitherConn) Close() error {
	return cmp.Or(c.decided(), c.Conn).Close()
}

// decided returns the TLS or plain connection; nil before the first byte.
func (c *eitherConn) decided() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is
}

// decide reads the first byte and returns the TLS or plain connection. It is called by the
// connection's only reader.
func (c *eitherConn) decide() (net.Conn, error) {
	if is := c.decided(); is != nil {
		return is, nil
	}
	first := make([]byte, 1)
	if _, err := c.Conn.Read(first); err != nil {
		return nil, err
	}
	var is net.Conn = &prefixConn{Conn: c.Conn, prefix: first}
	if first[0] == recordHandshake {
		is = tls.Server(is, c.config)
	}
	c.mu.Lock()
	c.is = is
	c.mu.Unlock()
	return is, nil
}

// prefixConn first returns the bytes again that were already read from the connection.
type prefixConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixConn) Read(b []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(b, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
