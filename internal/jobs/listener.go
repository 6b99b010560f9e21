package jobs

import (
	"net"
	"sync"
)

// maxOfAddress is how many connections one address may have: Pods of runs have a few each, and
// those of a node may share one.
const maxOfAddress = 256

// fairListener closes further connections of an address that has as many as one may have, so that
// one Pod does not take those of all.
type fairListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[string]int
}

func newFairListener(l net.Listener, most int) *fairListener {
	return &fairListener{Listener: l, most: most, open: map[string]int{}}
}

// Accept implements [net.Listener].
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if l.count(host, 1) <= l.most {
			return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { l.count(host, -1) })}, nil
		}
		l.count(host, -1)
		_ = conn.Close() // the client finds out
	}
}

func (l *fairListener) count(host string, by int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[host] += by
	n := l.open[host]
	if n == 0 {
		delete(l.open, host)
	}
	return n
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
