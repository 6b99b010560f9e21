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
	most, all int
	tell      func(open int, refused bool)

	mu    sync.Mutex
	open  map[string]int
	total int
}

// newFairListener gives each address so many connections of l at most. tell is told how many there are, and whether one was refused, or
// the next one will have to wait since there are all that may be.
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
		_ = conn.Close() // the client finds out
	}
}

// count counts a connection, and reports whether the address may have it.
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
