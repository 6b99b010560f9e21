package jobs

import (
	"net"
	"sync"
)

// maxOfAddress is how many connections one address may have. Each Pod of a run has a few, and the
// Pods of a node may share an address.
const maxOfAddress = 256

// fairListener closes further connections of an address that has the maximum already, so that one
// Pod cannot take all connections.
type fairListener struct {
	net.Listener
	most, all int
	tell      func(open int, refused bool)

	mu    sync.Mutex
	open  map[string]int
	total int
}

// newFairListener returns a listener that gives each address at most most of all connections of l. tell is called with
// the number of connections, and whether one was refused, or the next one has to wait because all are in use.
func newFairListener(l net.Listener, most, all int, tell func(open int, refused bool)) *fairListener {
	return &fairListener{Listener: l, most: most, all: all, tell: tell, open: map[string]int{}}
}

// Accept implements [net.Listener].
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if l.count(host, 1) {
			return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { l.count(host, -1) })}, nil
		}
		l.count(host, -1)
		_ = conn.Close() // the client notices
	}
}

// count adds by to the connections of an address, and reports whether the address may have so many.
func (l *fairListener) count(host string, by int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[host] += by
	l.total += by
	n := l.open[host]
	if n == 0 {
		delete(l.open, host)
	}
	l.tell(l.total, by > 0 && (n > l.most || l.total >= l.all))
	return n <= l.most
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
